"""An operator with state, timers and rows that leave later than they came, for tests on every runner."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import dataflow as flow

__all__ = ["Linger"]


class Linger(flow.Operator):
    """Holds rows back for ``delay`` microseconds, so that many small batches leave together."""

    def __init__(self, context: flow.OperatorContext, *, delay: int = 500) -> None:
        self.context, self.delay = context, delay
        self.held: list[Any] = list(context.restored.tables["held"].to_batches()) if context.restored else []

    def open(self) -> None:
        if self.held:
            self.context.schedule(self.context.clock.now() + self.delay)

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        if not self.held:
            self.context.schedule(self.context.clock.now() + self.delay)
        self.held.append(batch)

    def timer(self, due: int, out: flow.Out) -> None:
        self.finish(out)

    def finish(self, out: flow.Out) -> None:
        for batch in self.held:
            out.emit(batch)
        self.held = []

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(tables={"held": pa.Table.from_batches(self.held, self.context.output_schema)})
