"""First, last, arg_min and arg_max: the values of one chosen row.

Aggregates that choose by the same order among the same rows are columns of one ``Choice``. The row is chosen once and
its values are stored together, so they come from the same row even if several rows tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.expressions import AggregateKind
from dataflow.state.arrays import canonical_words, from_words, is_word, validity, words
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from dataflow.state.kept import KEPT_KERNELS, KeptBytes, KeptValues
from operators.steps.step import NOT_NULL, Fold, Rows, Store, read_word, stored_words

__all__ = ["Choice", "ChosenColumn", "ValuePlace"]

_SIGN, _REST = -(2**63), 2**63 - 1
_NO_ORDERS = np.empty(0, np.int64)
_MOST_ARRIVALS = 1 << 62
_BITS = 63
"""The usable bits of a state word: all but the sign."""


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """A column of a choice: its result's name and type, and the number of its evaluated argument."""

    name: str
    dtype: pa.DataType
    argument: int


@dataclass(frozen=True, slots=True)
class _Bit:
    """A bit of a state word, ``mask``, in every record."""

    word: int
    mask: int

    def of(self, records: Rows) -> npt.NDArray[np.bool_]:
        bits: npt.NDArray[np.bool_] = records[:, self.word] & self.mask != 0
        return bits

    def bitmap(self, records: Rows) -> pa.Buffer | None:
        """Return the validity bitmap of records that have the bit; None if all do."""
        bits = self.of(records)
        return None if bits.all() else pa.py_buffer(np.packbits(bits, bitorder="little"))

    def put(self, records: Rows, array: pa.Array) -> None:
        """Set the bit in the records whose row of ``array`` is not null."""
        records[:, self.word] |= np.where(_present(array), self.mask, 0)


class ChosenColumn:
    """The value of the chosen row in one column. The first column of a choice also stores the order."""

    def __init__(self, place: ValuePlace, word: int, flag: int, bit: _Bit, order: _Order | None) -> None:
        self.name = place.name
        self.dtype = place.dtype
        self.argument = place.argument
        self.kept = None if is_word(place.dtype) or pa.types.is_null(place.dtype) else KeptBytes(word, flag, self.dtype)
        """Values of a type that does not fit into a word; the word then holds the number of a value."""
        self._word = word
        self._bit = bit
        self._order = order

    def fold(self, rows: CopyOnWriteRows, slots: Slots, chosen: Rows, array: pa.Array) -> None:
        """Store row ``chosen[i]`` of ``array`` in the record of ``slots[i]``."""
        from operators.kernels.choice import keep_values

        values = words(array) if self.kept is None else self.kept.row_numbers(len(array))
        keep_values(rows.rows, slots, chosen, values, *validity(array), self._word, self._bit.word, self._bit.mask)
        if self.kept is not None:
            self.kept.settle(rows, slots, array)

    def read(self, records: Rows, always: int = 0) -> pa.Array:
        """Return the column of gathered records."""
        return self._values(records, self._bit.bitmap(records), self._kept_values())

    def _kept_values(self) -> KeptValues | None:
        return None if self.kept is None else self.kept.values()

    def _values(self, records: Rows, bitmap: pa.Buffer | None, kept: KeptValues | None) -> pa.Array:
        if pa.types.is_null(self.dtype):
            return pa.nulls(len(records))
        if kept is not None:
            return kept.read(records, bitmap)
        from operators.kernels.aggregate import read_words

        values = np.empty(len(records), np.int64)
        read_words(records, self._word, 0, 0, values)
        return from_words(values, self.dtype, bitmap)

    def stored(self) -> list[pa.Field]:
        """Return the columns of a snapshot."""
        order = [] if self._order is None else self._order.stored(self.name)
        return [*order, pa.field(f"{self.name}.value", self.dtype)]

    def freeze(self) -> Store:
        """Return these columns of frozen records."""
        values = self._kept_values()

        def columns(records: Rows) -> list[pa.Array]:
            order = [] if self._order is None else self._order.read(records)
            return [*order, self._values(records, self._bit.bitmap(records), values)]

        def text_bytes(records: Rows) -> int:
            return 0 if values is None else values.text_bytes(records, self._bit.bitmap(records))

        return Store(columns, text_bytes)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        """Restore the columns that ``freeze`` stored."""
        *order, values = columns
        if self._order is not None:
            self._order.restore(records, order, self.name)
        self._bit.put(records, values)
        if self.kept is not None:
            self.kept.restore(records, values)
        elif not pa.types.is_null(self.dtype):
            records[:, self._word] = words(values)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of the chosen row, stored as null where it is null, and its number by arrival, if there is one."""

    word: int
    bit: _Bit
    arrival: int | None

    def stored(self, name: str) -> list[pa.Field]:
        arrival = [] if self.arrival is None else [pa.field(f"{name}.arrival", pa.int64())]
        return [pa.field(f"{name}.order", pa.int64()), *arrival]

    def read(self, records: Rows) -> list[pa.Array]:
        from operators.kernels.aggregate import read_words

        values = np.empty(len(records), np.int64)
        read_words(records, self.word, 0, 0, values)
        order = from_words(values, pa.int64(), self.bit.bitmap(records))
        return [order] if self.arrival is None else [order, read_word(records, self.arrival, pa.int64())]

    def restore(self, records: Rows, columns: Sequence[pa.Array], name: str) -> None:
        order, *arrivals = columns
        records[:, self.word] = np.where(_present(order), words(order), 0)
        self.bit.put(records, order)
        if self.arrival is not None:
            numbers = stored_words(arrivals[0], name)
            if numbers.min(initial=0) < 0 or numbers.max(initial=0) > _MOST_ARRIVALS:
                raise CheckpointDamaged(f"{name}: chosen rows in the checkpoint have numbers that are out of range")
            records[:, self.arrival] = numbers


class Choice(Fold):
    """The row chosen by ``order`` or by arrival, and its values. See the kernels for its words.

    Args:
        order: number and type of the argument that rows are compared by; None: arrival.
        counted: number of an argument that is null in the rows to leave out; None: all rows count.
        arrival: number of an argument with the number of each row by arrival, which decides between equal orders when
            records are merged; None: a merged record has later rows.
    """

    def __init__(
        self,
        kind: AggregateKind,
        word: int,
        flag: int,
        places: Sequence[ValuePlace],
        order: tuple[int, pa.DataType] | None,
        *,
        counted: int | None,
        arrival: int | None = None,
    ) -> None:
        arguments = [place.argument for place in places]
        self.name = places[0].name
        orders = [] if order is None else [order[0]]
        arrivals = [] if arrival is None else [arrival]
        self.arguments = (*arguments, *orders, *arrivals, *([] if counted is None else [counted]))
        states = -(-(len(places) + 1) // _BITS)
        bits = [_Bit(word + 1 + number // _BITS, 1 << number % _BITS) for number in range(len(places) + 1)]
        first = word + 1 + states
        self.arrival = None if arrival is None else first + len(places)
        """The word with the number of the chosen row by arrival, if there is one."""
        own = _Order(word, bits[0], self.arrival)
        self.columns = [
            ChosenColumn(place, first + i, flag, bits[i + 1], None if i else own) for i, place in enumerate(places)
        ]
        self.initial = (0,) * (1 + states + len(places) + len(arrivals))
        self.mergeable = all(column.kept is None for column in self.columns)
        byte_kernels = () if self.mergeable else KEPT_KERNELS
        self.kernels = ("operators.kernels.choice", *byte_kernels)
        self._word, self._states, self._flag = word, states, flag
        self._has_counted = counted is not None
        self._latest = int(kind is AggregateKind.LAST)
        self._skip = int(kind in (AggregateKind.ARG_MIN, AggregateKind.ARG_MAX))
        by = pa.int64() if order is None else order[1]
        flip = _SIGN if by == pa.uint64() else 0
        least = kind in (AggregateKind.FIRST, AggregateKind.ARG_MIN)
        self._flip = ~flip if least else flip
        self._mask = _REST if pa.types.is_floating(by) else 0

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.choice import fold_choice, keep_values

        counted = validity(inputs[-1]) if self._has_counted else NOT_NULL
        rest = inputs[:-1] if self._has_counted else inputs
        arrivals = None if self.arrival is None else rest[-1]
        rest = rest if arrivals is None else rest[:-1]
        values, order = rest[: len(self.columns)], rest[len(self.columns) :]
        chosen_slots, chosen_rows = np.empty(len(slots), np.int32), np.empty(len(slots), np.int64)
        count = fold_choice(
            rows.rows,
            slots,
            *counted,
            canonical_words(order[0]) if order else _NO_ORDERS,
            *(validity(order[0]) if order else NOT_NULL),
            self._word,
            self._states,
            self._flag,
            self._flip,
            self._mask,
            self._latest,
            self._skip,
            chosen_slots,
            chosen_rows,
        )
        if count:
            for column, array in zip(self.columns, values, strict=True):
                column.fold(rows, chosen_slots[:count], chosen_rows[:count], array)
        if count and arrivals is not None:
            assert self.arrival is not None, "arrivals have a word"
            chosen = chosen_slots[:count], chosen_rows[:count]
            keep_values(rows.rows, *chosen, words(arrivals), *NOT_NULL, self.arrival, self._word + 1, 0)

    def shrink(self, rows: CopyOnWriteRows) -> None:
        for column in self.columns:
            if column.kept is not None:
                column.kept.shrink(rows)

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        from operators.kernels.choice import merge_choice

        stop = self._word + len(self.initial)
        arrival = -1 if self.arrival is None else self.arrival
        merge_choice(records, slots, partials, self._word, stop, arrival, self._flag, self._latest)


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = to_numbers(array.is_valid())
    return valid
