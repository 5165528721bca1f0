"""Running aggregates per key: counts, sums, extremes, means and more, updated with every batch.

With ``Emit.UPDATES`` the output is a changelog (one row for each key a batch touched, or at intervals), with
``Emit.FINAL`` one row a key at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.errors import (
    OTHER_PIPELINE,
    CheckpointDamaged,
    CheckpointMismatch,
    ConfigurationError,
    SchemaMismatch,
    UnknownColumn,
)
from dataflow.expressions import Aggregation
from dataflow.planning.specs import Emit
from dataflow.state.dictionaries import key_schema
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.aggregation.ownership import owned_rows
from operators.aggregation.partials import RECORD, is_partial
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.show_state import shown_state
from operators.aggregation.sums import overflow_of

__all__ = ["AggregateOperator"]

CHUNK = 65_536
"""The largest batch, in rows, of an emission that is split into several batches."""


class AggregateOperator(Operator):
    """Folds rows, or partial records of them (``operators.aggregation.combine``), into one record a key.

    Emission: with ``Emit.UPDATES``, every ``process`` emits one row for each key of its batch, in order of first touch;
    with ``every`` (microseconds) the keys touched since the last emission are emitted by timers, and the rest by
    ``finish``. With ``Emit.FINAL``, ``finish`` emits one row a key, in the order of the keys' first rows, and drops the
    state.

    State: one slot a key; see ``operators.aggregation.records``. Row i of the snapshot's table ``keys`` belongs to row
    i of ``records``. To rescale, concatenate the tables of several subtasks: rows outside the context's key groups are
    dropped.

    Raises: ``UnknownColumn`` and ``SchemaMismatch`` when built, ``CheckpointMismatch`` if the restored state is of
    other aggregates, and ``OverflowError`` when a sum of integers exceeds 64 bits, naming the key and the column.
    """

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        aggregations: Sequence[Aggregation],
        emit: Emit,
        every: int | None = None,
    ) -> None:
        if every is not None and (emit is Emit.FINAL or every <= 0):
            raise ConfigurationError(f"{context.name}: every={every} us needs Emit.UPDATES and a positive interval")
        (schema,) = context.input_schemas
        for key in keys:
            if key not in schema.names:
                raise UnknownColumn(key, schema.names, context.name)
        self._context = context
        self._emit = emit
        self._every = every
        self._timer_set = False
        self._aggregations = list(aggregations)
        self._keys = list(keys)
        self._key_schema = key_schema(context.output_schema, keys)
        self._start()
        self._check_output()
        if context.restored is not None and context.restored.tables:
            self._restore(context.restored)

    def _start(self) -> None:
        """Begin with empty state."""
        self._index = KeyIndex(self._key_schema)
        self._records = Records(self._aggregations, self._context.input_schemas[0], self._context.name)

    @property
    def kernels(self) -> Sequence[str]:
        return *index_kernels(self._key_schema), *self._records.kernels

    def open(self) -> None:
        if len(self._records.touched):
            self._set_timer()

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        return shown_state(spec, snapshot, inputs[0], output)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        slots = self._index.slots([batch.column(key) for key in self._keys])
        try:
            if is_partial(batch.schema):
                self._records.merge(batch.column(RECORD), slots, len(self._index))
            else:
                self._records.fold(batch, slots, len(self._index))
        except SumOverflow as error:
            key = self._index.keys(slots[error.row : error.row + 1])
            raise overflow_of(self._context.name, error, key, self._key_schema) from error
        if self._every is not None:
            self._set_timer()
        elif self._emit is Emit.UPDATES:
            out.emit(self._rows(self._records.touched))
            self._records.forget_touched()

    def timer(self, due: int, out: Out) -> Iterator[None] | None:
        self._timer_set = False
        return self._emit_touched(out) if len(self._records.touched) else None

    def finish(self, out: Out) -> Iterator[None] | None:
        if self._emit is Emit.FINAL:
            return self._emit_all(out)
        return self._emit_touched(out) if len(self._records.touched) else None

    def snapshot(self) -> Snapshot:
        if not len(self._index):
            return Snapshot()
        return Snapshot(
            values={"aggregations": self._described()},
            tables={
                "records": self._records.snapshot(len(self._index)),  # read first: folds must save rows until then
                "keys": self._index.snapshot(),
            },
        )

    def _restore(self, restored: Snapshot) -> None:
        aggregations = restored.values.get("aggregations")
        if aggregations != self._described():
            raise CheckpointMismatch(
                f"{self._context.name}: the checkpoint holds the aggregates {aggregations}, "
                f"the pipeline {self._described()}; {OTHER_PIPELINE}"
            )
        keys, records = restored.tables["keys"], restored.tables["records"]
        if keys.num_rows != records.num_rows:
            raise CheckpointDamaged(
                f"{self._context.name}: the checkpoint is damaged: {keys.num_rows} keys, {records.num_rows} records"
            )
        if keys.schema.types != self._key_schema.types:
            raise CheckpointMismatch(
                f"{self._context.name}: the checkpoint's keys are {keys.schema.types}, the pipeline's "
                f"{self._key_schema.types}; {OTHER_PIPELINE}"
            )
        mine = owned_rows(keys, self._context)
        if not mine.all():
            keys, records = keys.filter(to_array(mine)), records.filter(to_array(mine))
        self._index.restore(keys)
        self._records.restore(records)

    def _described(self) -> list[str]:
        return [aggregation.fingerprint() for aggregation in self._aggregations]

    def _rows(self, slots: Slots) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [*self._index.keys(slots), *self._records.read(slots)], schema=self._context.output_schema
        )

    def _emit_touched(self, out: Out) -> Iterator[None]:
        touched = self._records.touched.copy()
        self._records.forget_touched()
        for start in range(0, len(touched), CHUNK):
            out.emit(self._rows(touched[start : start + CHUNK]))
            yield

    def _emit_all(self, out: Out) -> Iterator[None]:
        for start in range(0, len(self._index), CHUNK):
            slots = np.arange(start, min(start + CHUNK, len(self._index)), dtype=np.int32)
            out.emit(self._rows(slots))
            yield
        self._start()

    def _set_timer(self) -> None:
        if self._every is not None and not self._timer_set:
            self._timer_set = True
            self._context.schedule(self._context.clock.now() + self._every)

    def _check_output(self) -> None:
        expected = [*self._key_schema.types, *self._records.types]
        if self._context.output_schema.types != expected:
            raise SchemaMismatch(
                f"{self._context.name}: keys and aggregates have the types {[str(t) for t in expected]}, but the "
                f"output schema has {[str(t) for t in self._context.output_schema.types]}"
            )
