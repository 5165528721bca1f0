"""Text keys that are read as dictionaries: where, and that no one else notices."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import SourceError
from dataflow.planning.encode_columns import encode_columns
from dataflow.planning.prune_columns import prune_columns
from dataflow.protocol.events import Data
from dataflow.runners.faults import Faults
from dataflow.testing import Ledger, ledger_sink
from operators.sources import row_groups
from operators.sources.row_groups import GroupSizes
from tests.forcing import Force
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import simulate

ROWS = 300


def table(rows: int = ROWS, keys: int = 3, seed: int = 0) -> pa.Table:
    draw = random.Random(seed)
    names = [draw.choice([None, "", "é", *(f"k{n}" for n in range(keys))]) for _ in range(rows)]
    columns = {
        "k": pa.array(names, pa.string()),
        "b": pa.array([name and name.encode() for name in names], pa.binary()),
        "u": pa.array([f"unique {n}" for n in range(rows)]),
        "x": pa.array(range(rows), pa.int64()),
        "t": pa.array([n * 50_000 for n in range(rows)], pa.timestamp("us")),
    }
    return pa.table(columns)


def stored(folder: Path, **options: int) -> Path:
    pq.write_table(table(**options), folder / "rows.parquet", row_group_size=37)
    return folder / "rows.parquet"


def counts(stream: flow.Stream | flow.KeyedStream, key: str = "k") -> flow.Stream:
    return stream.key_by(key).agg(n=op.count(), s=col("x").sum(), emit="final")  # type: ignore[union-attr]


def windows(stream: flow.Stream) -> flow.Stream:
    return stream.with_watermark("t").key_by("k").window(op.tumbling("1s")).agg(op.count())


Shape = Callable[[flow.Stream], Any]

ENCODED: dict[str, tuple[Shape, list[str]]] = {
    "a key": (counts, ["k"]),
    "binary": (lambda s: counts(s, "b"), ["b"]),
    "behind a filter and a projection": (lambda s: counts(s.filter(col("x") > 9).select("x", k=col("k"))), ["k"]),
    "under two names": (lambda s: s.with_columns(l=col("k")).key_by("k", "l").agg(op.count()), ["k"]),
    "of windows": (windows, ["k"]),
    "of two aggregates": (lambda s: [counts(s), s.key_by("k").agg(op.count())], ["k"]),
}
PLAIN: dict[str, Shape] = {
    "values that do not repeat": lambda s: counts(s, "u"),
    "a sink reads them, too": lambda s: [counts(s), s.select("k").sink(op.collect())],
    "a condition reads them": lambda s: counts(s.filter(col("k") != "k1")),
    "an expression reads them": lambda s: counts(s.select("x", k=col("k").str.upper())),
    "an aggregate reads them": lambda s: s.key_by("k").agg(col("k").max()),
    "a function takes them": lambda s: counts(s.map_batches(lambda batch: batch)),
    "late rows are read": lambda s: windows(s).side("late").sink(op.collect()),
    "a union": lambda s: counts(s.union(s)),
    "no aggregate": lambda s: s.key_by("k").sink(op.collect()),
}


def encoded(path: Path, shape: Shape) -> list[str]:
    """Return the columns that the source reads as dictionaries."""
    p = flow.Pipeline("encoded")
    shape(p.source(op.read_parquet(path), name="rows"))
    graph = encode_columns(prune_columns(p.graph))
    types = zip(graph.nodes[0].schema.names, graph.nodes[0].schema.types, strict=True)
    found = [name for name, type_ in types if pa.types.is_dictionary(type_)]
    assert list(graph.nodes[0].encoded) == found
    for node, before in zip(graph, p.graph, strict=True):
        assert not any(pa.types.is_dictionary(type_) for type_ in node.declared(None).types)
        assert set(node.declared(None).names) <= set(before.schema.names)
    return found


@pytest.mark.parametrize("type_", [pa.large_string(), pa.large_binary()], ids=str)
def test_large_text_is_read_as_a_dictionary_and_stays_large(type_: pa.DataType, tmp_path: Path) -> None:
    keys = table()["k"].cast(pa.binary()).cast(type_)
    pq.write_table(pa.table({"k": keys, "x": table()["x"]}), tmp_path / "large.parquet", row_group_size=37)
    with flow.Pipeline() as p:
        counts(p.source(op.read_parquet(tmp_path), name="rows")).sink(op.collect(), name="out")
    result = p.run(parallelism=2)
    assert result.tuning.of("dictionary")[0].chosen == "dictionary"
    found = result.table("out")
    assert found.schema.field("k").type == type_
    assert dict(zip(found["k"].to_pylist(), found["n"].to_pylist(), strict=True)) == Counter(keys.to_pylist())


@pytest.mark.parametrize("name", ENCODED)
def test_keys_that_are_only_passed_on_and_counted_are_dictionaries(tmp_path: Path, name: str) -> None:
    shape, expected = ENCODED[name]
    assert encoded(stored(tmp_path), shape) == expected


@pytest.mark.parametrize("name", PLAIN)
def test_text_stays_text_where_dictionaries_would_be_seen_or_not_pay(tmp_path: Path, name: str) -> None:
    assert encoded(stored(tmp_path), PLAIN[name]) == []


def test_a_file_that_cannot_be_read_fails_where_its_rows_are_read(tmp_path: Path) -> None:
    path = stored(tmp_path)
    with flow.Pipeline("damaged") as p:
        counts(p.source(op.read_parquet(path), name="rows")).sink(op.collect(), name="out")
    data = bytearray(path.read_bytes())
    data[4:200] = bytes(196)
    times = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(SourceError, match="damaged somewhere after row 0"):
        p.run()


@pytest.mark.parametrize("combine", ["folded", "unfolded"])
@pytest.mark.parametrize("name", ["a key", "behind a filter and a projection", "binary"])
def test_a_run_gives_what_text_gives(
    tmp_path: Path, name: str, combine: str, force: Force, request: pytest.FixtureRequest
) -> None:
    if combine == "folded":
        request.getfixturevalue("folded")
    force(row_groups, "MOST_ROWS", 100, calls=GroupSizes.splits, giving=lambda splits: len(splits) > 1)
    path = stored(tmp_path)
    found = []
    for source in (op.read_parquet(path), op.from_arrow(pq.read_table(path), batch_rows=50)):
        p = flow.Pipeline("counts")
        stream = ENCODED[name][0](p.source(source, name="rows"))
        assert isinstance(stream, flow.Stream)
        assert stream.schema.field(0).type in (pa.string(), pa.binary())
        stream.sink(op.collect(), name="out")
        result = p.run(flow.LocalRunner(combine=combine == "folded"), parallelism=2).table("out")
        assert result.schema == stream.schema
        found.append(Counter(map(tuple, (row.values() for row in result.to_pylist()))))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("seed", "mode"), each_once_with_seeds(40, ["aligned", "unaligned-persisted", "aligned-timeout"])
)
def test_a_restored_run_gives_what_text_gives_and_keeps_text_in_flight(
    tmp_path: Path, seed: int, mode: str, request: pytest.FixtureRequest
) -> None:
    if seed % 2:
        request.getfixturevalue("folded")
    path, world = stored(tmp_path, seed=seed), Ledger()
    with flow.Pipeline("counts") as p:
        rows = p.source(op.read_parquet(path, batch_rows=5, split_by="row_group"), name="rows")
        counted = rows.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final", name="counts")
        counted.select("n", "s").sink(ledger_sink(world), name="out")
    faults = Faults(crashes=2, crash_at=["step", "recording"], crash_after=[1, 2], skew=0.4)
    attempts = simulate(p, flow.MemoryStore(), seed, faults, mode)
    expected = pq.read_table(path).group_by("k").aggregate([("x", "count"), ("x", "sum")])
    pairs = zip(expected["x_count"].to_pylist(), expected["x_sum"].to_pylist(), strict=True)
    assert sorted(world.rows().elements()) == sorted(pairs)
    for report in (attempt.restored for attempt in attempts if attempt.restored is not None):
        for state in report.in_flight:
            for element in state.elements:
                if isinstance(element, Data):
                    rows: Any = element.rows
                    assert not any(pa.types.is_dictionary(type_) for type_ in rows.schema.types)
