"""Whose columns are which, by a checkpoint alone: no operator and no pipeline is needed to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.operator import Snapshot
from dataflow.runtime.restore.find_checkpoint import states_of
from dataflow.state.parts import resolved

AT = pa.array(range(0, 400_000_000, 1_000_000), pa.timestamp("us"))
ROWS = pa.table({"k": [f"k{i % 7}" for i in range(400)], "x": range(400), "at": AT})
AGGREGATES = [op.count(), col("x").sum().alias("total"), col("x").arg_max("at"), col("x").last(by="at")]
AGGREGATES.append(col("x").quantile(0.5))


class Visits(flow.KeyedProcess):
    seen = flow.value_state(pa.int64())
    kept = flow.value_state(pa.string(), ttl="1h")
    pages = flow.map_state(pa.string(), pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.seen.set(rows.num_rows)
        self.kept.set(key)
        self.pages.put(key, 1)


def checkpoint(path: Path) -> dict[str, Snapshot]:
    """The state of each operator at the last periodic checkpoint of a job."""
    with flow.Pipeline("owners") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=20), name="in").with_watermark("at")
        keyed = rows.key_by("k")
        results = {
            "running": keyed.agg(*AGGREGATES, emit="changes", name="running"),
            "panes": keyed.window(op.tumbling("1m")).agg(*AGGREGATES, name="panes"),
            "sliding": keyed.window(op.sliding("1m")).agg(op.count(), col("x").sum(), name="sliding"),
            "sessions": keyed.window(op.session("1m")).agg(*AGGREGATES, name="sessions"),
            "counts": keyed.window(op.count_window(9)).agg(*AGGREGATES, name="counts"),
            "function": keyed.process(Visits, schema=pa.schema({"k": pa.string()}), name="function"),
        }
        for name, stream in results.items():
            stream.sink(op.collect(), name=f"out {name}")
    p.run(flow.SimulatedRunner(3), parallelism=1, checkpoint=flow.Checkpointing(path, every="5ms", keep=50))
    store = flow.DirectoryStore(path)
    manifest = store.manifest(store.checkpoints()[-2])
    found: dict[str, Snapshot] = {}
    for state in states_of(manifest, lambda part: store.read(manifest.checkpoint, part)).values():
        found |= state.operators
    return found


def test_a_checkpoint_says_whose_the_columns_of_each_log_are(tmp_path: Path) -> None:
    operators = checkpoint(tmp_path / "ckpt")
    whole = {a.identity() for a in AGGREGATES}
    owners = {name: operators[name].rules["state"].owners for name in operators if "state" in operators[name].rules}
    assert {name: set(each) for name, each in owners.items()} == {
        **dict.fromkeys(["running", "panes", "sessions", "counts"], whole),
        "sliding": {"count()", "col('x').sum()"},
        "function": {"seen"},
    }
    assert owners["sliding"] == {"count()": [], "col('x').sum()": ["x"]}, "made of rows"
    function = operators["function"].rules
    assert function["state kept"].owners == {"kept": ["value"]}
    assert set(function["state pages"].owners["pages"]) == {"entry", "value", "number"}
    for name, of_operator in owners.items():
        parts = cast(Sequence[Mapping[str, pa.Table]], operators[name].logs["state"])
        columns = {column for part in parts for table in part.values() for column in table.column_names}
        assert columns.issuperset([column for each in of_operator.values() for column in each]), name
    assert operators["running"].rules["shown"].owners == {a.identity(): [a.identity()] for a in AGGREGATES}
    table = resolved(cast(Any, operators["running"].logs["state"]))["keys"]
    count, total = (table[owners["running"][each][0]].to_pylist() for each in ("count()", "col('x').sum()"))
    rows = sum(count)
    assert rows
    assert sum(total) == sum(range(rows))
