"""Aggregates from plain Python functions: the state of a record is an Arrow value of a declared type.

A batch turns the states of its keys into Python values, calls ``add`` for each row, and turns them back. So a state is
checked with the batch that made it, a snapshot needs no Python object, and functions may change a state in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.expressions.custom import PythonAggregate
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from dataflow.state.kept_arrays import KeptArrays
from operators.rows import cuts
from operators.steps.step import Flags, Frozen, Rows, Step, StepPlace, restore_bit, restore_flag

__all__ = ["PythonStep"]

_SHOWN = 80


class PythonStep(Step):
    """An aggregate of a user's functions; the word of a record is the number of its state.

    The arguments are the columns, and whether the row counts if there is a predicate: a boolean column that is null
    for the rows to leave out.
    """

    initial = (0,)
    mergeable = False

    def __init__(self, place: StepPlace, functions: PythonAggregate, *, some_rows: bool) -> None:
        super().__init__(place)
        self._functions = functions
        self._some_rows = some_rows
        self._kept = KeptArrays(place.word, place.flag, functions.state)

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        if self._some_rows:
            counts = inputs[-1].is_valid()
            slots, inputs = slots[to_numbers(counts)], [array.filter(counts) for array in inputs[:-1]]
        arguments = zip(*[array.to_pylist() for array in inputs], strict=True)
        self._change(rows, slots, arguments, self._functions.add, "add")

    def join(self, rows: CopyOnWriteRows, slots: Slots, states: pa.Array) -> None:
        """Merge state i of ``states``, of rows that came later, into the record of ``slots[i]``. The rows are saved."""
        self._change(rows, slots, [(state,) for state in states.to_pylist()], self._functions.merge, "merge")

    def states(self, records: Rows) -> pa.Array:
        """Return the states of ``records``, for ``join``; null where there is none."""
        return self._kept.values().read(records)

    def shrink(self, rows: CopyOnWriteRows) -> None:
        self._kept.shrink(rows)

    def read(self, records: Rows, always: int) -> pa.Array:
        states, finish = self.states(records), self._functions.finish
        if finish is None:
            return states
        present = records[:, 0] & self.place.flag != 0
        results = [finish(state) if has else None for state, has in zip(states.to_pylist(), present, strict=True)]
        return self._converted(results, self.dtype, "finish")

    def stored(self) -> list[pa.Field]:
        present = [] if self._present is None else [self._present]
        return [*present, pa.field(f"{self.place.state}/state", self._functions.state)]

    def freeze(self) -> Frozen:
        values, flag, has_present = self._kept.values(), self.place.flag, self._present is not None

        def columns(records: Rows, flags: Flags) -> list[pa.Array]:
            present = [flags.column(flag)] if has_present else []
            return [*present, values.read(records)]

        return Frozen(columns, lambda records: int(values.read(records).nbytes))

    def restore(self, records: Rows, slots: Slots, columns: Sequence[pa.Array]) -> None:
        *present, states = columns
        if present:
            restore_bit(records, self.place.flag, present[0], self.name)
        else:
            restore_flag(records, self.place.flag, [states], self.name)
        self._kept.restore(records, states)

    @property
    def _present(self) -> pa.Field | None:
        """Return the column that says which keys have a state, if a state may be None."""
        if self._functions.zero is not None:
            return None
        return pa.field(f"{self.place.state}/present", pa.bool_(), nullable=False)

    def _change(
        self,
        rows: CopyOnWriteRows,
        slots: Slots,
        arguments: Iterable[tuple[Any, ...]],
        function: Callable[..., Any],
        role: str,
    ) -> None:
        """Replace the state of ``slots[i]`` by ``function(state, *arguments[i])``, in order of rows."""
        if not len(slots):
            return
        touched, places = np.unique(slots, return_inverse=True)
        records, zero = rows.rows[touched], to_array([self._functions.zero], self._functions.state)
        present = records[:, 0] & self.place.flag != 0
        held = self.states(records).to_pylist()
        states = [state if has else zero[0].as_py() for state, has in zip(held, present, strict=True)]
        for place, values in zip(places.tolist(), arguments, strict=True):
            states[place] = function(states[place], *values)
            if states[place] is None and self._functions.zero is not None:
                raise ValueError(
                    f"{self.name}: {role}(state, ...) returned None; it must return the new state, of type "
                    f"{self._functions.state} (a state may be None only if zero is None)"
                )
        self._kept.put(rows, touched, self._converted(states, self._functions.state, role))

    def _converted(self, values: Sequence[Any], type_: pa.DataType, role: str) -> pa.Array:
        try:
            array = to_array(values, type_)
            if cuts(type_, values):
                raise pa.ArrowInvalid(f"a fraction of {_shortened(values, type_)} would be cut off")
            return array
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
            declared = "returns" if role == "finish" else "state"
            raise ValueError(
                f"{self.name}: {role} returned a value that is no {type_}: {error}; return another value, or declare "
                f"{declared}= with its type"
            ) from error


def _shortened(values: Sequence[Any], type_: pa.DataType) -> str:
    """Return the text of the first value that does not fit."""
    text = repr(next(value for value in values if cuts(type_, [value])))
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
