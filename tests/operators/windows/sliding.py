"""Sliding windows by themselves, and a model that looks at all rows of a key for each result."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Snapshot
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit, SlidingAggregate
from operators.windows.sliding import SlidingAggregateOperator
from tests.operators.operating import Emitted, context_of, drained, made, stored

__all__ = ["AGGREGATES", "END", "PERIOD", "Model", "Row", "Sliding", "SlidingWindows", "random_steps"]

END = 2**63 - 1
PERIOD = 10
SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "s": pa.string(), "t": pa.timestamp("us")})
AGGREGATES = (
    count().alias("n"),
    col("x").sum().alias("sum"),
    col("x").sum(where=col("x") > 0).alias("positive"),
    col("x").mean().alias("mean"),
    col("x").min().alias("min"),
    col("x").max().alias("max"),
    col("x").first(by="t").alias("first"),
    col("s").last(by="t").alias("last"),
    col("s").last(by="t", ignore_nulls=True).alias("last text"),
    col("s").min().alias("least text"),
    col("s").max(where=col("x") > 0).alias("greatest text"),
    col("x").count_distinct().alias("distinct"),
    col("s").count_distinct(where=col("x") > 0).alias("texts"),
)
Row = tuple[str | None, int | None, str | None, int]
"""Key, number, text, time."""
Result = tuple[Any, ...]
"""The columns of a row, and the aggregates."""
Step = list[Row] | int
"""Rows of a batch, or a watermark."""


class Sliding:
    """The operator with what an engine gives it."""

    def __init__(
        self,
        *,
        period: int = PERIOD,
        lateness: int | None = None,
        keyed: bool = True,
        aggregations: Sequence[Aggregation] = AGGREGATES,
        restored: Snapshot | None = None,
        groups: range = range(128),
        schema: pa.Schema = SCHEMA,
    ) -> None:
        self.out, self.schema = Emitted(), schema
        emit = Emit.FINAL if lateness is None else Emit.CHANGES
        keys = ("k",) if keyed else ()
        spec = SlidingAggregate(keys, EventTime("t"), period, lateness or 0, tuple(aggregations), emit)
        change = [] if lateness is None else [pa.field("change", pa.int8())]
        output = pa.schema([*schema, *[pa.field(a.name, a.dtype(schema)) for a in aggregations], *change])
        self.context = context_of(schema, output, restored=restored, groups=groups)
        self.operator = made(SlidingAggregateOperator(self.context, *spec.arguments()), self.context)

    def feed(self, *rows: Row) -> list[Result]:
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), self.schema.types, strict=True)]
        drained(self.operator.process(0, pa.record_batch(columns, schema=self.schema), self.out))
        return self._results()

    def advance(self, watermark: int) -> list[Result]:
        drained(self.operator.advance(watermark, self.out))
        return self._results()

    def step(self, step: Step) -> list[Result]:
        return self.advance(step) if isinstance(step, int) else self.feed(*step)

    def late(self) -> list[Row]:
        return [_row(row) for row in self.out.take(LATE)]

    def snapshot(self) -> Snapshot:
        return stored(self.operator.snapshot())

    def _results(self) -> list[Result]:
        return [(*_row(row), *row[4:]) for row in self.out.take()]


def _row(row: tuple[Any, ...]) -> Row:
    key, x, s, t = row[:4]
    assert isinstance(t, datetime)
    return key, x, s, (t - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@dataclass
class Model:
    """The rows that were taken, and the results of those before the watermark."""

    period: int = PERIOD
    lateness: int = 0
    keyed: bool = True
    watermark: int | None = None
    rows: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)

    def step(self, step: Step) -> None:
        if isinstance(step, int):
            self.watermark = step
            return
        closed = None if self.watermark is None else self.watermark - self.lateness
        for row in step:
            (self.late if closed is not None and row[3] < closed else self.rows).append(row)

    def shown(self) -> list[Result]:
        """The results before the watermark, in the order of time, ties by arrival."""
        if self.watermark is None:
            return []
        rows = sorted((row for row in self.rows if row[3] < self.watermark), key=lambda row: row[3])
        by_key: dict[object, list[Row]] = {}
        for row in rows:
            by_key.setdefault(self.keyed and row[0], []).append(row)
        times = {key: [row[3] for row in own] for key, own in by_key.items()}
        results = []
        for row in rows:
            key = self.keyed and row[0]
            start = bisect_right(times[key], row[3] - self.period)
            results.append(self.result(row, by_key[key][start : bisect_right(times[key], row[3])]))
        return results

    def result(self, row: Row, window: list[Row]) -> Result:
        numbers = [x for _, x, _, _ in window if x is not None]
        positive = [(x, s) for _, x, s, _ in window if x is not None and x > 0]
        texts = [s for _, _, s, _ in window if s is not None]
        return (
            *row,
            len(window),
            sum(numbers) if numbers else None,
            sum(x for x, _ in positive) if positive else None,
            sum(numbers) / len(numbers) if numbers else None,
            min(numbers, default=None),
            max(numbers, default=None),
            window[0][1],
            window[-1][2],
            texts[-1] if texts else None,
            min(texts, default=None),
            max((s for _, s in positive if s is not None), default=None),
            len(set(numbers)),
            len({s for _, s in positive if s is not None}),
        )


@dataclass
class SlidingWindows:
    """Operator and model side by side; ``again`` restores the operator after each step."""

    lateness: int | None = None
    keyed: bool = True
    again: bool = False
    period: int = PERIOD

    def __post_init__(self) -> None:
        self.operator = Sliding(lateness=self.lateness, keyed=self.keyed, period=self.period)
        self.model = Model(self.period, self.lateness or 0, self.keyed)
        self.net: Counter[Result] = Counter()
        self.late: list[Row] = []
        self.shown: list[Result] = []
        self.held = -(2**63)
        """The watermark passed on before the last step."""

    def step(self, step: Step) -> None:
        """Give both the same; compare what is shown (of signed changes the net), in order without lateness."""
        before = len(self.shown)
        emitted = self.operator.step(step)
        self.model.step(step)
        self.late += self.operator.late()
        expected = self.shown = self.model.shown()
        if self.lateness is None:
            assert emitted == expected[before:]
        else:
            times = [row[3] for row in emitted]
            assert times == sorted(times)
            assert all(time >= self.held for time in times), f"results of {times} are late after {self.held}"
            for *row, weight in emitted:
                self.net[tuple(row)] += weight
            assert +self.net == Counter(expected)
            assert not -self.net
        assert self.late == self.model.late
        if isinstance(step, int) and step != END:
            self.held = self.operator.operator.held(step)
        if self.again:
            self.operator = Sliding(
                lateness=self.lateness, keyed=self.keyed, period=self.period, restored=self.operator.snapshot()
            )


def random_steps(random: Random, steps: int = 40, disorder: int = 12) -> Iterator[Step]:
    """Batches around a time that grows, now and then by much, and watermarks behind it; at last the last one."""
    now, watermark = -30, -(2**40)
    for _ in range(steps):
        now += random.choice([0, 1, 3, 3, 8, 25]) if random.random() < 0.95 else 1000
        if random.random() < 0.5:
            at_once = random.choice([1, 2, 5, 12])
            yield [_random_row(random, now - random.randint(0, disorder)) for _ in range(at_once)]
        else:
            watermark = max(watermark + 1, now - random.randint(0, disorder))
            yield watermark
    yield END


def _random_row(random: Random, time: int) -> Row:
    key = random.choice(["a", "a", "a", "b", None])
    x = None if random.random() < 0.2 else random.randint(-3, 3)
    s = None if random.random() < 0.2 else random.choice(["", "n", "zz", "long enough for memory of its own"])
    return key, x, s, time
