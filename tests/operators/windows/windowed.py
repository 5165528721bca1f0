"""A windowed aggregate by itself, and a model of the rules of windows that goes row by row and window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from dataflow.contracts.folding import FoldAll
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.window_kinds import Cumulate, Hopping, Tumbling
from dataflow.contracts.windows import EventTime, Window
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit, WindowAggregate
from dataflow.planning.checks import edge_type
from operators.aggregation.combine import CombineOperator
from operators.stateful.columns import is_partial
from operators.windows.aggregate import WindowAggregateOperator
from tests.operators.operating import Emitted, context_of, drained, made

__all__ = ["END", "MERGED", "SCHEMA", "UNMERGED", "Model", "Result", "Row", "Windowed", "plain", "windows_of"]

END = 2**63 - 1
SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "t": pa.timestamp("us")})
MERGED = (
    count().alias("n"),
    col("x").sum().alias("sum"),
    col("x").min().alias("min"),
    col("x").max().alias("max"),
    col("x").mean().alias("mean"),
    col("x").first(by="t").alias("first"),
    col("x").last(by="t").alias("last"),
)
"""Aggregates whose records can be merged."""
UNMERGED = (*MERGED, col("x").count_distinct().alias("distinct"))
"""Aggregates whose records cannot."""
Row = tuple[str, int, int]
Result = tuple[Any, ...]
"""The key, if there are keys; start and end of the window; the aggregates."""


class Windowed:
    """A WindowAggregate with what an engine gives it; the arguments of ``feed`` are rows (key, x, time)."""

    def __init__(
        self,
        window: Window,
        *,
        lateness: int = 0,
        keyed: bool = True,
        aggregations: Sequence[Aggregation] = MERGED,
        fold_first: bool = False,
        restored: Snapshot | None = None,
        groups: range = range(128),
        emit: Emit = Emit.UPDATES,
    ) -> None:
        self.out, self.fold_first = Emitted(), fold_first
        keys = ("k",) if keyed else ()
        self.spec = WindowAggregate(keys, EventTime("t"), window, lateness, tuple(aggregations), emit)
        kind = edge_type(pa.timestamp("us"), window)
        edges = [pa.field("window_start", kind), pa.field("window_end", kind)]
        results = [pa.field(a.name, a.dtype(SCHEMA)) for a in aggregations]
        change = [pa.field("change", pa.int8())] if emit is Emit.CHANGES else []
        output = pa.schema([*[SCHEMA.field(key) for key in keys], *edges, *results, *change])
        self.context = context_of(SCHEMA, output, restored=restored, groups=groups)
        self.operator = made(WindowAggregateOperator(self.context, *self.spec.arguments()), self.context)

    def feed(self, *rows: Row) -> list[Result]:
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
        batch = pa.record_batch(columns, schema=SCHEMA)
        if self.fold_first and self.spec.takes_records:
            batch = self._folded(batch)
        drained(self.operator.process(0, batch, self.out))
        return self._results()

    def advance(self, watermark: int) -> list[Result]:
        drained(self.operator.advance(watermark, self.out))
        return self._results()

    def _folded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        out = Emitted()
        operator = CombineOperator(context_of(SCHEMA, SCHEMA), self.spec)
        operator.folding = FoldAll()
        operator.process(0, batch, out)
        (records,) = out.batches[None]
        assert is_partial(records.schema) or "keys times windows" in operator._choice().why
        return records

    def _results(self) -> list[Result]:
        batches = self.out.batches.pop(None, [])
        return [tuple(map(plain, row.values())) for batch in batches for row in batch.to_pylist()]


def plain(value: Any) -> Any:
    """Times as microseconds."""
    return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def windows_of(window: Window, time: int) -> list[tuple[int, int]]:
    """The windows (start, end) that contain a time, found by looking at all around it."""
    match window:
        case Tumbling(size, offset):
            return windows_of(Hopping(size, size, offset), time)
        case Hopping(period, every, offset):
            near = range((time - period - offset) // every - 1, (time - offset) // every + 2)
            every_window = [(offset + i * every, offset + i * every + period) for i in near]
        case Cumulate(period, every, offset):
            near = range((time - offset) // period - 1, (time - offset) // period + 2)
            steps = range(every, period + 1, every)
            every_window = [(offset + i * period, offset + i * period + step) for i in near for step in steps]
        case _:
            raise AssertionError(window)
    return [(start, end) for start, end in every_window if start <= time < end]


@dataclass
class Model:
    """The rules, row by row and window by window; every call returns what must come out."""

    window: Window
    lateness: int = 0
    keyed: bool = True
    distinct: bool = False
    rows: dict[tuple[Any, ...], list[tuple[int, int]]] = field(default_factory=dict)
    late: int = 0
    partly_late: int = 0
    watermark: int = -(2**62)

    def feed(self, *rows: Row) -> list[Result]:
        changed = set()
        for key, x, time in rows:
            windows = windows_of(self.window, time)
            taken = [w for w in windows if w[1] + self.lateness > self.watermark]
            self.late += not taken
            self.partly_late += 0 < len(taken) < len(windows)
            for start, end in taken:
                group = (*([key] if self.keyed else []), start, end)
                self.rows.setdefault(group, []).append((time, x))
                if end <= self.watermark:
                    changed.add(group)
        return [self._result(group) for group in changed]

    def advance(self, watermark: int) -> list[Result]:
        before, self.watermark = self.watermark, watermark
        return [self._result(group) for group in self.rows if before < group[-1] <= watermark]

    def _result(self, group: tuple[Any, ...]) -> Result:
        rows = self.rows[group]
        values = [x for _, x in rows]
        by_time = sorted(rows, key=lambda row: row[0])
        first = next(x for t, x in rows if t == by_time[0][0])
        last = [x for t, x in rows if t == by_time[-1][0]][-1]
        merged = (len(values), sum(values), min(values), max(values), sum(values) / len(values), first, last)
        return (*group, *merged, *([len(set(values))] if self.distinct else []))
