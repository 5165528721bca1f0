"""What Parquet footers say about time, for windows that come out before all files are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op

TIMES = [30, 10, 20, -7, 5, 9]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
@pytest.mark.parametrize(("split_by", "expected"), [("row_group", [10, -7]), ("file", [-7])])
def test_a_split_knows_its_earliest_time(unit: str, split_by: str, expected: list[int], tmp_path: Path) -> None:
    table = pa.table({"t": pa.array(TIMES, pa.timestamp("s")).cast(pa.timestamp(unit)), "x": range(6)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    source = op.read_parquet(tmp_path / "a.parquet", split_by=split_by)  # type: ignore[arg-type]
    assert [source.earliest(split, "t") for split in source.splits()] == [t * 1_000_000 for t in expected]


def test_no_statistics_and_other_types_say_nothing(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array(TIMES, pa.timestamp("us")), "x": range(6)})
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=["x"])
    source = op.read_parquet(tmp_path / "a.parquet")
    (split,) = source.splits()
    assert [source.earliest(split, name) for name in ("t", "x", "y")] == [None, None, None]


def test_windows_come_out_while_later_files_wait(tmp_path: Path) -> None:
    for day in range(4):
        times = [day * 86_400 + second for second in range(0, 86_400, 3_600)]
        table = pa.table({"k": [1] * 24, "t": _ms(times)})
        pq.write_table(table, tmp_path / f"day-{day}.parquet")
    p = flow.Pipeline()
    days = p.source(op.read_parquet(tmp_path), name="in").with_watermark("t").key_by("k").window(op.tumbling("24h"))
    order: list[object] = []

    def note(batch: pa.RecordBatch) -> pa.RecordBatch:
        order.append(batch.num_rows)
        return batch

    days.agg(op.count().alias("n"), name="days").map_batches(note).sink(op.collect(), name="out")
    result = p.run(flow.SimulatedRunner(1))
    assert (order, result.table("out")["n"].to_pylist()) == ([1, 1, 1, 1], [24] * 4)


def _ms(seconds: list[int]) -> pa.Array:
    return pa.array([second * 1_000 for second in seconds], pa.timestamp("ms"))
