"""Exact quantiles, interpolated linearly, of the values of a key that are not null.

Quantiles of the same values are columns of one ``Quantiles``, which keeps the values once, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.errors import CheckpointDamaged
from dataflow.state.copy_on_write import CopyOnWriteRows, Readers
from dataflow.state.index import Slots
from dataflow.state.ordered_values import OrderedValues, OrderedView
from operators.steps.step import Fold, Frozen, Rows, frozen_lists, stored_lists

__all__ = ["QuantileColumn", "Quantiles"]

_Numbers = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]


class Quantiles(Fold):
    """The values of an argument, float64 or durations, that are not null; the word of a record is their root.

    Args:
        dtype: the type of the values and of the results.
        word: the word of a record.
        argument: the number of the argument.
        columns: name and ``q`` of each result.
        state: the beginning of the names of its columns in a checkpoint.
    """

    initial = (0,)
    mergeable = False
    kernels = OrderedValues.kernels

    def __init__(
        self, dtype: pa.DataType, word: int, argument: int, columns: Sequence[tuple[str, float]], state: str
    ) -> None:
        self.name = columns[0][0]
        self._state = state
        self.arguments = (argument,)
        self.values = OrderedValues([dtype], word)
        self.columns = [QuantileColumn(self, name, dtype, q) for name, q in columns]

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        (array,) = inputs
        if array.null_count:
            present = array.is_valid()
            slots, array = slots[to_numbers(present)], array.filter(present)
        self.values.add(rows.rows, slots, [array], np.ones(len(slots), np.int64))

    def forget(self, records: Rows, slots: Slots, readers: Readers) -> None:
        self.values.forget(records[slots])

    def stored(self) -> list[pa.Field]:
        return stored_lists(self.values, self._state, ["values"])

    def freeze(self) -> Frozen:
        return frozen_lists(self.values)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        (values,) = self.values.restore(records, columns, self.name)
        if values.null_count:
            raise CheckpointDamaged(f"{self.name}: {values.null_count} values in the checkpoint are null")


class QuantileColumn:
    """One quantile of the values of a ``Quantiles``."""

    def __init__(self, owner: Quantiles, name: str, dtype: pa.DataType, q: float) -> None:
        self.name = name
        self.dtype = dtype
        self._values = owner.values
        self._q = q
        self.uses = [field.name for field in owner.stored()]
        """The columns of a checkpoint that it is read from."""

    def read(self, records: Rows, always: int = 0) -> pa.Array:
        """Return the column of gathered records; null where there is no value."""
        view = self._values.view()
        totals = view.totals(records)
        rank = self._q * np.maximum(totals - 1, 0)
        low = np.floor(rank)
        lower, upper = self._values_of_rank(view, records, low), self._values_of_rank(view, records, np.ceil(rank))
        if pa.types.is_duration(self.dtype):
            return to_array(_between_integers(lower, upper, rank - low), mask=totals == 0).view(self.dtype)
        return to_array(_between_floats(lower, upper, rank - low), mask=totals == 0)

    def _values_of_rank(self, view: OrderedView, records: Rows, ranks: _Floats) -> npt.NDArray[Any]:
        array = view.column(0, view.ranked(records, ranks.astype(np.int64)))
        array = array.view(pa.int64()) if pa.types.is_duration(self.dtype) else array
        return to_numbers(array.fill_null(0))


def _between_integers(lower: _Numbers, upper: _Numbers, part: _Floats) -> _Numbers:
    """Return the integers at ``part`` of the way from ``lower`` to ``upper``, rounded down."""
    gap = upper.view(np.uint64) - lower.view(np.uint64)  # exact: it has 64 bits and no sign
    between: _Numbers = (lower.view(np.uint64) + (gap * part).astype(np.uint64)).view(np.int64)
    return between


def _between_floats(lower: _Floats, upper: _Floats, part: _Floats) -> _Floats:
    """Return the numbers at ``part`` of the way from ``lower`` to ``upper``: exactly ``lower`` if they are equal."""
    with np.errstate(all="ignore"):
        gap = upper - lower
        step = np.where(np.isfinite(gap), lower + gap * part, lower * (1 - part) + upper * part)
    between: _Floats = np.where((part == 0) | (lower == upper), lower, step)
    return between
