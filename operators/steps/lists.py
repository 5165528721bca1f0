"""The values of a key as a list: in order of another column, and of arrival."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.arrays import words
from dataflow.state.copy_on_write import CopyOnWriteRows, Readers
from dataflow.state.index import Slots
from dataflow.state.ordered_values import OrderedValues
from operators.steps.step import Frozen, Rows, Step, StepPlace, frozen_lists, stored_lists

__all__ = ["ToList"]

_MOST_ARRIVALS = 1 << 62


class ToList(Step):
    """The list of all values, nulls included; the word of a record is the root of (order, arrival, value) tuples.

    The arguments are the value, the order if there is one, and whether the row counts if there is a predicate: a
    boolean column that is null for the rows to leave out. ``arrival`` counts the rows of this subtask.
    """

    initial = (0,)
    mergeable = False
    kernels = OrderedValues.kernels

    def __init__(self, place: StepPlace, order: pa.DataType | None, *, some_rows: bool) -> None:
        super().__init__(place)
        self._has_order = order is not None
        self._some_rows = some_rows
        orders = [] if order is None else [order]
        self._values = OrderedValues([*orders, pa.int64(), place.dtype.value_type], place.word)
        self._arrivals = 0

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        if self._some_rows:
            counts = inputs[-1].is_valid()
            slots, inputs = slots[to_numbers(counts)], [array.filter(counts) for array in inputs[:-1]]
        value, *order = inputs
        arrivals = np.arange(self._arrivals, self._arrivals + len(slots))
        self._arrivals += len(slots)
        self._values.add(rows.rows, slots, [*order, to_array(arrivals), value], np.ones(len(slots), np.int64))

    def read(self, records: Rows, always: int) -> pa.Array:
        view = self._values.view()
        offsets, nodes = view.listed(records)
        values = view.column(1 + self._has_order, nodes)
        return pa.ListArray.from_arrays(
            to_array(offsets.astype(np.int32)), values, type=self.dtype, mask=to_array(np.diff(offsets) == 0)
        )

    def forget(self, records: Rows, slots: Slots, readers: Readers) -> None:
        self._values.forget(records[slots])

    def stored(self) -> list[pa.Field]:
        orders = ["orders"] if self._has_order else []
        return stored_lists(self._values, self.place.state, [*orders, "arrivals", "values"])

    def freeze(self) -> Frozen:
        return frozen_lists(self._values)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        values = self._values.restore(records, columns, self.name)
        numbers, multiplicities = values[self._has_order], words(columns[-1].flatten())
        arrivals = words(numbers)
        last = int(arrivals.max(initial=-1))
        if numbers.null_count or arrivals.min(initial=0) < 0 or last > _MOST_ARRIVALS or (multiplicities != 1).any():
            raise CheckpointDamaged(f"{self.name}: values of a list in the checkpoint are not numbered, each once")
        self._arrivals = max(self._arrivals, last + 1)
