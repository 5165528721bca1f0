"""Operators of a user, awkward keys and unequal inputs on Spark, in one run: all tables are those of a local run."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.spark.runner import SparkRunner
from tests.lingering import Linger


class Join(flow.Operator):
    """Inner join by the first columns; what was paid goes to a side output as well."""

    def __init__(self, context: flow.OperatorContext) -> None:
        left, right = context.input_schemas
        kept = context.restored.tables if context.restored else {}
        self.keys = [left.names[0], right.names[0]]
        self.sides: list[Any] = [kept.get("left", left.empty_table()), kept.get("right", right.empty_table())]

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        new = pa.Table.from_batches([batch])
        self.sides[port] = pa.concat_tables([self.sides[port], new])
        left, right = (new, self.sides[1]) if port == 0 else (self.sides[0], new)
        for joined in left.join(right, *self.keys, join_type="inner").to_batches():
            out.emit(joined)
            out.emit(joined.filter(joined["paid"].is_valid()), tag="paid")

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(tables={"left": self.sides[0], "right": self.sides[1]})


def events(rows: int, start: int, span: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    times = pa.array(np.sort(rng.integers(start, start + span, rows)), pa.timestamp("ms", "Europe/Berlin"))
    return pa.table({"user": rng.integers(0, 9, rows), "ts": times})


ORDERS = pa.table({"customer": [1, 2, 1, 3] * 25, "paid": [None, *range(99)]})
PEOPLE = pa.table({"id": [1, 2, 4], "name": ["ann", "bob", "dan"]})
AWKWARD = pa.table(
    {
        "f": [1.5, None, float("nan"), -0.0, 0.0] * 20,
        "d": [Decimal("1.20"), None, Decimal("-3.00"), None] * 25,
        "c": pa.array([None, "x", "y", "x", ""] * 20).dictionary_encode(),
        "t": pa.array([0, None, 10**15, 0] * 25, pa.timestamp("us", "Europe/Berlin")),
        "u": pa.array([b"a" * 16, None, bytes(16), b"a" * 16] * 25, pa.uuid()),
        "e": pa.nulls(100),
    }
)


def pipeline(folder: Path) -> flow.Pipeline:
    counted = op.count().alias("n")
    with flow.Pipeline("operators") as p:
        ahead, behind = [
            p.source(op.from_arrow(table, splits=2, batch_rows=60), name=name).with_watermark("ts", delay="0s")
            for table, name in ((events(500, 30_000, 90_000), "ahead"), (events(200, 0, 40_000), "behind"))
        ]
        windows = ahead.union(behind).key_by("user").window(op.tumbling("5s")).agg(counted, name="windows")
        windows.sink(op.collect(), name="windows-out")
        orders = p.source(op.from_arrow(ORDERS, splits=2, batch_rows=20), name="orders")
        people = p.source(op.from_arrow(PEOPLE, batch_rows=1), name="people")
        schema = pa.schema([("customer", pa.int64()), ("paid", pa.int64()), ("name", pa.string())])
        joined = orders.key_by("customer").apply(
            Join, people.key_by("id"), schema=schema, sides={"paid": None}, name="joined"
        )
        joined.sink(op.collect(), name="joined-out")
        joined.side("paid").apply(partial(Linger, delay=3_600_000_000), name="long").sink(op.collect(), name="long-out")
        orders.apply(partial(Linger, delay=500), name="short").sink(op.collect(), name="short-out")
        keyed = p.source(op.from_arrow(AWKWARD, splits=2, batch_rows=30), name="awkward")
        for keys in ("f", "d", "ct", "ue"):
            found = keyed.key_by(*keys).agg(counted, emit="final", name=f"by-{keys}")
            found.sink(op.collect(), name=f"by-{keys}-out")
        nobody = keyed.filter(col("f") > 9).key_by("c").agg(counted, emit="final", name="nobody")
        nobody.sink(op.collect(), name="nobody-out")
        clicks = p.source(op.from_arrow(events(240, 0, 60_000), batch_rows=60), name="clicks", parallelism=1)
        lives = clicks.with_watermark("ts", delay="0s").key_by("user").agg(counted, ttl="4s", name="lives")
        lives.as_rows().sink(op.collect(), name="lives-out")
        (folder / "bad.csv").write_text("x,y\n" + "".join(f"{'bad' if y % 7 == 0 else y},{y}\n" for y in range(100)))
        bad = op.read_csv(folder / "bad.csv", schema={"x": "int64"}, on_error="side", batch_rows=20)
        rows = p.source(bad, name="rows")
        rows.sink(op.collect(), name="rows-out")
        rows.side("errors").sink(op.collect(), name="wrong")
    return p


def ordered(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def last_of_user(updates: pa.Table) -> dict[int, int]:
    return dict(zip(updates["user"].to_pylist(), updates["n"].to_pylist(), strict=True))


def test_operators_keys_and_inputs_of_all_kinds_give_what_they_give_locally(spark: Any, tmp_path: Path) -> None:
    local = pipeline(tmp_path).run(parallelism=2)
    there = pipeline(tmp_path).run(SparkRunner(spark, rows_per_trigger=1_500), parallelism=2, max_key_groups=3)
    assert len(there.tables) == 12
    for name, table in local.tables.items():
        assert there.tables[name].schema == table.schema
        if name == "lives-out":  # how many updates precede the last one of a key depends on how batches are cut
            assert last_of_user(there.tables[name]) == last_of_user(table)
            assert max(last_of_user(table).values()) < 240 // 9, "no key has expired"
        else:
            assert ordered(there.tables[name]) == ordered(table), name
            assert there.rows_out[name] == local.rows_out[name]
    assert there.rows_in == local.rows_in
    assert (there.late, there.skipped) == (local.late, local.skipped) == (0, 15)
