"""Random pipelines over streaming DataFrames give the rows of a local run, in one run or in several.

The rows of both sources are cut at random into files, the files into micro-batches and runs, and each micro-batch into
partitions. The last rows come long after all others, so what is over before them has come out. The long look::

    pytest -m soak tests/runners/spark/test_random_streams_of_dataframes.py
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import StoreError
from tests.agreement.process_functions import WindowSums, WindowSumsInColumns
from tests.runners.spark.test_streams_of_dataframes import DDL, LAST, put, settled
from tests.seeds import in_soak

SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "n": pa.int64(), "at": pa.timestamp("us")})
DISORDER = 3_000_000
"""Microseconds by which rows may be out of order; no row is late."""


def rows_of_source(draw: Random) -> pa.Table:
    """Rows of some keys, of which null and the empty text are two, and one last row of each."""
    size, keys = draw.choice([1, 40, 500]), ["a", "b", "", None, *[f"key {n}" for n in range(draw.choice([0, 60]))]]
    at = [n * 200_000 - draw.randrange(DISORDER) for n in range(size)]
    table = {
        "k": [draw.choice(keys) for _ in range(size)] + keys,
        "x": [draw.choice([None, draw.randrange(-9, 9)]) for _ in range(size)] + [0] * len(keys),
        "n": [draw.randrange(1_000) for _ in range(size)] + [1] * len(keys),
        "at": pa.array(at + [LAST] * len(keys), pa.timestamp("us")),
    }
    return pa.table(table, schema=SCHEMA)


Shape = Callable[[Random, flow.Stream, flow.Stream], flow.Stream]


def length(draw: Random) -> int:
    return draw.choice([1, 5, 30])


def window_of(draw: Random) -> flow.Window:
    size = length(draw)
    tumbling, hopping = op.tumbling(f"{size}s"), op.hopping(f"{2 * size}s", every=f"{size}s")
    return draw.choice([tumbling, hopping, op.cumulate(f"{4 * size}s", every=f"{size}s")])


def aggregates(draw: Random) -> dict[str, Any]:
    x, n = col("x"), col("n")
    asked = {
        "rows": op.count(),
        "sum": x.sum(),
        "least": n.min(),
        "most": x.max(),
        "several": n.count_distinct(),
        "best": n.arg_max("n"),
        "some": x.sum(where=n % 2 == 0),
    }
    return {name: asked[name] for name in draw.sample(sorted(asked), draw.randint(1, len(asked)))}


def windows(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    keyed = one.key_by(*draw.choice([("k",), ("k", "n")]))
    return keyed.window(window_of(draw)).agg(**aggregates(draw))


def windows_of_windows(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    size = length(draw)
    counts = one.key_by("k").window(op.tumbling(f"{size}s")).agg(rows=op.count())
    return counts.key_by("rows").window(op.tumbling(f"{4 * size}s")).agg(keys=op.count())


def sessions(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    both = one.union(two) if draw.random() < 0.5 else one
    return both.key_by("k").window(op.session(f"{draw.choice([300, 1_500])}ms")).agg(**aggregates(draw))


def sliding(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    return one.key_by("k").window(op.sliding(f"{length(draw)}s")).agg(rows=op.count(), sum=col("n").sum())


def joined(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    how = draw.choice(["inner", "left", "right", "full"])
    right = two.select(k=col("k"), m=col("n"), then=col("at"))
    pairs = one.join(right, on="k", how=how, within=("-700ms", "300ms"))
    return pairs.filter(col("at").is_not_null())


def unions(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    return one.union(two.filter(col("x") > 0)).key_by("k").window(window_of(draw)).agg(**aggregates(draw))


def net(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    both = one.union(two) if draw.random() < 0.5 else one.rebalance()
    return both.key_by("k").agg(**aggregates(draw), emit="changes")


def processed(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    schema = pa.schema([("k", pa.string()), ("end", pa.timestamp("us")), ("total_n", pa.int64())])
    function = draw.choice([WindowSums, WindowSumsInColumns])
    sums = one.select("k", "n", "at").key_by("k").process(partial(function, ("k",), length(draw)), schema=schema)
    return sums.select(k=col("k"), at=col("end"), total=col("total_n"))


def plain(draw: Random, one: flow.Stream, two: flow.Stream) -> flow.Stream:
    return draw.choice([one, one.rebalance()]).filter(col("n") % 3 != 0).with_columns(twice=col("x") * 2)


SHAPES: list[Shape] = [windows, windows_of_windows, sessions, sliding, joined, unions, net, processed, plain]


def pipeline(seed: int, left: pa.Table, right: pa.Table, out: Path) -> flow.Pipeline:
    """Some shapes side by side; the same for the same seed. Rows go to files below ``out``, net rows are collected."""
    draw = Random(seed)
    with flow.Pipeline("random streams") as p:
        one = p.source(op.from_arrow(left, batch_rows=50), name="left").with_watermark("at", delay="4s")
        two = p.source(op.from_arrow(right, batch_rows=50), name="right").with_watermark("at", delay="4s")
        for number, shape in enumerate(draw.sample(SHAPES, 4)):
            found = shape(draw, one, two)
            sink = op.collect(net=True) if shape is net else op.write_parquet(out / f"{number}")
            found.sink(sink, name=f"{number} {shape.__name__}")
        for name, stream in (("left", one), ("right", two)):
            stream.filter(col("n") % 7 == 0).sink(op.write_parquet(out / name), name=f"some of {name}")
    return p


def cut(draw: Random, table: pa.Table, files: int) -> list[pa.Table]:
    """Cut a table into so many parts, some of them empty, of which only the last has the last rows."""
    places = sorted(draw.randint(0, table.num_rows - 70) for _ in range(files - 1)) if table.num_rows > 70 else []
    bounds = [0, *places, table.num_rows]
    return [table.slice(start, end - start) for start, end in pairwise(bounds)]


def streamed(spark: Any, folder: Path, draw: Random) -> Any:
    frame = spark.readStream.schema(DDL.replace("x bigint", "x bigint, n bigint"))
    frame = frame.option("maxFilesPerTrigger", draw.randint(1, 3)).parquet(str(folder))
    return frame.repartition(draw.randint(2, 4)) if draw.random() < 0.5 else frame


def written(folder: Path) -> dict[str, Any]:
    """The settled rows of each output; those without rows are left out, because such a sink writes no file."""
    found: dict[str, Any] = {}
    for each in folder.iterdir():
        with suppress(StoreError):
            found[each.name] = settled(op.read_committed(each))
    return {name: rows for name, rows in found.items() if rows}


@pytest.mark.parametrize("seed", in_soak(*range(24)))
def test_random_pipelines_over_dataframes_give_what_threads_give(seed: int, spark: Any, tmp_path: Path) -> None:
    draw = Random(seed)
    tables = {"left": rows_of_source(draw), "right": rows_of_source(draw)}
    local = pipeline(seed, *tables.values(), tmp_path / "local").run(parallelism=1)
    assert local.late == 0
    parts = {name: cut(draw, table, 6) for name, table in tables.items()}
    lives = sorted(draw.sample(range(1, 6), draw.randint(0, 2)))
    in_one_life = any(" net" in name for name in local.outputs)  # a later life collects only its own rows
    ends = [6] if in_one_life else [*lives, 6]
    found = None
    for start, end in pairwise([0, *ends]):
        for name, own in parts.items():
            (tmp_path / name).mkdir(exist_ok=True)
            for number in range(start, min(end, len(own))):
                put(tmp_path / name, number, own[number])
        frames = {name: streamed(spark, tmp_path / name, draw) for name in tables}
        runner = flow.SparkRunner(spark, sources=frames, state_memory=draw.choice([0, 1 << 20, 512 << 20]))
        made = pipeline(seed, *tables.values(), tmp_path / "spark")
        found = made.run(runner, max_key_groups=3, checkpoint=flow.Checkpointing(tmp_path / "job"))
        assert found.late == 0
    assert written(tmp_path / "spark") == written(tmp_path / "local")
    assert found is not None
    for name, table in local.tables.items():
        assert settled(found.table(name)) == settled(table), name
