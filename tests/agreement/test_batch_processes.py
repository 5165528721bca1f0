"""Process functions in a batch give what a model in plain Python says: row by row, timer by timer.

The long look, 400 cases: ``pytest -m soak tests/agreement/test_batch_processes.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.execution import Spill
from dataflow.runners.faults import Faults
from tests.seeds import seeds

EPOCH = datetime(1970, 1, 1)
ROWS = pa.schema({"k": pa.string(), "at": pa.timestamp("us"), "x": pa.int64()})
SEEN = pa.schema(
    {"k": pa.string(), "call": pa.string(), "at": pa.timestamp("us"), "xs": pa.list_(pa.int64())}
    | {"watermark": pa.timestamp("us"), "count": pa.int64(), "kept": pa.list_(pa.int64()), "last": pa.int64()}
    | {"fresh": pa.int64(), "limit": pa.int64()}
)
TTL = 40


def moment(time: int) -> datetime:
    return EPOCH + timedelta(microseconds=time)


def number(time: datetime | None) -> int | None:
    return None if time is None else (time - EPOCH) // timedelta(microseconds=1)


def timers_of(x: int, time: int) -> list[tuple[bool, int]]:
    """The timers that a row sets (True) and cancels (False)."""
    set_at = [time + x % 31 - 5] if x % 2 else []
    cancelled = [time + x % 7] if x % 5 == 0 else []
    return [(True, due) for due in set_at] + [(False, due) for due in cancelled]


def rearmed(due: int, watermark: int) -> int | None:
    """The timer that a timer sets, which may be for the past."""
    return due + due % 13 - 3 if due % 3 == 0 else None


class Watched(flow.KeyedProcess):
    """Emits all that it sees, at each call."""

    count = flow.value_state(pa.int64())
    kept = flow.list_state(pa.int64())
    last = flow.map_state(pa.string(), pa.int64())
    fresh = flow.value_state(pa.int64(), ttl=f"{TTL}us")
    limits = flow.shared_map(pa.string(), pa.int64())

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            self.limits.put(row["k"], row["x"])

    def process(self, key: str, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        xs = rows["x"].to_pylist()
        (time,) = set(rows["at"].to_pylist())
        before = self.fresh.get()
        self.count.set(self.count.get(0) + len(xs))
        self.kept.extend(x for x in xs if x % 11 == 0)
        self.last.put("x", xs[-1])
        self.fresh.set(xs[0])
        for x in xs:
            for sets, due in timers_of(x, number(time)):
                (ctx.timers.event if sets else ctx.timers.cancel)(moment(due))
        ctx.timers.clock(EPOCH)  # never fires
        self._show(ctx, key, "rows", time, xs, before)
        if xs[0] % 17 == 0:
            raise ValueError("a row that fails")

    def on_timer(self, key: str, due: datetime, ctx: flow.ProcessContext) -> None:
        again = rearmed(number(due), number(ctx.watermark))
        if again is not None:
            ctx.timers.event(moment(again))
        self._show(ctx, key, "timer", due, [], self.fresh.get())

    def _show(self, ctx: Any, key: str, call: str, at: datetime, xs: list[int], fresh: int | None) -> None:
        row = {"k": key, "call": call, "at": at, "xs": xs, "watermark": ctx.watermark, "count": self.count.get(0)}
        shown = {"kept": self.kept.get(), "last": self.last.get("x"), "fresh": fresh, "limit": self.limits.get(key)}
        ctx.emit(row | shown)


COUNTED = pa.schema(
    {"k": pa.string(), "call": pa.string(), "at": pa.timestamp("us"), "watermark": pa.timestamp("us")}
    | {"x": pa.int64(), "count": pa.int64()}
)


class Counted(flow.BatchProcess):
    """Emits a row for each row and timer, with the number of rows of its key so far."""

    count = flow.value_state(pa.int64())

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        (time,) = set(rows["at"].to_pylist())
        counts = dict(zip(slots.tolist(), self.count.get(slots).fill_null(0).to_pylist(), strict=True))
        for slot, x in zip(slots.tolist(), rows["x"].to_pylist(), strict=True):
            counts[slot] += 1
            for sets, due in timers_of(x, number(time)):
                (ctx.timers.event if sets else ctx.timers.cancel)([slot], [moment(due)])
        self.count.set(list(counts), pa.array(list(counts.values()), pa.int64()))
        self._show(slots, "rows", rows["at"], rows["x"], ctx)

    def on_timer(self, slots: Any, dues: pa.Array, ctx: Any) -> None:
        for slot, due in zip(slots.tolist(), dues.to_pylist(), strict=True):
            if (again := rearmed_later(number(due), number(ctx.watermark))) is not None:
                ctx.timers.event([slot], [moment(again)])
        self._show(slots, "timer", dues, pa.nulls(len(slots), pa.int64()), ctx)

    def _show(self, slots: Any, call: str, at: pa.Array, xs: pa.Array, ctx: Any) -> None:
        calls, marks = pa.array([call] * len(slots)), pa.array([ctx.watermark] * len(slots), pa.timestamp("us"))
        columns = [ctx.keys(slots).column(0), calls, at, marks, xs, self.count.get(slots).fill_null(0)]
        ctx.emit(pa.RecordBatch.from_arrays(columns, schema=COUNTED))


def rearmed_later(due: int, watermark: int) -> int | None:
    """The timer that a timer sets, which is never for the past: that would fire at the next time of any key."""
    return max(due, watermark) + 1 + due % 13 if due % 3 == 0 else None


@dataclass
class Key:
    """The state of a key in the model. ``fails``: whether calls with some rows fail."""

    name: str
    limit: int | None
    rearmed: Callable[[int, int], int | None] = rearmed
    fails: bool = True
    count: int = 0
    kept: list[int] = field(default_factory=list)
    last: int | None = None
    fresh: tuple[int, int] | None = None
    timers: set[int] = field(default_factory=set)
    deferred: set[int] = field(default_factory=set)
    watermark: int | None = None
    shown: list[dict[str, Any]] = field(default_factory=list)

    def show(self, call: str, at: int, xs: list[int], fresh: int | None) -> None:
        row = {"k": self.name, "call": call, "at": moment(at), "xs": xs, "watermark": moment(self.watermark)}
        row |= {"count": self.count, "kept": list(self.kept), "last": self.last, "fresh": fresh, "limit": self.limit}
        self.shown.append(row)

    def fresh_at(self, time: int) -> int | None:
        return None if self.fresh is None or self.fresh[1] + TTL <= time else self.fresh[0]

    def fire(self, due: int, *, is_end: bool) -> None:
        self.timers.discard(due)
        again = self.rearmed(due, self.watermark)
        if again is not None and not is_end:
            (self.deferred if again <= self.watermark else self.timers).add(again)
        self.show("timer", due, [], self.fresh_at(self.watermark))

    def move(self, time: int) -> None:
        """Fire what is due before a row at ``time``: timers set for the past at once, if a timer set them, later."""
        while self.timers and min(self.timers) <= (time if self.watermark is None else self.watermark):
            if self.watermark is None:
                break
            self.fire(min(self.timers), is_end=False)
        while self.watermark is None or self.watermark < time:
            self.watermark = min([time, *self.timers])
            self.timers |= self.deferred
            self.deferred = set()
            while self.timers and min(self.timers) <= self.watermark:
                self.fire(min(self.timers), is_end=False)

    def take(self, time: int, xs: list[int]) -> None:
        self.move(time)
        fresh = self.fresh_at(time)
        if self.fails and xs[0] % 17 == 0:
            return
        self.count += len(xs)
        self.kept += [x for x in xs if x % 11 == 0]
        self.last, self.fresh = xs[-1], (xs[0], time)
        for x in xs:
            for sets, due in timers_of(x, time):
                if sets:
                    self.timers.add(due)
                else:
                    self.timers.discard(due)
                    self.deferred.discard(due)
        self.show("rows", time, xs, fresh)

    def end(self) -> None:
        self.timers |= self.deferred
        while self.timers:
            self.watermark = max(min(self.timers), self.watermark)
            self.fire(min(self.timers), is_end=True)


def model(rows: list[tuple[str, int, int]], new_key: Callable[[str], Key]) -> Iterator[dict[str, Any]]:
    """Yield what is emitted for rows in the order of their source."""
    for name in sorted({k for k, _, _ in rows}):
        key = new_key(name)
        own = sorted([row for row in rows if row[0] == name], key=lambda row: row[1])
        for time, same in groupby(own, key=lambda row: row[1]):
            key.take(time, [x for _, _, x in same])
        key.end()
        yield from key.shown


def random_rows(draw: Random) -> list[tuple[str, int, int]]:
    keys, span = draw.choice([1, 3, 40]), draw.choice([20, 300, 5_000])
    count = draw.choice([1, 7, 80, 400])
    return [(f"k{draw.randrange(keys)}", draw.randrange(span), draw.randrange(1_000)) for _ in range(count)]


def table(rows: list[tuple[str, int, int]]) -> pa.Table:
    ks, ats, xs = ([row[n] for row in rows] for n in range(3))
    return pa.table({"k": ks, "at": pa.array(ats, pa.timestamp("us")), "x": xs}, schema=ROWS)


LIMITS = {f"k{n}": n for n in range(0, 40, 2)}


def watched(draw: Random, rows: list[tuple[str, int, int]]) -> flow.Pipeline:
    with flow.Pipeline("watched") as p:
        source = op.from_arrow(table(rows), batch_rows=draw.choice([1, 9, 100]), splits=draw.choice([1, 2, 3]))
        stream = p.source(source, name="in").with_watermark("at")
        for _ in range(draw.randrange(3)):
            stream = draw.choice([lambda s: s.map(lambda row: row), lambda s: s.filter(flow.col("x") >= 0)])(stream)
        rules = pa.table({"k": list(LIMITS), "x": list(LIMITS.values())})
        ruled = p.source(op.from_arrow(rules, batch_rows=3), name="rules")
        seen = stream.key_by("k").process(Watched, schema=SEEN, broadcast=ruled, on_error="skip", name="watched")
        seen.sink(op.collect(), name="out")
    return p


def watched_in_the_model(rows: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return list(model(rows, lambda name: Key(name, LIMITS.get(name))))


def counted(draw: Random, rows: list[tuple[str, int, int]]) -> flow.Pipeline:
    with flow.Pipeline("counted") as p:
        source = op.from_arrow(table(rows), batch_rows=draw.choice([1, 9, 100]), splits=draw.choice([1, 2, 3]))
        stream = p.source(source, name="in").with_watermark("at")
        seen = stream.key_by("k").process(Counted, schema=COUNTED, name="counted")
        seen.sink(op.collect(), name="out")
    return p


def counted_in_the_model(rows: list[tuple[str, int, int]]) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in ("k", "call", "at", "watermark")} | {"x": x, "count": row["count"]}
        for row in model(rows, lambda name: Key(name, None, rearmed_later, fails=False))
        for x in row["xs"] or [None]
    ]


KINDS = {"keys": (watched, watched_in_the_model), "columns": (counted, counted_in_the_model)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(9, 400))
def test_functions_see_rows_and_timers_in_order(kind: str, seed: int) -> None:
    make, by_the_model = KINDS[kind]
    draw = Random(seed)
    rows = random_rows(draw)
    p = make(draw, rows)
    local = flow.LocalRunner()
    local._spill = Spill(memory=draw.choice([1, 300, 1 << 20]))
    runner = draw.choice([local, flow.SimulatedRunner(seed, Faults(skew=0.3))])
    found = p.run(runner, execution="batch", parallelism=draw.choice([1, 2, 3])).table("out").to_pylist()
    assert sorted(found, key=repr) == sorted(by_the_model(rows), key=repr)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds(1, 12))
def test_functions_see_rows_and_timers_in_order_on_spark(spark: Any, kind: str, seed: int) -> None:
    make, by_the_model = KINDS[kind]
    draw = Random(1_000 + seed)
    rows = random_rows(draw)
    tasks, partitions = draw.choice([1, 2, 3]), draw.choice([1, 2, 4])
    job = make(draw, rows)
    found = job.run(flow.SparkRunner(spark), execution="batch", parallelism=tasks, max_key_groups=partitions)
    assert sorted(found.table("out").to_pylist(), key=repr) == sorted(by_the_model(rows), key=repr)
