"""Windows with triggers by themselves, and a model of them that goes row by row and window by window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes, Panes, Trigger
from dataflow.contracts.windows import EventTime, Window
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.triggered_specs import TriggeredAggregate
from operators.windows.triggered_windows import TriggeredWindowOperator
from tests.operators.operating import Emitted, context_of, drained, made
from tests.operators.windows.windowed import END, SCHEMA, Row, plain, windows_of

__all__ = ["AGGREGATES", "Panel", "Triggered"]

AGGREGATES = (count().alias("n"), col("x").sum().alias("sum"), col("x").to_list().alias("list"))


class Triggered:
    """A TriggeredAggregate with what an engine gives it; rows are (key, x, time)."""

    def __init__(
        self,
        window: Window,
        early: Trigger | None = None,
        late: Trigger | None = None,
        *,
        lateness: int = 0,
        panes: Panes = Panes.ACCUMULATING,
        emit: Emit = Emit.UPDATES,
        aggregations: Sequence[Aggregation] = AGGREGATES,
        restored: Snapshot | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.out, self.due, self.clock = Emitted(), list[int](), clock or ManualClock()
        spec = TriggeredAggregate(
            ("k",), EventTime("t"), window, lateness, tuple(aggregations), emit, "", early, late, panes
        )
        labels = [pa.field(edge, pa.timestamp("us")) for edge in ("window_start", "window_end")]
        if early is not None and emit is not Emit.CHANGES:
            labels += [pa.field("pane", pa.string()), pa.field("pane_index", pa.int64())]
        change = [pa.field("change", pa.int8())] if emit is Emit.CHANGES else []
        values = [pa.field(a.name, a.dtype(SCHEMA)) for a in aggregations]
        output = pa.schema([SCHEMA.field("k"), *labels, *values, *change])
        self.context = context_of(SCHEMA, output, restored=restored, clock=self.clock, due=self.due)
        self.operator = made(TriggeredWindowOperator(self.context, *spec.arguments()), self.context)
        self.operator.open()

    def feed(self, *rows: Row) -> list[tuple[Any, ...]]:
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
        drained(self.operator.process(0, pa.record_batch(columns, schema=SCHEMA), self.out))
        return self._results()

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        drained(self.operator.advance(watermark, self.out))
        return self._results()

    def wait(self, length: int) -> list[tuple[Any, ...]]:
        """Let the clock go on, and call the timers that are due then."""
        self.clock.advance(length)
        now = self.clock.now()
        due = [time for time in self.due if time <= now]
        self.due[:] = [time for time in self.due if time > now]
        for time in sorted(due):
            drained(self.operator.timer(time, self.out))
        return self._results()

    def _results(self) -> list[tuple[Any, ...]]:
        batches = self.out.batches.pop(None, [])
        return [tuple(map(plain, row.values())) for batch in batches for row in batch.to_pylist()]


@dataclass
class _Group:
    rows: list[int] = field(default_factory=list)
    new: list[int] = field(default_factory=list)
    panes: int = 0
    since: int = 0


@dataclass
class Panel:
    """The rules of panes; every call returns those that must come out: group, pane, number, aggregates."""

    window: Window
    early: Trigger | None
    late: Trigger | None
    lateness: int
    discards: bool = False
    groups: dict[tuple[Any, ...], _Group] = field(default_factory=dict)
    watermark: int = -(2**62)
    begun: bool = False
    now: int = 0

    def feed(self, *rows: Row) -> list[tuple[Any, ...]]:
        touched = set()
        for key, x, time in rows:
            for start, end in windows_of(self.window, time):
                if end + self.lateness > self.watermark:
                    group = self.groups.setdefault((key, start, end), _Group())
                    group.since = group.since if group.new else self.now
                    group.rows.append(x)
                    group.new.append(x)
                    touched.add((key, start, end))

        def enough(trigger: Trigger | None, group: _Group) -> bool:
            return isinstance(trigger, AfterRows) and len(group.new) >= trigger.rows

        return self._show(enough, touched)

    def wait(self, length: int) -> list[tuple[Any, ...]]:
        self.now += length
        return self._show(lambda t, group: isinstance(t, AfterTime) and group.since + t.length <= self.now)

    def advance(self, watermark: int) -> list[tuple[Any, ...]]:
        before, self.watermark = self.watermark, watermark
        begun, self.begun = self.begun, True
        shown = [self._pane(key, "on_time") for key in sorted(self.groups) if before < key[2] <= watermark]

        def passes(trigger: Trigger | None, group: _Group) -> bool:
            return isinstance(trigger, AtTimes) and trigger.passes(before if begun else None, watermark)

        shown += self._show(passes)
        over = [key for key in self.groups if watermark == END or key[2] + self.lateness <= watermark]
        shown += [self._pane(key, "late") for key in over if self.groups[key].new]
        for key in over:
            del self.groups[key]
        return shown

    def _show(
        self, judge: Callable[[Trigger | None, _Group], bool], among: set[tuple[Any, ...]] | None = None
    ) -> list[tuple[Any, ...]]:
        shown = []
        for key, group in self.groups.items():
            trigger = self.early if key[2] > self.watermark else self.late or AfterRows(1)
            if group.new and (among is None or key in among) and judge(trigger, group):
                shown.append(self._pane(key, "early" if key[2] > self.watermark else "late"))
        return shown

    def _pane(self, key: tuple[Any, ...], pane: str) -> tuple[Any, ...]:
        group = self.groups[key]
        rows = group.new if self.discards else group.rows
        result = (*key, pane, group.panes, len(rows), sum(rows) if rows else None, list(rows) or None)
        group.panes, group.new = group.panes + 1, []
        return result
