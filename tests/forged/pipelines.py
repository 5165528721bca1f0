"""Pipelines whose checkpoints are forged, their inputs, and a file that none of them may read."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from dataflow import col, when
from dataflow.contracts.operator import Operator, OperatorContext, Snapshot
from dataflow.expressions import count
from dataflow.state.keyed_state import KeyedState
from dataflow.store.directory import DirectoryStore
from tests.operators.sources.until_quiet import UntilQuiet

__all__ = ["PIPELINES", "SECRET", "inputs", "prepare"]

SECRET = "the secret of another user"
ROWS = 600


def _rows() -> pa.Table:
    number = np.arange(ROWS)
    return pa.table(
        {
            "k": [f"key {n % 37}" for n in number],
            "c": pa.array([f"colour {n % 5}" for n in number]).dictionary_encode(),
            "x": number * 7 % 101,
            "f": (number % 13) / 4,
            "d": pa.array([int(n) for n in number], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(21, 2)),
            "t": pa.array(number * 1_000_000, pa.timestamp("us")),
        }
    )


def inputs(home: Path) -> None:
    """Files of each format, and one that no pipeline may read."""
    table = _rows()
    for part in range(3):
        piece = table.slice(part * 200, 200)
        plain = piece.select(["k", "x", "f"])
        for folder in ("csv", "json", "parquet", "ipc", "watched"):
            (home / "in" / folder).mkdir(parents=True, exist_ok=True)
        pa.csv.write_csv(plain, home / "in" / "csv" / f"{part}.csv")
        pa.csv.write_csv(plain, home / "in" / "watched" / f"{part}.csv")
        lines = "".join(f'{{"k": "{r["k"]}", "t": "{r["t"].isoformat()}", "x": {r["x"]}}}\n' for r in piece.to_pylist())
        (home / "in" / "json" / f"{part}.jsonl").write_text(lines)
        pq.write_table(piece, home / "in" / "parquet" / f"{part}.parquet", row_group_size=64)
        format_ = pa.ipc.new_stream if part == 1 else pa.ipc.new_file
        with format_(home / "in" / "ipc" / f"{part}.arrow", piece.schema) as writer:
            writer.write_table(piece, max_chunksize=64)
    (home / "home").mkdir()
    (home / "home" / "secret.csv").write_text(f"k,x,f\n{SECRET},1,1.0\n")
    (home / "home" / ".profile").write_text("exit\n")


def keyed(home: Path) -> flow.Pipeline:
    with flow.Pipeline("keyed") as p:
        rows = p.source(op.read_csv(str(home / "in" / "csv" / "*.csv"), batch_rows=20), name="in")
        rows.key_by("k").agg(
            count().alias("n"), col("x").sum(), col("f").mean(), col("k").min().alias("least"),
            col("x").count_distinct(), emit="updates",
        ).sink(op.write_parquet(home / "out"), name="out")  # fmt: skip
    return p


def windowed(home: Path) -> flow.Pipeline:
    with flow.Pipeline("windowed") as p:
        source = op.read_json(str(home / "in" / "json"), batch_rows=20)
        if source.schema.field("t").type != pa.timestamp("us"):
            source = op.read_json(str(home / "in" / "json"), batch_rows=20, schema={"t": pa.timestamp("us")})
        rows = p.source(source, name="in").with_watermark("t", delay="2s", name="time")
        rows.key_by("k").window(op.tumbling("50s")).agg(count().alias("n"), col("x").sum(), col("x").last()).sink(
            op.write_csv(home / "out"), name="out"
        )
    return p


def various(home: Path) -> flow.Pipeline:
    with flow.Pipeline("various") as p:
        rows = p.source(op.read_parquet(home / "in" / "parquet", batch_rows=20), name="in")
        rows.key_by("c", "x").agg(
            col("f").variance(), col("d").sum(), col("k").first().alias("first"), col("k").count_distinct(),
            col("k").arg_min("t").alias("at"), col("f").quantile(0.5, where=col("x") > 2), col("k").to_list("t"),
            emit="final",
        ).sink(op.write_ipc(home / "out"), name="out")  # fmt: skip
        rows.select("c", "x").rebalance().sink(op.collect(), name="kept")
    return p


class Remembers(Operator):
    """A user's operator, which restores what it is given."""

    def __init__(self, context: OperatorContext) -> None:
        self._rows = 0
        if context.restored is not None and isinstance(context.restored.values.get("rows"), int):
            self._rows = int(context.restored.values["rows"])  # type: ignore[arg-type]

    def process(self, port: int, batch: pa.RecordBatch, out: Any) -> None:
        self._rows += batch.num_rows
        out.emit(batch)

    def snapshot(self) -> Snapshot:
        return Snapshot({"rows": self._rows % 1_000_000}, {"seen": pa.table({"rows": [self._rows % 1_000_000]})})


def watching(home: Path) -> flow.Pipeline:
    with flow.Pipeline("watching") as p:
        source = UntilQuiet(
            op.watch(str(home / "in" / "watched"), op.read_csv, splits=2, remember=2, batch_rows=20), 20
        )
        rows = p.source(source, name="in").apply(Remembers, name="user", schema=source.schema)
        rows.rebalance().sink(op.write_json(home / "out"), name="out")
    return p


def generated(home: Path) -> flow.Pipeline:
    with flow.Pipeline("generated") as p:
        made = p.source(op.generate({"id": op.sequence()}, rows=ROWS, splits=2, batch_rows=20), name="in")
        table = p.source(op.from_arrow(_rows().select(["x"]).rename_columns(["id"]), batch_rows=20, splits=2), name="t")
        made.union(table).key_by("id").agg(count().alias("n"), emit="final").sink(op.collect(), name="out")
    return p


def chosen(home: Path) -> flow.Pipeline:
    """Whole last rows, and first and last values of every kind of storage, with and without nulls."""
    with flow.Pipeline("chosen") as p:
        rows = p.source(op.read_ipc(home / "in" / "ipc", batch_rows=20), name="in")
        some = rows.with_columns(maybe=when(col("x") > 50).then(col("k")).otherwise(None))
        some.key_by("c").agg(
            op.latest("k", "f", "maybe", "d", by="t"), col("maybe").last(ignore_nulls=True).alias("known"),
            col("maybe").first().alias("first"), col("k").first(by="x").alias("by"), emit="updates",
        ).sink(op.write_csv(home / "out"), name="out")  # fmt: skip
    return p


def watched(home: Path) -> flow.Pipeline:
    """Directories whose files come in splits of their own formats."""
    with flow.Pipeline("watched") as p:
        parquet = UntilQuiet(op.watch(home / "in" / "parquet", op.read_parquet, remember=1, batch_rows=20), 20)
        ipc = UntilQuiet(op.watch(home / "in" / "ipc", op.read_ipc, splits=2, batch_rows=20), 20)
        first, second = (p.source(source).with_watermark("t", delay="5s") for source in (parquet, ipc))
        rows = first.union(second)
        windows = rows.key_by("k").window(op.tumbling("90s"), lateness="30s")
        windows.agg(count().alias("n"), op.latest("x", "c"), emit="updates").sink(
            op.write_parquet(home / "out"), name="out"
        )
    return p


def _timed(p: flow.Pipeline, home: Path, name: str = "in") -> flow.Stream:
    """The rows of files, with event time, none of them late."""
    rows = p.source(op.read_parquet(home / "in" / "parquet", batch_rows=20), name=name)
    return rows.with_watermark("t", delay="1h", name=f"time of {name}")


def _collect(streams: Iterable[flow.Stream]) -> None:
    for number, stream in enumerate(streams):
        stream.sink(op.collect(net=stream.changes == "signed"), name=f"out {number}")


def joined(home: Path) -> flow.Pipeline:
    """Joins of all rows of a key, of rows that expire, and of signed changes."""
    with flow.Pipeline("joined") as p:
        left = _timed(p, home).with_columns(key=col("x") % 40)
        right = _timed(p, home, "other").filter(col("x") < 50).select("t", key=col("x") % 40, what=col("c"))
        counts = left.key_by("key").agg(n=count(), emit="changes", name="counts")
        _collect(
            [
                left.join(right, on="key", how="full", emit="changes", name="all"),
                left.join(right, on="key", ttl="100s", name="expiring"),
                counts.join(right.select("key", "what"), on="key", name="signed"),
            ]
        )
    return p


def joined_by_time(home: Path) -> flow.Pipeline:
    """Joins by time, in which rows wait for others and for the watermark."""
    with flow.Pipeline("joined_by_time") as p:
        left, right = _timed(p, home), _timed(p, home, "other").select("t", "c", what=col("f"))
        _collect(
            [
                left.join(right, on="c", within=("-9s", "9s"), how="left", name="near"),
                left.join(right.rename({"t": "time"}), on="c", window=op.tumbling("20s"), how="full", name="windows"),
                left.join_asof(right, by="c", name="before"),
                left.join_asof(right, by="c", strategy="forward", tolerance="30s", name="after"),
            ]
        )
    return p


@dataclass(frozen=True)
class Visits(flow.Window):
    """Sessions of a kind of a user."""

    merges = True

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times, times + 50_000_000)


def sessions(home: Path) -> flow.Pipeline:
    """Windows that merge, and those that slide from row to row."""
    asked = {"n": count(), "total": col("x").sum(), "last": col("k").last(by="x"), "all": col("x").to_list()}
    with flow.Pipeline("sessions") as p:
        by_key = _timed(p, home).key_by("k")
        _collect(
            [
                by_key.window(op.session("40s")).agg(asked, name="sessions"),
                by_key.window(op.session("40s"), lateness="5s").agg(n=count(), emit="changes", name="again"),
                by_key.window(op.session("9s"), early=op.after_rows(2), panes="discarding").agg(asked, name="panes"),
                by_key.window(Visits()).agg(asked, name="visits"),
                by_key.window(op.sliding("90s")).agg(n=count(), most=col("f").max(), name="sliding"),
            ]
        )
    return p


def triggered(home: Path) -> flow.Pipeline:
    """Windows with panes, one window of all times, and windows of counts."""
    with flow.Pipeline("triggered") as p:
        by_key, early = _timed(p, home).key_by("k"), op.after_rows(3)
        hopping = op.hopping("60s", every="20s")
        _collect(
            [
                by_key.window(hopping, early=early, late=early, lateness="9s").agg(n=count(), name="panes"),
                by_key.window(op.tumbling("60s"), early=op.after_time("2ms")).agg(n=count(), name="clock"),
                by_key.window(op.global_window(), early=early).agg(most=col("x").max(), name="all times"),
                by_key.window(op.count_window(7)).agg(n=count(), c=col("c").last(by="x"), name="sevens"),
                by_key.window(op.count_window(7, every=2)).agg(n=count(), name="counts"),
            ]
        )
    return p


def ranked(home: Path) -> flow.Pipeline:
    """Rows that are chosen by their order, or because they are the first or the last of their key."""
    with flow.Pipeline("ranked") as p:
        rows = _timed(p, home)
        sums = rows.key_by("k").agg(total=col("x").sum(), emit="changes", name="sums")
        _collect(
            [
                rows.unique("k", "c", name="first"),
                rows.unique("k", ttl="60s", name="first of a minute"),
                rows.unique("k", keep="last", emit="changes", name="last"),
                rows.key_by("c").top(4, by="x", emit="changes", name="top"),
                rows.key_by("c").top(4, by="x", ttl="60s", emit="changes", name="top of a minute"),
                sums.with_columns(group=col("total") % 5).key_by("group").top(2, by="total", name="signed"),
                rows.key_by("c").window(op.tumbling("50s")).top(3, by=["f", "k"], name="windows"),
            ]
        )
    return p


class Keeps(flow.KeyedProcess):
    """Has state of each kind, and timers. Rows with nulls, of a forgery, are left out."""

    count = flow.value_state(pa.int64())
    fresh = flow.value_state(pa.string(), ttl="100s")
    listed = flow.list_state(pa.struct([("x", pa.int64()), ("c", pa.string())]))
    recent = flow.list_state(pa.int64(), ttl="100s")
    by_colour = flow.map_state(pa.string(), pa.int64())
    of_late = flow.map_state(pa.int64(), pa.decimal128(21, 2), ttl="100s")
    rules = flow.shared_map(pa.string(), pa.int64())

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.drop_null().to_pylist():
            self.rules.put(row["k"], row["x"])

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.drop_null().to_pylist():
            self.count.set(self.count.get(0) + 1)
            self.fresh.set(row["c"])
            self.listed.append({"x": row["x"], "c": row["c"]})
            self.recent.append(row["x"])
            self.by_colour.put(row["c"], (self.by_colour.get(row["c"]) or 0) + 1)  # null in some forgeries
            self.of_late.put(row["x"] % 5, row["d"])
            ctx.timers.event(row["t"] + timedelta(seconds=60))
            ctx.timers.clock(datetime(1970, 1, 1) + timedelta(milliseconds=row["x"]))

    def on_timer(self, key: Any, due: Any, ctx: flow.ProcessContext) -> None:
        kept = [*self.by_colour.items(), *self.of_late.items(), *self.listed.get(), *self.recent.get()]
        ctx.emit({"k": key, "n": self.count.get(0), "kept": f"{kept} {self.fresh.get()} {self.rules.get(key)}"})


class KeepsColumns(flow.BatchProcess):
    """Has state of each kind as columns, and timers."""

    count = flow.value_state(pa.int64())
    fresh = flow.value_state(pa.string(), ttl="100s")
    listed = flow.list_state(pa.int64())
    by_colour = flow.map_state(pa.string(), pa.int64(), ttl="100s")

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: Any) -> None:
        self.count.set(slots, rows["x"])
        self.fresh.set(slots, rows["k"])
        self.listed.append(slots, rows["x"])
        self.by_colour.put(slots, rows["k"], rows["x"])
        ctx.timers.event(slots, rows["t"])

    def on_timer(self, slots: Any, dues: pa.Array, ctx: Any) -> None:
        kept = zip(*[state.get(slots).to_pylist() for state in (self.count, self.fresh, self.listed)], strict=True)
        texts = [f"{each} {items}" for each, items in zip(kept, self.by_colour.items(slots).to_pylist(), strict=True)]
        keys = ctx.keys(slots).column(0)
        ctx.emit(pa.RecordBatch.from_arrays([keys, self.count.get(slots), pa.array(texts)], schema=KEPT))


KEPT = pa.schema({"k": pa.string(), "n": pa.int64(), "kept": pa.string()})


def processed(home: Path) -> flow.Pipeline:
    """Process functions of both kinds, with state of all kinds."""
    with flow.Pipeline("processed") as p:
        rows = _timed(p, home).with_columns(c=col("c").cast("string"))
        rules = p.source(op.read_csv(str(home / "in" / "csv" / "*.csv"), batch_rows=40), name="rules")
        by_key = rows.key_by("k")
        _collect(
            [
                by_key.process(Keeps, schema=KEPT, broadcast=rules, name="keys"),
                by_key.process(KeepsColumns, schema=KEPT, name="columns"),
            ]
        )
    return p


class Totals(flow.Stateful):
    """A user's sink, which writes nothing, and has a piece of each kind."""

    def __init__(self, context: OperatorContext) -> None:
        self.totals = KeyedState(pa.schema({"k": pa.string()}), pa.schema({"n": pa.int64()}))
        self.time, self.rows, self.seen = flow.Passed(), 0, pa.table({"k": pa.array([], pa.string())})

    def state(self) -> dict[str, Any]:
        return {
            "totals": flow.Log(self.totals, keys=1),
            "seen": flow.Table(lambda: self.seen, self._see, self.seen.schema, keys=0),
            "rows": flow.Value(self, "rows", int, "greatest"),
            "time": self.time,
            "unit": flow.Fixed("us"),
        }

    def _see(self, rows: pa.Table) -> None:
        self.seen = rows

    def advance(self, watermark: int, out: flow.Out) -> None:
        self.time.advance(watermark)

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.rows += batch.num_rows
        self.seen = pa.table({"k": batch.column("k")})
        slots, _ = self.totals.insert([batch.column("k")])
        self.totals.write(slots, pa.record_batch({"n": batch.column("x")}))


class TotalsSink(flow.Sink):
    """Makes `Totals`."""

    keys = ("k",)

    def writer(self, context: OperatorContext) -> Totals:
        return Totals(context)


def written(home: Path) -> flow.Pipeline:
    """Sinks with state, of the library and of a user."""
    with flow.Pipeline("written") as p:
        rows = _timed(p, home)
        counts = rows.key_by("k").agg(n=count(), emit="changes", name="counts")
        counts.sink(op.upsert_batches(lambda rows, gone: None, keys="k"), name="upserts")
        counts.sink(op.collect(net=True), name="rows")
        rows.select("k", "x", "t").sink(TotalsSink(), name="totals")
    return p


PIPELINES = {
    f.__name__: f
    for f in (
        keyed, windowed, various, watching, generated, chosen, watched,
        joined, joined_by_time, sessions, triggered, ranked, processed, written,
    )
}  # fmt: skip


MODES = ["unaligned-persisted", "aligned", "unaligned"]


def prepare(home: Path, name: str) -> None:
    """Run the pipeline in ``home``, and keep two checkpoints of its middle: the newer one with rows in flight."""
    inputs(home)
    mode = MODES[sorted(PIPELINES).index(name) % 2]
    mode = "unaligned-persisted" if name != "generated" else mode
    checkpoint = flow.Checkpointing(home / "ckpt", every="1ms", keep=1000, mode=mode)
    PIPELINES[name](home).run(flow.SimulatedRunner(3), checkpoint=checkpoint, parallelism=2)
    store = DirectoryStore(home / "ckpt")
    ids = store.checkpoints()
    middle = ids[1:-2] or ids
    flying = [n for n in middle if store.manifest(n).summary.get("in_flight_rows")]
    newest = (flying or middle)[len(flying or middle) // 2]
    print(f"{name}: {store.manifest(newest).summary.get('in_flight_rows')} rows in flight", file=sys.stderr)
    keep = {newest, max([n for n in ids if n < newest], default=newest)}
    keep |= {part.checkpoint for n in keep for part in store.manifest(n).parts}
    for n in ids:
        if n not in keep:
            shutil.rmtree(home / "ckpt" / f"chk-{n:08d}")
