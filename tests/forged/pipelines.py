"""Pipelines whose checkpoints are forged, their inputs, and a file that none of them may read."""

from __future__ import annotations

import shutil
import sys
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
from dataflow.store.directory import DirectoryStore
from tests.operators.sources.until_quiet import UntilQuiet

__all__ = ["PIPELINES", "SECRET", "prepare"]

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


PIPELINES = {f.__name__: f for f in (keyed, windowed, various, watching, generated, chosen, watched)}


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
    for n in ids:
        if n not in keep:
            shutil.rmtree(home / "ckpt" / f"chk-{n:08d}")
