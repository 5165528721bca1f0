"""The first row of each key: a row comes out if its key is not in the state yet. The state has keys, and no rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.chosen_row_specs import Unique
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.keyed_state import KeyedState
from operators.chosen_rows.rows import KeyColumns, RowTimes
from operators.stateful.time_units import TimeUnit

__all__ = ["SWEPT", "SWEPT_A_ROW", "SWEPT_AT_ONCE", "UniqueOperator"]

SWEPT, SWEPT_A_ROW, SWEPT_AT_ONCE = 1024, 2, 8192
"""Slots that are searched for expired keys: after a batch, for each of its rows, and at a watermark."""


class UniqueOperator(Stateful):
    """Emits the rows whose key is new, at once and unchanged.

    Raises: ValueError for a null event time, if keys expire by it.
    """

    def __init__(self, context: OperatorContext, spec: Unique) -> None:
        self._context = context
        self._spec = spec
        self._keys = KeyColumns(context.input_schemas[0], spec.keys)
        unit = TimeUnit.of_time(context.input_schemas[0], None if spec.ttl is None else spec.time)
        self._times = RowTimes(spec.time, context.clock, context.name, unit)
        self._state = KeyedState(self._keys.schema, pa.schema([]), ttl=unit.ttl(spec.ttl))

    @property
    def kernels(self) -> Sequence[str]:
        return self._state.kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        keys = self._keys.of(batch)
        if self._spec.ttl is None:
            _, fresh = self._state.add_keys(keys)
        else:
            times = self._times.of(batch)
            _, fresh = self._state.insert(keys, np.maximum(times, self._times.now), times)
            self._state.expire(self._times.now, SWEPT + SWEPT_A_ROW * batch.num_rows)
        if fresh.all():
            out.emit(batch)
        elif fresh.any():
            out.emit(batch.filter(to_array(fresh)))

    def advance(self, watermark: int, out: Out) -> None:
        if self._spec.ttl is not None and self._times.advance(watermark) and watermark < MAX_WATERMARK:
            self._state.expire(self._times.now, SWEPT_AT_ONCE)

    def state(self) -> Mapping[str, Piece]:
        times = {} if self._spec.ttl is None else self._times.state
        return {**times, "state": Log(self._state, len(self._keys.schema))}
