"""Shapes with event time: windows of all lengths and times, in chains, late rows, rows without a time, timers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from dataflow import col
from tests.agreement.data import generated
from tests.agreement.running import FEW
from tests.agreement.shapes.scene import Scene, Shape

__all__ = ["TIMED"]

WINDOW_OF_USER, WINDOW_OF_VALUE = ("user", "window_start"), ("value", "window_start")
TIMES = [pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "America/New_York"), pa.timestamp("ns")]


def clicks(seed: int = 7, rows: int = 600, disorder: int = 6, type_: pa.DataType = TIMES[1]) -> pa.Table:
    """Ten rows a second from before 1970 on, out of order by up to ``disorder`` seconds."""
    draw = np.random.default_rng(seed)
    ticks = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[type_.unit]
    seconds = np.arange(rows) / 10 - 20 - draw.random(rows) * disorder
    user = pa.array([f"u{n}" for n in draw.integers(0, 9, rows)]).dictionary_encode()
    value = pa.array(draw.integers(-9, 9, rows), mask=draw.random(rows) < 0.1)
    times = pa.array(np.floor(seconds * ticks).astype(np.int64)).cast(type_)
    return pa.table({"row": range(rows), "user": user, "value": value, "ts": times})


def timed(scene: Scene, delay: str = "6s", splits: int = 1) -> flow.Stream:
    source = op.from_arrow(clicks(rows=scene.clicks), batch_rows=40, splits=splits)
    return scene.shared(source, f"clicks in {splits}").with_watermark("ts", delay=delay)


def windows(scene: Scene) -> None:
    """Windows of times of every unit and zone, nobody late."""
    table = clicks(rows=scene.clicks)
    for type_ in TIMES:
        table = table.append_column(str(type_), clicks(rows=scene.clicks, type_=type_)["ts"])
    source = scene.read(op.from_arrow(table, batch_rows=40, splits=2))
    for type_ in TIMES:
        cut = source.with_watermark(str(type_), delay="60s").key_by("user").window(op.tumbling("7s", offset="3s"))
        last = op.latest("row", col("value").alias("last"), by="row")
        scene.show(cut.agg(last, n=op.count(), first=col("value").first("row")), str(type_))


def aggregates(scene: Scene) -> None:
    """All sorts of aggregates of windows, by keys of several columns."""
    time = "timestamp[us, tz=Asia/Kolkata]"
    rows = scene.read(op.from_arrow(generated(seed=9), splits=2, batch_rows=33)).filter(col(time).is_not_null())
    asked = {name: one.aggregation for name, one in FEW.items()} | {"texts": col("string").count_distinct()}
    asked |= {"list": col("string").to_list("n"), "p90": col("price").quantile(0.9, where=col("bool"))}
    cut = rows.with_watermark(time, delay="1000000h").key_by("k", "date32[day]").window(op.tumbling("90d"))
    scene.show(cut.agg(**asked), near=True)


def late(scene: Scene) -> None:
    """Rows that come too late: counted, as a stream, and counted again by key."""
    cut = timed(scene, "1s").key_by("user").window(op.tumbling("3s"))
    found = cut.agg(n=op.count(), s=col("value").sum(), name="late windows")
    scene.show(found, late=True)
    scene.show(found.side("late"), "late", late=True)
    missed = found.side("late").key_by("user").agg(n=op.count(), rows=col("row").max(), emit="final")
    scene.show(missed, "late by user", late=True)
    again = found.side("late").key_by("value").window(op.tumbling("3s"), lateness="4s")
    scene.show(again.agg(n=op.count(), name="late again"), "windows of late rows", last=WINDOW_OF_VALUE, late=True)


def allowed(scene: Scene) -> None:
    """Lateness that is allowed: results once more for what it brings, and late rows none the less."""
    cut = timed(scene, "1s").key_by("user").window(op.tumbling("2s"), lateness="1500ms")
    found = cut.agg(n=op.count(), values=col("value").count_distinct(), name="allowed windows")
    scene.show(found, last=WINDOW_OF_USER, late=True)
    scene.show(found.side("late"), "late", late=True)
    unasked = timed(scene, "0s").key_by("user").window(op.tumbling("5s"), lateness="2s")
    scene.show(unasked.agg(n=op.count()), "without late rows", last=WINDOW_OF_USER, late=True)


def patient(scene: Scene) -> None:
    """Allowed lateness that nobody exceeds: the last result of a window is settled."""
    cut = timed(scene, "1s", splits=2).key_by("user").window(op.tumbling("2s"), lateness="60s")
    scene.show(cut.agg(n=op.count(), s=col("value").sum()), last=WINDOW_OF_USER)


def waiting(scene: Scene) -> None:
    """Windows that come out once, after the rows they may still take, and feed others that wait in their turn."""
    rows = timed(scene, "500ms")
    cut = rows.key_by("user").window(op.tumbling("2s"), lateness="3s")
    first = cut.agg(n=op.count(), s=col("value").sum(), emit="final", name="waited")
    behind = first.key_by("n").window(op.tumbling("6s", offset="1s"), lateness="1s")
    second = behind.agg(users=op.count(), most=col("s").max(), emit="final", name="waited again")
    third = second.key_by("users").window(op.tumbling("20s")).agg(c=op.count(), n=col("n").max(), name="third")
    scene.show(first, "first", late=True)
    scene.show(first.side("late"), "late at first", late=True)
    scene.show(second, "second", late=True)
    scene.show(second.side("late"), "late at second", late=True)
    scene.show(third, "third", late=True)


def chained(scene: Scene) -> None:
    """Windows over windows over windows, by other keys, and aggregates without time behind them."""
    rows = timed(scene, splits=2)
    short = rows.key_by("user").window(op.tumbling("2s")).agg(n=op.count(), s=col("value").sum(), name="short")
    longer = short.key_by("n").window(op.tumbling("6s")).agg(users=op.count(), n_most=col("s").max(), name="longer")
    longest = longer.key_by("users").window(op.tumbling("30s")).agg(c=op.count(), m=col("n_most").max())
    scene.show(short, "short")
    scene.show(longer, "longer")
    scene.show(longest, "longest")
    scene.show(longer.key_by("n").agg(w=col("window_end").max(), emit="final"), "final")
    scene.show(short.key_by("user").agg(n=col("n").sum(), emit="updates"), "running", last=("user",))


def chained_late(scene: Scene) -> None:
    """Late at the first stage, on time at the second."""
    first = timed(scene, "500ms").key_by("user").window(op.tumbling("2s")).agg(n=op.count(), name="one")
    second = first.key_by("n").window(op.tumbling("10s")).agg(c=op.count(), name="two")
    scene.show(second, late=True)
    scene.show(second.side("late"), "late at two", late=True)
    scene.show(first.side("late"), "late at one", late=True)


def renamed(scene: Scene) -> None:
    """Event time through functions, other names, filters before and behind."""
    source = scene.shared(op.from_arrow(clicks(rows=scene.clicks), batch_rows=40, splits=2), "clicks in 2")
    rows = source.filter(col("value").is_not_null())
    at = rows.with_columns(at=col("ts").cast("timestamp[us]")).with_watermark("at", delay="10s", name="at")
    kept = at.select("user", "row", moment=col("at")).filter(col("row") % 7 != 0)
    many = kept.flat_map(lambda row: [row] * (row["row"] % 3)).map_batches(lambda batch: batch)
    scene.show(many.key_by("user").window(op.tumbling("4s")).agg(n=op.count(), last=col("moment").max()))


def several(scene: Scene) -> None:
    """Windows over sources that come together, at different times, in files and in memory."""
    table = clicks(seed=8)
    pq.write_table(table, scene.folder / "clicks.parquet", row_group_size=100)
    file = scene.read(op.read_parquet(scene.folder / "clicks.parquet", batch_rows=64), "file")
    memory = scene.read(op.from_arrow(clicks(seed=9, rows=100), batch_rows=9), "memory")
    columns = table.schema.names
    streams = [s.with_watermark("ts", delay="7s").with_columns(user=col("user").cast("string")) for s in (file, memory)]
    both = streams[0].select(*columns).union(streams[1].select(*columns))
    scene.show(both.key_by("user").window(op.tumbling("5s")).agg(n=op.count(), s=col("value").sum()))
    spread = both.rebalance().filter(col("row") % 2 == 0)
    scene.show(spread.key_by("value").window(op.tumbling("15s")).agg(n=op.count()), "spread")


def timeless(scene: Scene) -> None:
    """Rows without an event time, left out or set aside."""
    table = clicks(rows=120)
    gaps = table.set_column(3, "ts", pa.array([None if n % 11 == 0 else t for n, t in enumerate(table["ts"])]))
    rows = scene.read(op.from_arrow(gaps, batch_rows=15))
    for policy in ("skip", "side"):
        known = rows.with_watermark("ts", delay="6s", on_error=policy, name=f"timeless {policy}")
        scene.show(known.key_by("user").window(op.tumbling("5s")).agg(n=op.count()), policy)
        if policy == "side":
            scene.show(known.side("errors"), "set aside")


def bids(scene: Scene) -> None:
    """Generated bids out of order, in small batches, some too late."""
    recipes = {
        "auction": op.integers(0, 12),
        "price": op.integers(1, 10_000),
        "channel": op.choice(["web", "app", None], weights=[6, 3, 1]),
        "at": op.event_times("2026-01-01", rate="50/s", disorder="3s"),
    }
    rows = scene.read(op.generate(recipes, rows=600, seed=4, batch_rows=20)).with_watermark("at", delay="1s")
    cut = rows.key_by("auction", "channel").window(op.tumbling("4s"))
    found = cut.agg(n=op.count(), most=col("price").max(), first=col("price").first(), name="bids")
    scene.show(found, late=True)
    scene.show(found.side("late"), "late", late=True)
    scene.show(found.key_by("channel").window(op.tumbling("8s")).agg(m=col("most").max()), "by channel", late=True)


class Sessions(flow.Operator):
    """Rows of a user that come within two seconds of each other, brought out when the watermark has left them behind.

    State: the rows of sessions that go on.
    """

    def __init__(self, context: flow.OperatorContext) -> None:
        self.open_rows = context.restored.tables["rows"] if context.restored else context.input_schemas[0].empty_table()
        self.schema = context.output_schema

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.open_rows = pa.concat_tables([self.open_rows, pa.Table.from_batches([batch])])

    def advance(self, watermark: int, out: flow.Out) -> Iterator[None]:
        rows = sorted(zip(*(self.open_rows[c].to_pylist() for c in ("user", "us", "row")), strict=True))
        found: list[list[Any]] = []
        for user, us, row in rows:
            if found and found[-1][0] == user and us - found[-1][2] <= 2_000_000:
                found[-1][2:] = us, [*found[-1][3], row]
            else:
                found.append([user, us, us, [row]])
        done = [session for session in found if session[2] + 2_000_000 < watermark]
        gone = {row for session in done for row in session[3]}
        kept = [n for n, row in enumerate(self.open_rows["row"].to_pylist()) if row not in gone]
        self.open_rows = self.open_rows.take(pa.array(kept, pa.int64()))
        for user, start, end, of in done:
            out.emit(pa.record_batch([[user], [start], [end], [len(of)]], schema=self.schema))
            yield

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(tables={"rows": self.open_rows})


def sessions(scene: Scene) -> None:
    """An operator of a user that acts on watermarks, behind a shuffle and by itself."""
    schema = pa.schema({"user": pa.string(), "start": pa.int64(), "end": pa.int64(), "n": pa.int64()})
    rows = timed(scene, splits=2).filter(col("row") % 5 == 0)
    flat = rows.select("row", user=col("user").cast("string"), us=col("ts").cast("timestamp[us]").cast("int64"))
    found = flat.key_by("user").apply(Sessions, schema=schema, name="sessions")
    scene.show(found)
    scene.show(found.key_by("n").agg(c=op.count(), emit="final"), "by length")


class Beats(flow.Operator):
    """Counts rows and says so whenever a timer rings, and at the end."""

    def __init__(self, context: flow.OperatorContext) -> None:
        self.context = context
        self.waiting = context.restored.values["waiting"] if context.restored else 0

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.waiting += batch.num_rows
        self.context.schedule(self.context.clock.now() + 50_000)

    def timer(self, due: int, out: flow.Out) -> None:
        self.finish(out)

    def finish(self, out: flow.Out) -> None:
        if self.waiting:
            out.emit(pa.record_batch({"n": [self.waiting]}))
            self.waiting = 0

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot({"waiting": self.waiting})


def timers(scene: Scene) -> None:
    """An operator with timers on the wall, whose rows add up."""
    rows = timed(scene, splits=2)
    beats = rows.key_by("user").apply(Beats, schema=pa.schema({"n": pa.int64()}), name="beats")
    scene.show(beats.with_columns(all=col("n") * 0).key_by("all").agg(n=col("n").sum(), emit="final"))


TIMED: list[Shape] = [
    windows,
    aggregates,
    late,
    allowed,
    patient,
    waiting,
    chained,
    chained_late,
    renamed,
    several,
    timeless,
    bids,
    sessions,
    timers,
]
