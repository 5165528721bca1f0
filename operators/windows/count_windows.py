"""Windows of so many rows of a key, in the order of arrival.

Row a of a key, from 0 on, is in the windows i with (i + 1) * every - n <= a < (i + 1) * every. A window is complete
with the last of these rows. At the end of the input the first window that is not complete comes out, if rows came after
the window before it.

State: the number of rows of each key, and for each key and window that is not complete a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.untimed import CountWindow
from dataflow.errors import CheckpointDamaged
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.arrays import Numbers
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.aggregation.partials import folded_columns
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.show_state import shown_state
from operators.aggregation.sums import overflow_of
from operators.stateful.columns import WINDOW, key_columns, state_keys

__all__ = ["CountWindowOperator"]

_ENTRIES = 1 << 18
"""The approximate limit for rows times their windows that are folded at a time."""
_COUNT = 1  # the word with the rows of a key


class CountWindowOperator(Stateful):
    """Emits each window of ``window`` when its last row comes.

    Raises: SchemaMismatch when built; OverflowError when a sum of integers exceeds 64 bits, naming key and column.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        window: CountWindow,
        aggregations: Sequence[Aggregation],
        emit: Emit,
    ) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._keys = list(keys)
        self._window = window
        self._aggregations = list(aggregations)
        self._signed = emit is Emit.CHANGES
        self._columns = folded_columns(schema, keys, aggregations)
        self._user_keys = state_keys(key_schema(context.output_schema, keys))
        self._begin()

    def _begin(self) -> None:
        """Begin with empty state."""
        self._records = Records(self._aggregations, self._columns, self._context.name)
        self._counts = KeyedState(self._user_keys, pa.schema([]), words=1)
        self._state = KeyedState(self._user_keys.append(pa.field(WINDOW, pa.int64())), self._records)

    @property
    def kernels(self) -> Sequence[str]:
        return *self._counts.kernels, *self._state.kernels

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return shown_state(spec, snapshot, inputs[0], output)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        return self._process(batch, out) if batch.num_rows else None

    def _process(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        each = -(-self._window.rows // self._window.every)
        size = max(1, _ENTRIES // each)
        keys, rows = key_columns(batch, self._keys), batch.select(self._columns.names)
        for start in range(0, batch.num_rows, size):
            complete = self._fold(rows.slice(start, size), [key.slice(start, size) for key in keys])
            if len(complete):
                out.emit(self._batch(complete))
                self._state.delete(complete)
                yield

    def _fold(self, rows: pa.RecordBatch, keys: Sequence[pa.Array]) -> Slots:
        """Fold rows into their windows; return the windows that are complete, in the order of their first rows here."""
        n, every = self._window.rows, self._window.every
        of_key, _ = self._counts.insert(keys)
        counts = self._counts.records[:, _COUNT]
        arrivals = counts[of_key] + _ranks(of_key)
        np.add.at(counts, of_key, 1)
        first = arrivals // every
        windows = (arrivals + n) // every - first
        entries = np.repeat(np.arange(len(first)), windows)
        numbers = first[entries] + np.arange(len(entries)) - (np.cumsum(windows) - windows)[entries]
        position = to_array(entries)
        slots, _ = self._state.insert([*[key.take(position) for key in keys], to_array(numbers)])
        with self._naming_key(slots):
            self._records.fold(rows.take(position), slots)
        self._state.change(self._records.touched)
        self._records.forget_touched()
        complete = slots[(numbers + 1) * every <= counts[of_key[entries]]]
        distinct, at = np.unique(complete, return_index=True)
        return distinct[np.argsort(at)]

    @contextmanager
    def _naming_key(self, slots: Slots) -> Iterator[None]:
        """Name operator, column and key in the error of a sum that does not fit; row i of it is of ``slots[i]``."""
        try:
            yield
        except SumOverflow as error:
            keys = self._state.keys(slots[error.row : error.row + 1])[: len(self._user_keys)]
            raise overflow_of(self._context.name, error, keys, self._user_keys) from error

    def finish(self, out: Out) -> Iterator[None]:
        """Emit the window of each key that is not complete, and drop the state."""
        slots = self._counts.slots
        counts = self._counts.records[slots, _COUNT]
        begun = counts % self._window.every > 0
        numbers = to_array(counts[begun] // self._window.every)
        last = self._state.find([*self._counts.keys(slots[begun]), numbers])
        for start in range(0, len(last), _ENTRIES):
            out.emit(self._batch(last[start : start + _ENTRIES]))
            yield
        self._begin()

    def _batch(self, slots: Slots) -> pa.RecordBatch:
        *keys, numbers = self._state.keys(slots)
        with self._naming_key(slots):
            values = self._records.read(slots)
        change = [to_array(np.ones(len(slots), np.int8))] if self._signed else []
        arrays = [*keys[: len(self._keys)], numbers, *values, *change]
        return pa.RecordBatch.from_arrays(arrays, schema=self._context.output_schema)

    # --- state

    def state(self) -> Mapping[str, Piece]:
        keys, records = len(self._user_keys), self._records
        state = Log(self._state, keys, owners=records.owners, initial=records.initial)
        return {"state": state, "counts": Log(self._counts, keys)}

    def restored(self) -> None:
        """Raise CheckpointDamaged unless each key has the windows that its rows began."""
        n, every = self._window.rows, self._window.every
        counts = self._counts.records[self._counts.slots, _COUNT]
        begun = np.maximum((counts - 1 + n) // every - counts // every, 0)
        *keys, numbers = self._state.keys(self._state.slots)
        of_key = self._counts.find(keys)
        number, count = to_numbers(numbers), self._counts.records[of_key, _COUNT] if len(of_key) else of_key
        inside = (of_key >= 0) & (number >= count // every) & (number < (count - 1 + n) // every)
        if (counts < 1).any() or not inside.all() or int(begun.sum()) != len(number):
            raise CheckpointDamaged("the windows of the checkpoint contradict its counts of rows")


def _ranks(slots: Slots) -> Numbers:
    """Return how many earlier rows have the slot of each row."""
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    ranks = np.empty(len(slots), np.int64)
    ranks[order] = np.arange(len(slots)) - np.repeat(starts, np.diff(np.append(starts, len(slots))))
    return ranks
