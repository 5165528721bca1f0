"""First, last, arg_min and arg_max: the value of one chosen row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.expressions import AggregateKind
from dataflow.state.arrays import canonical_words, from_words, is_word, validity, words
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from operators.steps.kept import KeptBytes
from operators.steps.step import NOT_NULL, Place, Rows, Step, Store, read_word, seen

__all__ = ["choice"]

_SIGN, _REST = -(2**63), 2**63 - 1
_NO_ORDERS = np.empty(0, np.int64)


class Choice(Step):
    """Chooses by the second argument, or without one by arrival; the value is a word."""

    initial = (0, 0)
    kernels: tuple[str, ...] = ("operators.kernels.choice",)

    def __init__(self, place: Place, kind: AggregateKind) -> None:
        super().__init__(place)
        self._latest = int(kind is AggregateKind.LAST)
        order = place.types[1] if len(place.types) > 1 else pa.int64()
        flip = _SIGN if order == pa.uint64() else 0
        least = kind in (AggregateKind.FIRST, AggregateKind.ARG_MIN)
        self._flip = ~flip if least else flip
        self._mask = _REST if pa.types.is_floating(order) else 0

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        self._choose(rows.rows, slots, words(inputs[0]), inputs)

    def _choose(self, records: Rows, slots: Slots, values: Rows, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.choice import fold_choice

        orders = canonical_words(inputs[1]) if len(inputs) > 1 else _NO_ORDERS
        order_bits = validity(inputs[1]) if len(inputs) > 1 else NOT_NULL
        place = self.place
        choice = (place.word, place.flag, self._flip, self._mask, self._latest)
        fold_choice(records, slots, values, *validity(inputs[0]), orders, *order_bits, *choice)

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        from operators.kernels.choice import merge_choice

        merge_choice(records, slots, partials, self.place.word, self.place.flag, self._latest)

    def read(self, records: Rows, always: int) -> pa.Array:
        from operators.kernels.aggregate import read_words

        values = np.empty(len(records), np.int64)
        read_words(records, self.place.word + 1, 0, 0, values)
        return from_words(values, self.dtype, seen(self.place.flag, records, always))


class BytesChoice(Choice):
    """As ``Choice`` for values that are text, binary or decimals; the word is the number of a kept value."""

    mergeable = False
    kernels = ("operators.kernels.choice", "operators.kernels.kept", "dataflow.state.kernels.interning")

    def __init__(self, place: Place, kind: AggregateKind) -> None:
        super().__init__(place, kind)
        self._kept = KeptBytes(place.word + 1, place.flag, place.dtype)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        if not len(slots):
            return
        self._choose(rows.rows, slots, self._kept.row_numbers(len(slots)), inputs)
        self._kept.settle(rows, slots, inputs[0])

    def read(self, records: Rows, always: int) -> pa.Array:
        return self._kept.values().read(records, seen(self.place.flag, records, always))

    def stored(self) -> list[pa.Field]:
        return [super().stored()[0], pa.field(f"{self.name}.value", self.dtype)]

    def freeze(self) -> Store:
        values, place = self._kept.values(), self.place
        return lambda records, start: [
            read_word(records, place.word, pa.int64()),
            values.read(records, seen(place.flag, records)),
        ]

    def restore(self, records: Rows, columns: Sequence[pa.Array]) -> None:
        records[:, self.place.word] = words(columns[0])
        self._kept.restore(records, columns[1])


def choice(place: Place, kind: AggregateKind) -> Choice:
    """The step for values of the place's type."""
    return Choice(place, kind) if is_word(place.dtype) else BytesChoice(place, kind)
