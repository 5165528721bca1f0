"""The clock as event time: each batch gets the time at which it is processed, and time moves on without rows.

Times never go back, neither when the wall clock does nor after a restore. So no row is late, and the watermark is the
time itself: later rows are at or after it.

State: the last time. Losing it could make rows late if the clock went back.
"""

from __future__ import annotations

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.untrusted import Time, parsed

__all__ = ["ProcessingTimeOperator"]

_BEAT = 50_000
"""Microseconds between two watermarks while there are no rows."""


class ProcessingTimeOperator(Operator):
    """Adds ``column``, the time of the clock, and emits it as the watermark. See the module's text."""

    stateless = True
    makes_time = True

    def __init__(self, context: OperatorContext, column: str) -> None:
        self._context = context
        self._field = context.output_schema.field(column)
        self._reached: int | None = None
        self._passed: int | None = None
        if context.restored is not None:
            stored = context.restored.values["reached"]
            self._reached = parsed(Time | None, stored, f"{context.name}: the last time")

    def open(self) -> None:
        self._context.schedule(self._context.clock.now() + _BEAT)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        time = pa.scalar(self._now(), pa.int64()).cast(self._field.type)
        out.emit(batch.append_column(self._field, pa.repeat(time, batch.num_rows)))
        self._pass_on(out)

    def advance(self, watermark: int, out: Out) -> None:
        """Ignore the watermark from upstream, which this operator replaces; the engine forwards the final one."""

    def timer(self, due: int, out: Out) -> None:
        self._now()
        self._pass_on(out)
        self._context.schedule(self._context.clock.now() + _BEAT)

    def snapshot(self) -> Snapshot:
        return Snapshot({"reached": self._reached})

    def _now(self) -> int:
        time = int(self._context.clock.wall() * 1_000_000)
        self._reached = time if self._reached is None else max(time, self._reached)
        return self._reached

    def _pass_on(self, out: Out) -> None:
        if self._reached is not None and self._reached != self._passed:
            self._passed = self._reached
            out.watermark(self._reached)
