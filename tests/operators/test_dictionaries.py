"""Dictionary columns whose batches hold more values together than the index type they came with can number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.simulated import Faults
from dataflow.runtime.task.crash_points import Point
from dataflow.state.dictionaries import widened
from tests.seeds import some_by_default

WIDE = pa.dictionary(pa.int32(), pa.string())
OVER = [(pa.int8(), 90, 3), (pa.uint8(), 200, 3), (pa.int16(), 20_000, 4)]  # together past 128, 256 and 32,768 values
IDS = [str(index) for index, _, _ in OVER]


def category(index: pa.DataType, first: int, count: int) -> pa.DictionaryArray:
    values = [f"v{n}" for n in range(first, first + count)]
    return pa.DictionaryArray.from_arrays(pa.array(range(count), index), values)


def tables(index: pa.DataType, count: int, parts: int) -> list[pa.Table]:
    """Every value once, none in two tables."""
    return [
        pa.table({"c": category(index, part * count, count), "x": pa.array([1] * count, pa.int64())})
        for part in range(parts)
    ]


def in_files(directory: Path, index: pa.DataType, count: int, parts: int) -> Any:
    for part, table in enumerate(tables(index, count, parts)):
        (directory / "in").mkdir(exist_ok=True)
        pq.write_table(table, directory / f"in/{part}.parquet", row_group_size=count // 5)
    return op.read_parquet(directory / "in", split_by="file", batch_rows=count // 10)


def in_memory(directory: Path, index: pa.DataType, count: int, parts: int) -> Any:
    return op.from_arrow(pa.concat_tables(tables(index, count, parts)), splits=2, batch_rows=count // 10)


def streamed(directory: Path, index: pa.DataType, count: int, parts: int) -> Any:
    return op.from_arrow(pa.concat_tables(tables(index, count, parts)).to_reader(), replayable=False)


def names(count: int, parts: int) -> list[str]:
    return sorted(f"v{n}" for n in range(count * parts))


@pytest.mark.parametrize("source", [in_files, in_memory, streamed])
@pytest.mark.parametrize(("index", "count", "parts"), OVER, ids=IDS)
def test_more_values_than_one_batch_can_number(
    tmp_path: Path, source: Any, index: pa.DataType, count: int, parts: int
) -> None:
    with flow.Pipeline() as p:
        rows = p.source(source(tmp_path, index, count, parts), name="in")
        rows.sink(op.collect(), name="rows")
        rows.sink(op.write_parquet(tmp_path / "out"), name="files")
        rows.key_by("c").agg(col("x").sum().alias("n"), name="sums").sink(op.collect(), name="keys")
    result = p.run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="1ms"))
    written = pq.read_table(tmp_path / "out")
    for table in (result.table("rows"), result.table("keys"), written):
        assert table.schema.field("c").type == WIDE
        assert sorted(table["c"].to_pylist()) == names(count, parts)
    assert result.table("rows").combine_chunks().to_pandas().shape == (count * parts, 2)


@pytest.mark.parametrize(("seed", "source"), some_by_default([(0, in_files)], range(3), [in_files, in_memory]))
@pytest.mark.parametrize(("index", "count", "parts"), OVER, ids=IDS)
def test_a_restore_in_between_goes_on_numbering(
    tmp_path: Path, source: Any, index: pa.DataType, count: int, parts: int, seed: int
) -> None:
    with flow.Pipeline() as p:
        rows = p.source(source(tmp_path, index, count, parts), name="in")
        rows.sink(op.collect(), name="rows")
        rows.sink(op.write_parquet(tmp_path / "out"), name="files")
        rows.key_by("c").agg(col("x").sum().alias("n"), name="sums").sink(op.collect(), name="keys")
    runner = flow.SimulatedRunner(seed, Faults(crashes=1, crash_at=[Point.DURABLE], crash_after=[1]))
    result = p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="1ms"))
    assert result.restore_report is not None, f"seed {seed}: nothing was restored"
    assert any(result.restore_report.offsets.values()), f"seed {seed}: restored before the first row"
    for table in (result.table("rows"), result.table("keys"), pq.read_table(tmp_path / "out")):
        assert sorted(table["c"].to_pylist()) == names(count, parts), f"seed {seed}"
    assert set(result.table("keys")["n"].to_pylist()) == {1}, f"seed {seed}"


def test_files_may_differ_in_the_width_of_their_indices(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": category(pa.int8(), 0, 90)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"c": category(pa.int16(), 90, 900)}), tmp_path / "b.parquet")
    rows = flow.Pipeline().source(op.read_parquet(tmp_path))
    assert sorted(rows.collect()["c"].to_pylist()) == names(990, 1)


def test_tables_may_differ_in_the_width_of_their_indices() -> None:
    mixed = [pa.table({"c": category(pa.int8(), 0, 90)}), pa.table({"c": category(pa.int16(), 90, 900)})]
    assert sorted(flow.Pipeline().source(op.from_arrow(mixed)).collect()["c"].to_pylist()) == names(990, 1)


def test_a_function_may_make_categories_of_any_width() -> None:
    def categorised(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"c": category(pa.int8(), batch["x"][0].as_py(), len(batch))})

    numbers = op.from_arrow(pa.table({"x": range(270)}), batch_rows=90)
    made = (
        flow.Pipeline()
        .source(numbers)
        .map_batches(categorised, schema=pa.schema({"c": category(pa.int8(), 0, 1).type}))
    )
    assert made.schema.field("c").type == WIDE
    assert sorted(made.collect()["c"].to_pylist()) == names(270, 1)
    assert made.key_by("c").agg(op.count().alias("n")).collect().num_rows == 270


class Categorises(flow.Operator):
    def __init__(self, context: flow.OperatorContext) -> None: ...

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(pa.record_batch({"c": category(pa.int8(), batch["x"][0].as_py(), len(batch))}))


def test_what_an_operator_emits_in_a_narrow_type_is_widened_where_it_is_kept(tmp_path: Path) -> None:
    numbers = op.from_arrow(pa.table({"x": range(270)}), batch_rows=90)
    with flow.Pipeline() as p:
        made = p.source(numbers, name="in").apply(
            Categorises, schema=pa.schema({"c": category(pa.int8(), 0, 1).type}), name="own"
        )
        made.sink(op.collect(), name="rows")
        made.sink(op.write_parquet(tmp_path / "out"), name="files")
        made.key_by("c").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="keys")
    result = p.run(parallelism=2, checkpoint=flow.Checkpointing(tmp_path / "ckpt", every="1ms"))
    for table in (result.table("rows"), result.table("keys"), pq.read_table(tmp_path / "out")):
        assert sorted(table["c"].to_pylist()) == names(270, 1)


def test_a_null_among_the_values_becomes_one_among_the_indices() -> None:
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2], pa.int8()), pa.array(["a", None, "b"]))
    made = widened(pa.record_batch({"c": odd})).column("c")
    assert (made.to_pylist(), made.dictionary.null_count, str(made.type.index_type)) == (
        ["a", None, None, "b"],
        0,
        "int32",
    )


@pytest.mark.parametrize("write", [op.write_parquet, op.write_csv, op.write_json, op.write_ipc])
def test_such_a_dictionary_can_be_written(write: Any, tmp_path: Path) -> None:
    odd = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["a", None, "b"]))
    p = flow.Pipeline()
    p.source(op.from_arrow(pa.table({"c": odd, "x": [1, 2, 3]}), batch_rows=2), name="in").sink(
        write(tmp_path / "out"), name="out"
    )
    p.run()
    assert op.read_committed(tmp_path / "out")["c"].to_pylist() == ["a", None, "b"]
