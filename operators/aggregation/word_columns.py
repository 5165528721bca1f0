"""Aggregates whose words the common kernel changes: counts, sums, means, and extremes of what fits into a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.state.arrays import GREATEST, LEAST, Numbers, fresh_words, from_words, words
from dataflow.state.index import Slots
from operators.aggregation.passes import Field
from operators.kernels.instructions import COUNT, EXTREME, SUM_FLOAT
from operators.steps.step import Flags, Frozen, Rows, StepPlace, put_words, read_word, restore_flag, seen

__all__ = ["MeanColumn", "WordColumn"]


class WordColumn:
    """The result and the words of an aggregate, one field each.

    ``flag`` is the bit of word 0 that is set if there is a value (0: there always is one).
    """

    def __init__(self, place: StepPlace, *fields: Field) -> None:
        self.name = place.name
        self.dtype = place.dtype
        self.flag = place.flag
        self.fields = fields
        self._state = place.state

    @property
    def initial(self) -> tuple[int, ...]:
        """The words of a record without rows."""
        return tuple(LEAST if field.operation == EXTREME else 0 for field in self.fields)

    def read(self, records: Rows, always: int) -> pa.Array:
        """Return the column of gathered records; ``always`` holds the flags that all of them have."""
        return from_words(self._results(records), self.dtype, seen(self.flag, records, always))

    def _results(self, records: Rows) -> Numbers:
        return _words_of(self.fields[0], records)

    def stored(self) -> list[pa.Field]:
        """Return the columns of a checkpoint, with the values that the words stand for."""
        return [
            pa.field(f"{self._state}/{field.name}", self._type(field), nullable=self.flag != 0) for field in self.fields
        ]

    def freeze(self) -> Frozen:
        """Return these columns of frozen records."""
        types = [self._type(field) for field in self.fields]

        def columns(records: Rows, flags: Flags) -> list[pa.Array]:
            bitmap = flags.bitmap(self.flag)
            return [
                read_word(records, field.word, type_, bitmap, field.flip, field.mask)
                for field, type_ in zip(self.fields, types, strict=True)
            ]

        return Frozen(columns)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Write the columns that ``freeze`` made into empty ``records``.

        Raises: CheckpointDamaged if one of them is null and others are not.
        """
        present = restore_flag(records, self.flag, columns, self.name)
        for field, column in zip(self.fields, columns, strict=True):
            put_words(records, field.word, _ordered(field, words(column)), present)

    def _type(self, field: Field) -> pa.DataType:
        """Return the type of the field's values."""
        if field.operation == COUNT:
            return pa.int64()
        return pa.float64() if field.operation == SUM_FLOAT else self.dtype


class MeanColumn(WordColumn):
    """A mean, whose fields are the sum and the count."""

    def _results(self, records: Rows) -> Numbers:
        total, counts = (_words_of(field, records) for field in self.fields)
        return (total.view(np.float64) / np.maximum(counts, 1)).view(np.int64)


def _words_of(field: Field, records: Rows) -> Numbers:
    from operators.kernels.aggregate import read_words

    out = fresh_words(len(records))
    read_words(records, field.word, field.flip, field.mask, out)
    return out


def _ordered(field: Field, values: Numbers) -> Numbers:
    """Return the words of a record for values, as the kernel ``order_word`` does."""
    if field.operation != EXTREME:
        return values
    if field.mask:
        values = np.where(values & GREATEST > field.largest, field.largest + 2**51, values)
    ordered: Numbers = values ^ field.flip ^ ((values >> 63) & field.mask)
    return ordered
