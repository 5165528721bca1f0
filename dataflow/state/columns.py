"""The columns of keyed state: what a record holds, and how it becomes rows of a checkpoint.

``WordColumns`` holds Arrow columns of a schema. Aggregates bring columns of their own, which kernels fold rows into.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.errors import ConfigurationError, SchemaMismatch, repeated_names
from dataflow.state.arrays import from_words, is_bytes, is_word, validity, words
from dataflow.state.copy_on_write import Readers, RecordRows, Rows
from dataflow.state.index import Slots
from dataflow.state.kept import KEPT_KERNELS, KeptBytes, KeptValues

__all__ = ["PIECE_BYTES", "RecordColumns", "FrozenColumns", "WordColumns", "check_distinct"]

PIECE_BYTES = 8 << 20
"""Bytes of text and lists in a batch of a checkpoint, unless one row has more; and of its other columns."""

_MOST = 62
"""Columns of a record: the flags of one word, but the sign bit and bit 0."""


def _none(records: Rows) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class FrozenColumns:
    """The columns that a checkpoint has of records. Both functions are for records frozen before, on any thread.

    Attributes:
        columns: returns the columns of some records.
        text_bytes: returns the bytes of the text, other byte values and lists in these columns. If they are more than
            ``PIECE_BYTES``, a smaller number above that may be returned.
    """

    columns: Callable[[Rows], list[pa.Array]]
    text_bytes: Callable[[Rows], int] = _none


class RecordColumns(Protocol):
    """What the words of a record mean. Word 0 holds flags; its sign bit and bit 0 belong to the keyed state."""

    @property
    def template(self) -> npt.NDArray[np.int64]:
        """The words of a record without a value."""

    @property
    def stored(self) -> pa.Schema:
        """The columns of a checkpoint."""

    @property
    def kernels(self) -> Sequence[str]:
        """The modules with the kernels that these columns call."""

    def attach(self, rows: RecordRows, readers: Readers) -> None:
        """Hold the values in ``rows``; what snapshots may still read is reused by ``readers.defer`` alone."""

    def freeze(self) -> FrozenColumns:
        """Return the columns ``stored`` of records frozen now."""

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Write the columns that ``freeze`` made into ``records``, which are empty; row i is of ``slots[i]``."""

    def restored(self, slots: Slots) -> None:
        """Take note that every part is restored; ``slots`` have a value."""

    def forget(self, slots: Slots) -> None:
        """Free what the records of ``slots``, each once, refer to: they are about to be reset."""

    def shrink(self) -> None:
        """Give memory back: there are far fewer records now."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its word of a record, and the flag of records where it is not null."""

    name: str
    dtype: pa.DataType
    word: int
    flag: int
    kept: KeptBytes | None

    def read(self, records: Rows, values: KeptValues | None) -> pa.Array:
        if values is not None:
            return values.read(records, self._bitmap(records))
        return from_words(records[:, self.word].copy(), self.dtype, self._bitmap(records))

    def text_bytes(self, records: Rows, values: KeptValues | None) -> int:
        """Return the bytes of the text in ``records``."""
        return 0 if values is None else values.text_bytes(records, self._bitmap(records))

    def _bitmap(self, records: Rows) -> pa.Buffer | None:
        present = records[:, 0] & self.flag != 0
        return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))

    def write(self, rows: RecordRows, slots: Slots, array: pa.Array) -> None:
        """Write the values of an array, each one word, into the records of ``slots``; the last of equal ones counts."""
        from dataflow.state.kernels.columns import write_words

        bits, first = validity(array)
        write_words(rows.rows, slots, words(array), bits, first, self.word, self.flag)

    def write_bytes(self, rows: RecordRows, slots: Slots, array: pa.Array, last: npt.NDArray[np.intp]) -> None:
        """Write the rows ``last`` of an array of byte values into the records of ``slots``, which are distinct."""
        assert self.kept is not None, f"{self.name} has no byte values"
        records = rows.rows
        present = np.ones(len(last), bool) if not array.null_count else to_numbers(array.is_valid())[last]
        records[slots, 0] = np.where(present, records[slots, 0] | self.flag, records[slots, 0] & ~self.flag)
        numbers = self.kept.row_numbers(len(array))[last]
        records[slots, self.word] = np.where(present, numbers, 0)
        self.kept.settle(rows, slots, array)


def check_distinct(schema: pa.Schema) -> None:
    """Raise SchemaMismatch if two columns of keyed state have one name."""
    if twice := repeated_names(schema.names):
        raise SchemaMismatch(f"keyed state has several columns with the names {twice}: rename them")


def _last_of_each(slots: Slots) -> npt.NDArray[np.intp]:
    """Return the last row of each slot."""
    _, first = np.unique(slots[::-1], return_index=True)
    return len(slots) - 1 - first


class WordColumns:
    """Columns of a schema, one word each after ``words`` words that belong to kernels.

    Numbers and times are their own word; of text, binary and decimal values the word is a number of a stored value.
    Raises ``SchemaMismatch`` for nested types.
    """

    def __init__(self, schema: pa.Schema, words: int) -> None:
        if len(schema) > _MOST:
            raise ConfigurationError(f"keyed state has at most {_MOST} columns, got {len(schema)}")
        if words < 0:
            raise ConfigurationError(f"the words of a record are zero or more, got words={words}")
        check_distinct(schema)
        self._columns = [self._column(field, i, words) for i, field in enumerate(schema)]
        self._by_name = {column.name: column for column in self._columns}
        self.stored = pa.schema([*[pa.field(f"word {i}", pa.int64()) for i in range(words)], *schema])
        self.template: npt.NDArray[np.int64] = np.zeros(1 + words + len(schema), np.int64)
        kept = KEPT_KERNELS if any([column.kept is not None for column in self._columns]) else ()
        in_words = ("dataflow.state.kernels.columns",) if any([column.kept is None for column in self._columns]) else ()
        self.kernels = (*kept, *in_words)
        self._words = words

    @staticmethod
    def _column(field: pa.Field, number: int, words: int) -> _Column:
        word, flag = 1 + words + number, 2 << number
        if is_word(field.type):
            return _Column(field.name, field.type, word, flag, None)
        if is_bytes(field.type):
            return _Column(field.name, field.type, word, flag, KeptBytes(word, flag, field.type))
        raise SchemaMismatch(
            f"the column {field.name!r} of type {field.type} cannot be keyed state: expected a number, boolean, text, "
            "binary, time or decimal column; keep lists as rows"
        )

    def attach(self, rows: RecordRows, readers: Readers) -> None:
        self._rows = rows

    def freeze(self) -> FrozenColumns:
        columns = [(column, None if column.kept is None else column.kept.values()) for column in self._columns]
        count = self._words

        def arrays(records: Rows) -> list[pa.Array]:
            plain = [from_words(records[:, 1 + i].copy(), pa.int64()) for i in range(count)]
            return [*plain, *[column.read(records, values) for column, values in columns]]

        return FrozenColumns(
            arrays, lambda records: sum([column.text_bytes(records, values) for column, values in columns])
        )

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        for i in range(self._words):
            records[:, 1 + i] = words(columns[i])
        for column, array in zip(self._columns, columns[self._words :], strict=True):
            bits, first = validity(array)
            present = np.ones(len(array), bool)
            if len(bits):
                present = np.unpackbits(bits, bitorder="little", count=first + len(array))[first:].astype(bool)
            records[:, 0] |= np.where(present, column.flag, 0)
            if column.kept is None:
                records[:, column.word] = words(array)
            else:
                column.kept.restore(records, array)

    def restored(self, slots: Slots) -> None:
        """Do nothing."""

    def forget(self, slots: Slots) -> None:
        """Do nothing: a stored value that no record refers to is dropped when its memory is needed."""

    def shrink(self) -> None:
        """Give back the memory of stored values that no record refers to."""
        for column in self._columns:
            if column.kept is not None:
                column.kept.shrink(self._rows)

    def read(self, records: Rows, names: Sequence[str]) -> pa.RecordBatch:
        """Return the columns ``names`` of copied ``records``; all columns for no names."""
        columns = [self._known(name) for name in names] or self._columns
        arrays = [c.read(records, None if c.kept is None else c.kept.values()) for c in columns]
        schema = pa.schema([(column.name, column.dtype) for column in columns])
        if not columns:
            return pa.record_batch({"": pa.nulls(len(records))}).select([])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def write(self, slots: Slots, batch: pa.RecordBatch, *, distinct: bool = False) -> None:
        """Write the columns of ``batch``, row i into the record of ``slots[i]``; of equal slots the last row counts."""
        last: npt.NDArray[np.intp] | None = None
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            column = self._known(name)
            if array.type != column.dtype:
                raise SchemaMismatch(f"the state column {name!r} has type {column.dtype}, got {array.type}: cast it")
            if column.kept is None:
                column.write(self._rows, slots, array)
                continue
            if last is None:
                last = np.arange(len(slots)) if distinct else _last_of_each(slots)
            column.write_bytes(self._rows, slots[last], array, last)

    def _known(self, name: str) -> _Column:
        if name not in self._by_name:
            raise SchemaMismatch(f"keyed state has no column {name!r}; it has {list(self._by_name)}")
        return self._by_name[name]
