"""The first row of each key: a row comes out if its key is not in the state yet. The state has keys, and no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.chosen_row_specs import Unique
from dataflow.state.keyed_state import KeyedState
from operators.chosen_rows.rows import KeyColumns
from operators.stateful.expiry import KeyExpiry

__all__ = ["UniqueOperator"]


class UniqueOperator(Stateful):
    """Emits the rows whose key is new, at once and unchanged.

    Raises: ValueError for a null event time, if keys expire by it.
    """

    def __init__(self, context: OperatorContext, spec: Unique) -> None:
        self._keys = KeyColumns(context.input_schemas[0], spec.keys)
        self._expiry = None if spec.ttl is None else KeyExpiry(spec.ttl, spec.time, context, Passed())
        ttl = None if self._expiry is None else self._expiry.ttl
        self._state = KeyedState(self._keys.schema, pa.schema([]), ttl=ttl)

    @property
    def kernels(self) -> Sequence[str]:
        return self._state.kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        keys = self._keys.of(batch)
        if self._expiry is None:
            _, fresh = self._state.add_keys(keys)
        else:
            _, fresh = self._expiry.insert(self._state, keys, batch)
            self._expiry.sweep(self._state, batch.num_rows)
        if fresh.all():
            out.emit(batch)
        elif fresh.any():
            out.emit(batch.filter(to_array(fresh)))

    def advance(self, watermark: int, out: Out) -> None:
        if self._expiry is not None:
            self._expiry.advance(watermark, self._state)

    def state(self) -> Mapping[str, Piece]:
        times = {} if self._expiry is None else self._expiry.state()
        return {**times, "state": Log(self._state, len(self._keys.schema))}
