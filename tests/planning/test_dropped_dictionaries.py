"""A text key whose values stop repeating becomes text on the way, and no answer changes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import SystemClock
from dataflow.contracts.source import END, SourceContext
from dataflow.runners.faults import Faults
from dataflow.testing import Ledger, ledger_sink
from operators.sources import row_groups
from operators.sources.parquet import ParquetSource
from operators.sources.row_groups import GroupSizes
from tests.forcing import Force
from tests.seeds import each_once_with_seeds, seeds
from tests.simulation.jobs import simulate


def table(draw: random.Random, rows: int, distinct: float, number: int = 0) -> pa.Table:
    """Return the rows of row group ``number``, of whose keys about the share ``distinct`` occurs once."""
    names = [
        f"once {draw.random()}" if draw.random() < distinct else draw.choice([None, "", "é", "k0", "k1"])
        for _ in range(rows)
    ]
    return pa.table(
        {
            "k": pa.array(names, pa.string()),
            "b": pa.array([name and name.encode() for name in names], pa.binary()),
            "x": pa.array([draw.randrange(100) for _ in range(rows)], pa.int64()),
            "t": pa.array([(number * rows + n) * 50_000 for n in range(rows)], pa.timestamp("us")),
        }
    )


def stored(folder: Path, draw: random.Random, *shares: float, rows: int = 40) -> Path:
    """Write row groups of ``rows`` rows whose keys are distinct to these shares."""
    groups = [table(draw, rows, share, number) for number, share in enumerate(shares)]
    with pq.ParquetWriter(folder / "rows.parquet", groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    return folder / "rows.parquet"


def batches(source: Any, context: SourceContext) -> list[pa.RecordBatch]:
    found = []
    for split in source.splits():
        reader = source.reader(split, None, context)
        while (batch := reader.poll(1 << 30)) is not END:
            found.append(batch)
        reader.close()
    return found


def is_text(folder: Path, sizes: list[int], shares: list[float]) -> list[bool]:
    """Whether the key is text in each batch of two files with row groups of these sizes and shares."""
    draw = random.Random(1)
    for name in ("a", "b"):
        groups = [table(draw, size, share) for size, share in zip(sizes, shares, strict=True)]
        with pq.ParquetWriter(folder / f"{name}.parquet", groups[0].schema) as writer:
            for group in groups:
                writer.write_table(group)
    source = op.read_parquet(folder, batch_rows=1).encoded(["k"])
    found = batches(source, SourceContext("rows", 0, 1, SystemClock()))
    return [pa.types.is_string(batch.schema.field("k").type) for batch in found]


def test_the_small_last_row_group_of_a_file_is_not_enough_to_give_a_dictionary_up(tmp_path: Path) -> None:
    assert not any(is_text(tmp_path, [40, 40, 6], [0.0, 0.0, 1.0]))


def test_small_row_groups_count_together(tmp_path: Path) -> None:
    found = is_text(tmp_path, [40, *[12] * 5], [0.0, *[1.0] * 5])
    assert found[:40] == [False] * 40
    assert all(found[90:])


def types_of(path: Path, **options: Any) -> list[str]:
    """Return for each batch of column ``k`` whether it is text or a dictionary."""
    source = op.read_parquet(path, **options).select(["k", "x"]).encoded(["k"])
    context = SourceContext("rows", 0, 1, SystemClock())
    found = batches(source, context)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert rows == pq.read_table(path, columns=["k", "x"]).to_pylist()
    return ["text" if pa.types.is_string(batch.schema.field("k").type) else "dictionary" for batch in found]


def test_text_follows_from_the_first_row_group_with_too_many_entries(tmp_path: Path) -> None:
    path = stored(tmp_path, random.Random(1), 0.0, 0.0, 0.9, 0.0)
    kinds = ["dictionary", "dictionary", "text", "text"]
    assert types_of(path, split_by="row_group") == kinds
    assert types_of(path, batch_rows=40) == kinds


def test_row_groups_of_one_batch_have_one_type(tmp_path: Path) -> None:
    assert types_of(stored(tmp_path, random.Random(1), 0.0, 0.9, 0.0)) == ["text"]
    assert types_of(stored(tmp_path, random.Random(1), 0.0, 0.1, 0.0)) == ["dictionary"]


def test_a_batch_across_the_change_is_text(tmp_path: Path) -> None:
    path = stored(tmp_path, random.Random(1), 0.0, 0.9, 0.0)
    assert types_of(path, batch_rows=30) == ["dictionary", "text", "text", "text"]


def test_small_batches_of_a_row_group_that_repeats_stay_dictionaries(tmp_path: Path) -> None:
    path = stored(tmp_path, random.Random(1), 0.0, 0.05, rows=200)
    assert set(types_of(path, batch_rows=5)) == {"dictionary"}


def test_a_dictionary_that_grows_is_measured_by_the_rows_so_far(tmp_path: Path) -> None:
    draw = random.Random(1)
    late = pa.concat_tables([table(draw, 100, 0.0), table(draw, 10_000, 1.0)])
    with pq.ParquetWriter(tmp_path / "a.parquet", late.schema, dictionary_pagesize_limit=512) as writer:
        writer.write_table(table(draw, 400, 0.0))
        writer.write_table(late)
    kinds = types_of(tmp_path / "a.parquet", batch_rows=100)
    assert kinds[:5] == ["dictionary"] * 5
    assert set(kinds[20:]) == {"text"}


def test_a_column_that_the_user_named_stays_a_dictionary(tmp_path: Path) -> None:
    path = stored(tmp_path, random.Random(1), 0.0, 0.9)
    assert set(types_of(path, dictionary=["k"], split_by="row_group")) == {"dictionary"}


def test_the_next_file_is_read_as_text_at_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    stored(tmp_path / "a", random.Random(1), 0.0, 0.9)
    stored(tmp_path / "b", random.Random(2), 0.0)
    source = op.read_parquet([tmp_path / "a" / "rows.parquet", tmp_path / "b" / "rows.parquet"]).encoded(["k"])
    assert isinstance(source, ParquetSource)
    last = batches(source, SourceContext("rows", 0, 1, SystemClock()))[-1]
    assert pa.types.is_string(last.schema.field("k").type)


def test_the_result_says_that_a_column_became_text(tmp_path: Path) -> None:
    path = stored(tmp_path, random.Random(1), 0.0, 0.9, 0.9)
    with flow.Pipeline() as p:
        p.source(op.read_parquet(path), name="rows").key_by("k").agg(n=op.count()).sink(op.collect())
    planned, dropped = p.run().tuning.of("dictionary", "rows")
    assert (planned.chosen, dropped.chosen) == ("dictionary", "text from then on")
    assert dropped.values["rows"] == 40


@dataclass(frozen=True)
class Passed(flow.Spec):
    """A user's operator that only passes rows on, so its text may come as a dictionary."""

    stateful = False
    row_wise = True

    def takes_encoded(self, column: str) -> bool:
        return True

    def origin_of(self, column: str) -> str:
        return column


class PassedOperator(flow.Operator):
    stateless = True
    seen: ClassVar[list[str]] = []

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.seen.append("text" if pa.types.is_string(batch.schema.field("k").type) else "dictionary")
        out.emit(batch)


flow.register(Passed, PassedOperator)


def test_an_operator_of_the_user_may_pass_on_either_type(tmp_path: Path) -> None:
    PassedOperator.seen.clear()
    path = stored(tmp_path, random.Random(1), 0.0, 0.9)
    with flow.Pipeline() as p:
        rows = p.source(op.read_parquet(path, split_by="row_group"), name="rows")
        rows.then(Passed(), schema=rows.schema).key_by("k").agg(n=op.count(), emit="final").sink(op.collect())
    assert {row["k"]: row["n"] for row in p.run().table().to_pylist()} == Counter(path_rows(path))
    assert PassedOperator.seen == ["dictionary", "text"]


def counts(stream: Any) -> Any:
    return stream.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final")


SHAPES: dict[str, Any] = {
    "a key": counts,
    "binary": lambda s: s.key_by("b").agg(n=op.count(), emit="final"),
    "behind filters and projections": lambda s: counts(
        s.filter(col("x") > 9).select("x", "t", k=col("k")).filter(col("x") < 90).with_columns(y=col("x") * 2)
    ),
    "two keys": lambda s: s.with_columns(l=col("k")).key_by("k", "l", "b").agg(n=op.count(), emit="final"),
    "windows": lambda s: s.with_watermark("t").key_by("k").window(op.tumbling("1s")).agg(n=op.count()),
}


def answer(stream: Any, **options: Any) -> Counter[Any]:
    rows = stream.collect(**options).to_pylist()
    return Counter(tuple(row.values()) for row in rows)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", seeds(2, 60))
def test_random_files_give_what_text_gives(
    tmp_path: Path, shape: str, seed: int, force: Force, request: pytest.FixtureRequest
) -> None:
    draw = random.Random(seed)
    if draw.choice([True, False]):
        request.getfixturevalue("folded")
    most = draw.choice([50, 100, 1 << 19])
    shares = [draw.choice([0.0, 0.0, 0.2, 0.9]) for _ in range(draw.randrange(1, 6))]
    path = stored(tmp_path, draw, 0.0, *shares, rows=draw.randrange(20, 80))
    options: dict[str, Any] = {
        "batch_rows": draw.choice([None, 7, 50]),
        "split_by": draw.choice(["auto", "file", "row_group"]) if shape != "windows" else "file",
    }
    expected = answer(SHAPES[shape](flow.Pipeline().source(op.from_arrow(pq.read_table(path)))))
    if pq.read_metadata(path).num_rows > most:
        if options["split_by"] == "auto":
            force(row_groups, "MOST_ROWS", most, calls=GroupSizes.splits, giving=lambda splits: len(splits) > 1)
        elif options["split_by"] == "file" and options["batch_rows"] is None:
            force(row_groups, "MOST_ROWS", most, calls=GroupSizes.layout, giving=lambda layout: len(layout.ends) > 1)
    for parallelism in (1, 2):
        rows = flow.Pipeline().source(op.read_parquet(path, **options), parallelism=1 if shape == "windows" else None)
        assert answer(SHAPES[shape](rows), parallelism=parallelism) == expected


@pytest.mark.parametrize(
    ("seed", "mode"), each_once_with_seeds(60, ["aligned", "unaligned-persisted", "aligned-timeout"])
)
def test_a_restored_run_with_both_types_in_flight_gives_what_text_gives(
    tmp_path: Path, seed: int, mode: str, request: pytest.FixtureRequest
) -> None:
    draw = random.Random(seed)
    if draw.choice([True, False]):
        request.getfixturevalue("folded")
    path = stored(tmp_path, draw, 0.0, 0.2, 0.9, 0.0, 0.9)
    expected = Counter(path_rows(path))
    world = Ledger()
    with flow.Pipeline("counts") as p:
        rows = p.source(op.read_parquet(path, batch_rows=5, split_by="row_group"), name="rows")
        counted = rows.key_by("k").agg(n=op.count(), s=col("x").sum(), emit="final", name="counts")
        counted.sink(ledger_sink(world), name="out")
    faults = Faults(crashes=2, crash_at=["step", "recording"], crash_after=[1, 2], skew=0.4, slices=0.3)
    simulate(p, flow.MemoryStore(), seed, faults, mode)
    assert {row[0]: row[1] for row in world.rows()} == expected


def path_rows(path: Path) -> list[Any]:
    found: list[Any] = pq.read_table(path, columns=["k"])["k"].to_pylist()
    return found
