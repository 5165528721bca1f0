"""Aggregates over signed changes that keep the values themselves: they show the next one when one is taken back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import from_words, words
from dataflow.state.copy_on_write import CopyOnWriteRows, Readers
from dataflow.state.index import Slots
from dataflow.state.ordered_values import OrderedValues
from operators.steps.choice import ChoicePlace, Choosing, ValuePlace
from operators.steps.quantile import Quantiles
from operators.steps.signed import Reversible, SignedStep
from operators.steps.step import Fold, Frozen, Rows, StepPlace, frozen_lists, stored_lists

__all__ = [
    "SignedChoice",
    "SignedChosenColumn",
    "SignedDistinct",
    "SignedExtreme",
    "SignedList",
    "SignedQuantiles",
]


class _SignedValues(SignedStep):
    """A step whose word is the root of its values, those of ``types``."""

    initial = (0,)
    kernels = OrderedValues.kernels
    lists: Sequence[str] = ("values",)
    """The names of the lists of a checkpoint, one for each type."""

    def __init__(self, place: StepPlace, types: Sequence[pa.DataType]) -> None:
        super().__init__(place)
        self.values = OrderedValues(types, place.word)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        *columns, weights = inputs
        _add(self.values, rows, slots, columns, weights, counted=columns[0])

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        return _vacant(records, self.place.word)

    def forget(self, records: Rows, slots: Slots, readers: Readers) -> None:
        self.values.forget(records[slots])

    def stored(self) -> list[pa.Field]:
        return stored_lists(self.values, self.place.state, self.lists)

    def freeze(self) -> Frozen:
        return frozen_lists(self.values)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        self.values.restore(records, columns, self.name)


class SignedExtreme(_SignedValues):
    """The least or the greatest value; nulls do not count."""

    def __init__(self, place: StepPlace, *, least: bool) -> None:
        super().__init__(place, place.types)
        self._least = least

    def read(self, records: Rows, always: int) -> pa.Array:
        view = self.values.view()
        return view.column(0, view.least(records) if self._least else view.greatest(records))


class SignedDistinct(_SignedValues):
    """The number of different values; nulls do not count."""

    def __init__(self, place: StepPlace) -> None:
        super().__init__(place, place.types)

    def read(self, records: Rows, always: int) -> pa.Array:
        return from_words(self.values.view().distinct(records), pa.int64())


class SignedList(_SignedValues):
    """The list of all values, nulls included, by the order and then by value."""

    lists = ("orders", "values")

    def __init__(self, place: StepPlace, *, some_rows: bool) -> None:
        super().__init__(place, [place.types[1], place.types[0]])
        self._some_rows = some_rows

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        value, order = inputs[:2]
        counted = inputs[2] if self._some_rows else None
        _add(self.values, rows, slots, [order, value], inputs[-1], counted)

    def read(self, records: Rows, always: int) -> pa.Array:
        view = self.values.view()
        offsets, nodes = view.listed(records)
        times = np.maximum(view.multiplicities(nodes), 0)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(times)])[offsets]
        values = view.column(1, np.repeat(nodes, times))
        return pa.ListArray.from_arrays(
            to_array(ends.astype(np.int32)), values, type=self.dtype, mask=to_array(np.diff(ends) == 0)
        )


class SignedQuantiles(Quantiles, Reversible):
    """Quantiles of values that may be taken back. The last argument has the weights."""

    def __init__(
        self,
        dtype: pa.DataType,
        word: int,
        argument: int,
        columns: Sequence[tuple[str, float]],
        state: str,
        weight: int,
    ) -> None:
        super().__init__(dtype, word, argument, columns, state)
        self.arguments = (argument, weight)
        self._word = word

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        values, weights = inputs
        _add(self.values, rows, slots, [values], weights, counted=values)

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        return _vacant(records, self._word)


class SignedChoice(Fold, Reversible):
    """The rows of ``first``, ``last``, ``arg_min`` or ``arg_max``, by their order and then by their values.

    Rows whose order is null come after all others, for both ends; ``arg_min`` and ``arg_max`` skip them.

    Args:
        place: where its state lies.
        order: number and type of the argument that rows are compared by.
        counted: the number of an argument that is null in rows to skip; None: all rows count.
        weight: the number of the argument with the weights.
    """

    initial = (0,)
    mergeable = False
    kernels = OrderedValues.kernels

    def __init__(
        self,
        choosing: Choosing,
        place: ChoicePlace,
        places: Sequence[ValuePlace],
        order: tuple[int, pa.DataType],
        counted: int | None,
        weight: int,
    ) -> None:
        self.name = places[0].name
        number, type_ = order
        self._counts = [*([number] if choosing.skips_null else []), *([] if counted is None else [counted])]
        self.arguments = (number, *[place.argument for place in places], *self._counts, weight)
        self._word, self._width = place.word, len(places)
        self.first = choosing.least
        types = [pa.int8() if pa.types.is_null(place.dtype) else place.dtype for place in places]
        self.values = OrderedValues([pa.bool_(), type_, *types], place.word)
        ordered = "order is null" if self.first else "order is valid"
        self._shared = [f"{place.state}/{name}" for name in (ordered, "order", "multiplicities")]
        self._values = [f"{value.state}/values" for value in places]
        self.columns = [
            SignedChosenColumn(self, value, i, [*self._shared, own])
            for i, (value, own) in enumerate(zip(places, self._values, strict=True))
        ]

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        order, weights = inputs[0], inputs[-1]
        values = [array.cast(pa.int8()) if pa.types.is_null(array.type) else array for array in inputs[1:-1]]
        values, counts = values[: self._width], values[self._width :]
        ordered = order.is_null() if self.first else order.is_valid()
        counted = None
        for array in counts:
            counted = array if counted is None else _both(counted, array)
        _add(self.values, rows, slots, [ordered, order, *values], weights, counted)

    def vacant(self, records: Rows) -> npt.NDArray[np.bool_]:
        return _vacant(records, self._word)

    def forget(self, records: Rows, slots: Slots, readers: Readers) -> None:
        self.values.forget(records[slots])

    def stored(self) -> list[pa.Field]:
        *orders, multiplicities = self._shared
        return self.values.stored([*orders, *self._values, multiplicities])

    def freeze(self) -> Frozen:
        return frozen_lists(self.values)

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        self.values.restore(records, columns, self.name)


class SignedChosenColumn:
    """The value of the chosen row in one column. ``uses`` are the columns of a checkpoint that it is read from."""

    def __init__(self, choice: SignedChoice, place: ValuePlace, number: int, uses: Sequence[str]) -> None:
        self.uses = uses
        self.name = place.name
        self.dtype = place.dtype
        self._choice = choice
        self._number = number

    def read(self, records: Rows, always: int = 0) -> pa.Array:
        """Return the column of gathered records."""
        if pa.types.is_null(self.dtype):
            return pa.nulls(len(records))
        view = self._choice.values.view()
        return view.column(2 + self._number, view.least(records) if self._choice.first else view.greatest(records))


def _add(
    values: OrderedValues,
    rows: CopyOnWriteRows,
    slots: Slots,
    columns: Sequence[pa.Array],
    weights: pa.Array,
    counted: pa.Array | None,
) -> None:
    """Add the weights of rows to the multiplicities of their values; rows that are null in ``counted`` are left out."""
    if counted is not None and counted.null_count:
        present = counted.is_valid()
        slots, weights = slots[to_numbers(present)], weights.filter(present)
        columns = [column.filter(present) for column in columns]
    values.add(rows.rows, slots, columns, words(weights))


def _both(left: pa.Array, right: pa.Array) -> pa.Array:
    """Return a column that is null where ``left`` or ``right`` is."""
    present = to_numbers(left.is_valid()) & to_numbers(right.is_valid())
    return to_array(present, mask=~present)


def _vacant(records: Rows, word: int) -> npt.NDArray[np.bool_]:
    vacant: npt.NDArray[np.bool_] = records[:, word] == 0
    return vacant
