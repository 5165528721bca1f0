"""Minimum and maximum of text, binary and decimals. Text is compared by its bytes: the order of code points."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.state.arrays import byte_ranges, validity
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from dataflow.state.kept import KEPT_KERNELS, KeptBytes
from operators.steps.step import Frozen, Rows, Step, StepPlace, restore_flag, seen

__all__ = ["BytesExtreme"]


class BytesExtreme(Step):
    """The least or greatest value; the word is the number of a stored value."""

    initial = (0,)
    mergeable = False
    kernels = ("operators.kernels.kept", *KEPT_KERNELS)

    def __init__(self, place: StepPlace, *, least: bool) -> None:
        super().__init__(place)
        self._sign = -1 if least else 1
        self._numbers = int(pa.types.is_decimal(place.dtype))
        self._kept = KeptBytes(place.word, place.flag, place.dtype)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        from operators.kernels.kept import fold_bytes

        (array,) = inputs
        place = self.place
        data, offsets = byte_ranges(array)
        what = (place.word, place.flag, self._sign, self._numbers)
        fold_bytes(rows.rows, slots, data, offsets, *validity(array), *self._kept.memory(), *what)
        self._kept.settle(rows, slots, array)

    def shrink(self, rows: CopyOnWriteRows) -> None:
        self._kept.shrink(rows)

    def read(self, records: Rows, always: int) -> pa.Array:
        return self._kept.values().read(records, seen(self.place.flag, records, always))

    def stored(self) -> list[pa.Field]:
        return [pa.field(f"{self.place.state}/value", self.dtype)]

    def freeze(self) -> Frozen:
        values, flag = self._kept.values(), self.place.flag
        return Frozen(
            lambda records, flags: [values.read(records, flags.bitmap(flag))],
            lambda records: values.text_bytes(records, seen(flag, records)),
        )

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        restore_flag(records, self.place.flag, columns, self.name)
        self._kept.restore(records, columns[0])
