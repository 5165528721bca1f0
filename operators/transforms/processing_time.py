"""Time by the clock as event time: each batch gets the time at which it is processed, and time moves on without rows.

Time by the clock never goes back, neither when the wall clock does nor after a restore. So no row is late, and the
watermark is the time itself: later rows are at or after it. There is no state.
"""

from __future__ import annotations

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out

__all__ = ["ProcessingTimeOperator"]

_BEAT = 50_000
"""Microseconds between two watermarks while there are no rows."""


class ProcessingTimeOperator(Operator):
    """Adds ``column``, time by the clock, and emits it as the watermark. See the module's text."""

    stateless = True
    makes_time = True

    def __init__(self, context: OperatorContext, column: str) -> None:
        self._context = context
        self._field = context.output_schema.field(column)
        self._passed: int | None = None

    def open(self) -> None:
        self._context.schedule(self._context.clock.now() + _BEAT)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        now = self._context.clock.time()
        time = pa.scalar(now, pa.int64()).cast(self._field.type)
        out.emit(batch.append_column(self._field, pa.repeat(time, batch.num_rows)))
        self._pass_on(now, out)

    def advance(self, watermark: int, out: Out) -> None:
        """Ignore the watermark from upstream, which this operator replaces; the engine forwards the final one."""

    def timer(self, due: int, out: Out) -> None:
        self._pass_on(self._context.clock.time(), out)
        self._context.schedule(self._context.clock.now() + _BEAT)

    def _pass_on(self, time: int, out: Out) -> None:
        if time != self._passed:
            self._passed = time
            out.watermark(time)
