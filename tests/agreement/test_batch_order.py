"""Where a word goes by arrival, a batch goes by event time, then by the order of the source.

The long look: ``pytest -m soak tests/agreement/test_batch_order.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.execution import Spill
from dataflow.runners.faults import Faults
from tests.seeds import seeds

Row = dict[str, Any]


def random_table(draw: Random) -> pa.Table:
    """Rows with few times, so that many are equal, and numbers in the order of the source."""
    count = draw.choice([1, 5, 60, 300])
    rows = [{"k": draw.choice("abc"), "at": draw.randrange(6), "v": draw.randrange(3), "n": n} for n in range(count)]
    schema = pa.schema({"k": pa.string(), "at": pa.int64(), "v": pa.int64(), "n": pa.int64()})
    table = pa.Table.from_pylist(rows, schema)
    return table.set_column(1, "at", table["at"].cast(pa.timestamp("s")))


def by_key(rows: list[Row]) -> dict[str, list[Row]]:
    """The rows of each key in the order of a batch."""
    ordered = sorted(rows, key=lambda row: row["at"])
    return {k: [row for row in ordered if row["k"] == k] for k in sorted({row["k"] for row in rows})}


def shown(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def first(stream: flow.Stream) -> flow.Stream:
    return stream.unique("k", name="made").select("n")


def first_model(rows: list[Row]) -> list[Row]:
    return [{"n": own[0]["n"]} for own in by_key(rows).values()]


def last(stream: flow.Stream) -> flow.Stream:
    return stream.unique("k", keep="last", name="made").select("n")


def last_model(rows: list[Row]) -> list[Row]:
    return [{"n": own[-1]["n"]} for own in by_key(rows).values()]


def top(stream: flow.Stream) -> flow.Stream:
    return stream.key_by("k").top(2, by="v", name="made").select("n", "rank")


def top_model(rows: list[Row]) -> list[Row]:
    ranked = [sorted(own, key=lambda row: -row["v"])[:2] for own in by_key(rows).values()]
    return [{"n": row["n"], "rank": at + 1} for own in ranked for at, row in enumerate(own)]


def top_of_windows(stream: flow.Stream) -> flow.Stream:
    return stream.key_by("k").window(op.tumbling("3s")).top(1, by="v", name="made").select("n")


def top_of_windows_model(rows: list[Row]) -> list[Row]:
    every = [(own, half) for own in by_key(rows).values() for half in (0, 1)]
    cut = [[row for row in own if row["at"].second // 3 == half] for own, half in every]
    return [{"n": max(own, key=lambda row: row["v"])["n"]} for own in cut if own]


def counted(stream: flow.Stream) -> flow.Stream:
    return stream.key_by("k").window(op.count_window(2)).agg(n=col("n").sum(), name="made").drop("window_index")


def counted_model(rows: list[Row]) -> list[Row]:
    found = []
    for k, own in by_key(rows).items():
        found += [{"k": k, "n": own[at]["n"] + own[at + 1]["n"]} for at in range(0, len(own) - 1, 2)]
        found += [{"k": k, "n": own[-1]["n"]}] if len(own) % 2 else []
    return found


def chosen(stream: flow.Stream) -> flow.Stream:
    asked = {"first": col("n").first(), "last": col("n").last(), "least": col("n").arg_min("v")}
    asked |= {"before": col("n").first(by="v"), "listed": col("n").to_list()}
    return stream.key_by("k").agg(asked, name="made")


def chosen_model(rows: list[Row]) -> list[Row]:
    found = []
    for k, own in by_key(rows).items():
        least = min(own, key=lambda row: row["v"])["n"]
        listed = [row["n"] for row in own]
        found.append(
            {"k": k, "first": listed[0], "last": listed[-1], "least": least, "before": least, "listed": listed}
        )
    return found


WORDS = [
    (first, first_model),
    (last, last_model),
    (top, top_model),
    (top_of_windows, top_of_windows_model),
    (counted, counted_model),
    (chosen, chosen_model),
]
STEPS: list[Callable[[flow.Stream], flow.Stream]] = [
    lambda s: s.map(lambda row: row),
    lambda s: s.map_batches(lambda batch: [batch.slice(0, 1), batch.slice(1)]),
    lambda s: s.flat_map(lambda row: [row]),
    lambda s: s.filter(col("n") >= 0),
    lambda s: s.with_columns(w=col("v") + 1).drop("w"),
    lambda s: s.lookup(pa.table({"k": list("abc"), "z": [1, 2, 3]}), on="k").select("k", "at", "v", "n"),
    lambda s: s.rebalance(),
    lambda s: s.unique("n"),
]


@pytest.mark.parametrize("seed", seeds(3, 40))
@pytest.mark.parametrize(("word", "model"), WORDS, ids=lambda each: each.__name__)
def test_words_go_by_time_and_then_by_the_source(word: Any, model: Any, seed: int) -> None:
    draw = Random(f"{word.__name__} {seed}")
    table = random_table(draw)
    with flow.Pipeline("ordered") as p:
        source = op.from_arrow(table, batch_rows=draw.choice([1, 7, 100]), splits=draw.choice([1, 2, 3]))
        stream = p.source(source, name="in").with_watermark("at")
        for step in draw.sample(STEPS, draw.randrange(4)):
            stream = step(stream)
        word(stream).sink(op.collect(), name="out")
        stream.sink(op.collect(), name="rows")
    local = flow.LocalRunner()
    local._spill = Spill(memory=draw.choice([1, 300, 1 << 20]))
    runner = draw.choice([local, flow.SimulatedRunner(seed, Faults(skew=0.3))])
    found = p.run(runner, execution="batch", parallelism=draw.choice([1, 2, 3]))
    assert shown(found.table("out")) == sorted(map(repr, model(table.to_pylist())))
    assert shown(found.table("rows").select(table.schema.names)) == shown(table)


def test_rows_of_two_sources_are_in_the_order_of_the_sources() -> None:
    at = pa.array([0, 0], pa.timestamp("s"))
    with flow.Pipeline("two") as p:
        streams = [
            p.source(op.from_arrow(pa.table({"at": at, "n": [2 * i, 2 * i + 1]}), batch_rows=1)).with_watermark("at")
            for i in range(3)
        ]
        united = streams[2].union(streams[1], streams[0])
        united.agg(ns=col("n").to_list()).sink(op.collect(), name="out")
    for runner in ["local", flow.SimulatedRunner(3, Faults(skew=0.5))]:
        found = p.run(runner, execution="batch", parallelism=2).table("out").to_pylist()
        assert found == [{"ns": [0, 1, 2, 3, 4, 5]}]
