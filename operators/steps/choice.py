"""First, last, arg_min and arg_max: the values of one chosen row.

Aggregates that choose by the same order among the same rows are columns of one ``ChosenRow``. The row is chosen once
and its values are stored together, so they come from the same row even if several rows tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import canonical_words, from_words, is_word, validity, words
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from dataflow.state.kept import KEPT_KERNELS, KeptBytes, KeptValues
from dataflow.state.parts import number_field
from operators.steps.step import NOT_NULL, Flags, Fold, Frozen, Rows, read_word, restore_bit, stored_words

__all__ = ["ChosenRow", "ChoicePlace", "Choosing", "ChosenColumn", "ValuePlace"]

_SIGN, _REST = -(2**63), 2**63 - 1
_NO_ORDERS = np.empty(0, np.int64)
_MOST_ARRIVALS = 1 << 62
_BITS = 63
"""The usable bits of a state word: all but the sign."""


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """A column of a choice: its result's name and type, the number of its evaluated argument, and its stored name."""

    name: str
    dtype: pa.DataType
    argument: int
    state: str


@dataclass(frozen=True, slots=True)
class Choosing:
    """The row to choose: the one with the least order, or else the greatest.

    Attributes:
        latest: of rows with equal orders, whether the last one counts, or else the first.
        skips_null: whether rows without an order are left out, or else are worse than all others.
    """

    least: bool
    latest: bool
    skips_null: bool


@dataclass(frozen=True, slots=True)
class ChoicePlace:
    """The place of a choice: its first word of a record, its flag, and the beginning of its names in a checkpoint."""

    word: int
    flag: int
    state: str


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
    """The value of the chosen row in one column. ``uses`` are the columns of a checkpoint that it is read from."""

    def __init__(self, place: ValuePlace, word: int, flag: int, bit: _Bit, shared: Sequence[str]) -> None:
        self.field = pa.field(f"{place.state}/value", place.dtype)
        self.uses = [*shared, self.field.name]
        self.name = place.name
        self.dtype = place.dtype
        self.argument = place.argument
        self.kept = None if is_word(place.dtype) or pa.types.is_null(place.dtype) else KeptBytes(word, flag, self.dtype)
        """Values of a type that does not fit into a word; the word then holds the number of a value."""
        self._word = word
        self.bit = bit

    def fold(self, rows: CopyOnWriteRows, slots: Slots, chosen: Rows, array: pa.Array) -> None:
        """Store row ``chosen[i]`` of ``array`` in the record of ``slots[i]``."""
        from operators.kernels.choice import keep_values

        values = words(array) if self.kept is None else self.kept.row_numbers(len(array))
        keep_values(rows.rows, slots, chosen, values, *validity(array), self._word, self.bit.word, self.bit.mask)
        if self.kept is not None:
            self.kept.settle(rows, slots, array)

    def read(self, records: Rows, always: int = 0) -> pa.Array:
        """Return the column of gathered records."""
        return self._values(records, self.bit.bitmap(records), self._kept_values())

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

    def freeze(self) -> Frozen:
        """Return the column ``field`` of frozen records; the flags are those of the state word with its bit."""
        values = self._kept_values()

        def text_bytes(records: Rows) -> int:
            return 0 if values is None else values.text_bytes(records, self.bit.bitmap(records))

        return Frozen(lambda records, flags: [self._values(records, flags.bitmap(self.bit.mask), values)], text_bytes)

    def restore(self, records: Rows, values: pa.Array) -> None:
        """Restore the column that ``freeze`` made. Records with a chosen row have the flag of the choice."""
        self.bit.put(records, values)
        if self.kept is not None:
            self.kept.restore(records, values)
        elif not pa.types.is_null(self.dtype):
            records[:, self._word] = words(values)


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of the chosen row, of type ``dtype``: a word in the order of an ``EXTREME``."""

    word: int
    bit: _Bit
    dtype: pa.DataType
    flip: int
    mask: int

    def read(self, records: Rows, bitmap: pa.Buffer | None) -> pa.Array:
        return read_word(records, self.word, self.dtype, bitmap, self.flip, self.mask)

    def restore(self, records: Rows, orders: pa.Array) -> None:
        values = canonical_words(orders)
        values = values ^ self.flip ^ ((values >> 63) & self.mask)
        records[:, self.word] = np.where(_present(orders), values, 0)
        self.bit.put(records, orders)


class ChosenRow(Fold):
    """The row chosen by ``order`` or by arrival, and its values. See the kernels for its words.

    A checkpoint says which keys have a chosen row, because its order and its values may be null.

    Args:
        order: number and type of the argument that rows are compared by; None: arrival.
        counted: number of an argument that is null in the rows to leave out; None: all rows count.
        arrival: number of an argument with the number of each row by arrival, which decides between equal orders when
            records are merged; None: a merged record has later rows.
    """

    def __init__(
        self,
        choosing: Choosing,
        place: ChoicePlace,
        places: Sequence[ValuePlace],
        order: tuple[int, pa.DataType] | None,
        *,
        counted: int | None,
        arrival: int | None = None,
    ) -> None:
        word, arguments = place.word, [value.argument for value in places]
        self.name = places[0].name
        orders = [] if order is None else [order[0]]
        arrivals = [] if arrival is None else [arrival]
        self.arguments = (*arguments, *orders, *arrivals, *([] if counted is None else [counted]))
        states = -(-(len(places) + 1) // _BITS)
        bits = [_Bit(word + 1 + number // _BITS, 1 << number % _BITS) for number in range(len(places) + 1)]
        first = word + 1 + states
        self.arrival = None if arrival is None else first + len(places)
        """The word with the number of the chosen row by arrival, if there is one."""
        self._latest, self._skip = int(choosing.latest), int(choosing.skips_null)
        by = pa.int64() if order is None else order[1]
        flip = _SIGN if by == pa.uint64() else 0
        self._flip = ~flip if choosing.least else flip
        self._mask = _REST if pa.types.is_floating(by) else 0
        self._order = None if order is None else _Order(word, bits[0], by, self._flip, self._mask)
        self._shared = [pa.field(f"{place.state}/chosen", pa.bool_(), nullable=False)]
        if self._order is not None:
            self._shared.append(pa.field(f"{place.state}/order", by))
        if self.arrival is not None:
            self._shared.append(number_field(f"{place.state}/arrival"))
        shared = [field.name for field in self._shared]
        self.columns = [
            ChosenColumn(value, first + i, place.flag, bits[i + 1], shared) for i, value in enumerate(places)
        ]
        self.initial = (0,) * (1 + states + len(places) + len(arrivals))
        self.mergeable = all(column.kept is None for column in self.columns)
        byte_kernels = () if self.mergeable else KEPT_KERNELS
        self.kernels = ("operators.kernels.choice", *byte_kernels)
        self._word, self._states, self._flag = word, states, place.flag
        self._has_counted = counted is not None

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

    def stored(self) -> list[pa.Field]:
        return [*self._shared, *[column.field for column in self.columns]]

    def freeze(self) -> Frozen:
        frozen = [(column.bit.word, column.freeze()) for column in self.columns]

        def columns(records: Rows, flags: Flags) -> list[pa.Array]:
            shared, first = [flags.column(self._flag)], self._word + 1
            states = {word: Flags(records, word) for word in range(first, first + self._states)}
            if self._order is not None:
                shared.append(self._order.read(records, states[first].bitmap(self._order.bit.mask)))
            if self.arrival is not None:
                shared.append(read_word(records, self.arrival, pa.int64()))
            return [*shared, *[array for word, each in frozen for array in each.columns(records, states[word])]]

        return Frozen(columns, lambda records: sum([each.text_bytes(records) for _, each in frozen]))

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        shared, values = list(columns[: len(self._shared)]), columns[len(self._shared) :]
        chosen = restore_bit(records, self._flag, shared.pop(0), self.name)
        orders = [] if self._order is None else [shared.pop(0)]
        if not chosen.all() and any([_present(array)[~chosen].any() for array in (*orders, *values)]):
            raise CheckpointDamaged(f"{self.name}: keys without a chosen row have values in the checkpoint")
        if self._order is not None:
            self._order.restore(records, orders[0])
        if self.arrival is not None:
            numbers = stored_words(shared[0], self.name)
            if numbers.min(initial=0) < 0 or numbers.max(initial=0) > _MOST_ARRIVALS:
                raise CheckpointDamaged(f"{self.name}: chosen rows of the checkpoint have numbers out of range")
            records[:, self.arrival] = numbers
        for column, array in zip(self.columns, values, strict=True):
            column.restore(records, array)


def _present(array: pa.Array) -> npt.NDArray[np.bool_]:
    valid: npt.NDArray[np.bool_] = to_numbers(array.is_valid())
    return valid
