"""What users do wrong: each message names what, where, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import (
    CheckpointMismatch,
    CheckpointSkippedWarning,
    ConfigurationError,
    InputChanged,
    OutputExists,
    SchemaMismatch,
    SourceError,
    StoreError,
    UnknownColumn,
)
from operators.sinks.parquet import read_committed


def orders_of(directory: Path) -> flow.Stream:
    """The orders as a stream."""
    return flow.Pipeline("orders").source(op.read_parquet(directory), name="orders")


def copy(directory: Path, out: Path, *, sink: flow.Sink | None = None, name: str = "copy") -> flow.Pipeline:
    """The orders, to Parquet."""
    with flow.Pipeline("copy") as p:
        p.source(op.read_parquet(directory), name="orders").sink(sink or op.write_parquet(out), name=name)
    return p


def test_a_missing_file_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"missing.parquet': there is no such file .*looked from /.*check the path"):
        op.read_parquet(tmp_path / "missing.parquet")


def test_an_empty_glob_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"\*.parquet': no file matches the pattern"):
        op.read_parquet(f"{tmp_path}/*.parquet")


def test_a_truncated_file_is_named_with_what_to_do(few_orders: Path) -> None:
    broken = few_orders / "orders-1.parquet"
    broken.write_bytes(broken.read_bytes()[:-100])
    with pytest.raises(SourceError, match=r"cannot read '.*orders-1.parquet' as Parquet.*replace or remove it"):
        op.read_parquet(few_orders)


def test_a_file_damaged_in_the_middle_is_named_while_the_job_runs(few_orders: Path, tmp_path: Path) -> None:
    broken = few_orders / "orders-1.parquet"
    data = broken.read_bytes()
    broken.write_bytes(data[:4] + b"\xff" * (len(data) // 3) + data[4 + len(data) // 3 :])
    with pytest.raises(SourceError, match=r"(?s)orders-1.parquet#0' is damaged .*restore the file") as caught:
        copy(few_orders, tmp_path / "out").run()
    assert "orders[0]" in "".join(caught.value.__notes__)


def test_files_of_different_schemas_are_named_with_what_differs(few_orders: Path) -> None:
    second = few_orders / "orders-1.parquet"
    table = pq.read_table(second)
    pq.write_table(table.set_column(2, "amount", table["amount"].cast(pa.float64())), second)
    said = r"'amount' is int64 in the first and double in the second; declare 'amount' as float64 with schema="
    with pytest.raises(SchemaMismatch, match=said):
        op.read_parquet(few_orders)


@pytest.mark.parametrize(
    "use",
    [
        lambda s: s.filter(col("amuont") > 0),
        lambda s: s.select("id", "amuont"),
        lambda s: s.with_columns(double=col("amuont") * 2),
        lambda s: s.key_by("amuont"),
        lambda s: s.key_by("key").agg(col("amuont").sum()),
    ],
    ids=["filter", "select", "with_columns", "key_by", "agg"],
)
def test_an_unknown_column_is_refused_while_the_graph_is_built(
    few_orders: Path, use: Callable[[flow.Stream], Any]
) -> None:
    with pytest.raises(UnknownColumn, match=r"no column 'amuont' \(did you mean 'amount'\?\); valid columns: \['id'"):
        use(orders_of(few_orders))


def test_a_wrong_type_is_refused_while_the_graph_is_built(few_orders: Path) -> None:
    with pytest.raises(
        SchemaMismatch, match=r"filter: expected a boolean expression such as .*, found .*amount.* of type int64"
    ):
        orders_of(few_orders).filter(col("amount"))
    with pytest.raises(SchemaMismatch, match="amount"):
        orders_of(few_orders).filter(col("amount") > "many")


def test_a_damaged_part_falls_back_loudly_and_the_output_is_exact(tmp_path: Path) -> None:
    store = flow.Checkpointing(tmp_path / "ckpt")
    with _numbers().start(checkpoint=store) as job:
        older, newest = job.checkpoint(timeout="30s"), job.checkpoint(timeout="30s")
    part = next((tmp_path / "ckpt" / f"chk-{newest:08d}").glob("*.part"))
    part.write_bytes(part.read_bytes()[:-1] + b"\xff")
    why = rf"checkpoint {newest} in .* is damaged, so checkpoint {older} was restored: .*{re.escape(part.name)}"
    with pytest.warns(CheckpointSkippedWarning, match=why):
        result = _numbers().run(checkpoint=store)
    assert result.restore_report is not None
    assert result.restore_report.checkpoint == older
    assert result.table("out")["n"].to_pylist() == list(range(2_000))


def _numbers() -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        source = op.paced(op.from_arrow(pa.table({"n": range(2_000)})), 10_000)
        p.source(source, name="numbers").sink(op.collect(), name="out")
    return p


@pytest.mark.parametrize("where", ["ckpt", "out"])
def test_a_file_in_place_of_a_directory_is_refused_before_anything_runs(
    few_orders: Path, tmp_path: Path, where: str
) -> None:
    (tmp_path / where).write_text("in the way")
    with pytest.raises(StoreError, match=rf"{where}.*choose another path|{where}.*already exists: move it"):
        copy(few_orders, tmp_path / "out").run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))


def test_a_changed_input_is_refused_at_the_restore(few_orders: Path, tmp_path: Path) -> None:
    store = flow.Checkpointing(tmp_path / "ckpt")
    copy(few_orders, tmp_path / "out").run(checkpoint=store)
    pq.write_table(pq.read_table(few_orders / "orders-0.parquet").slice(1), few_orders / "orders-0.parquet")
    with pytest.raises(InputChanged, match=r"orders-0.parquet#0', which has changed since: it had \d+ bytes"):
        copy(few_orders, tmp_path / "out").run(checkpoint=store)


def test_a_finished_job_is_finished_at_another_parallelism(few_orders: Path, tmp_path: Path) -> None:
    store = flow.Checkpointing(tmp_path / "ckpt")
    copy(few_orders, tmp_path / "out").run(checkpoint=store, parallelism=2)
    report = copy(few_orders, tmp_path / "out").run(checkpoint=store, parallelism=1).restore_report
    assert report is not None
    assert report.finished
    assert report.rescaled["orders"] == (2, 1)
    assert read_committed(tmp_path / "out").num_rows == 8_000


def test_another_pipeline_is_refused_with_what_differs(few_orders: Path, tmp_path: Path) -> None:
    store = flow.Checkpointing(tmp_path / "ckpt")
    copy(few_orders, tmp_path / "out").run(checkpoint=store)
    with pytest.raises(CheckpointMismatch, match=r"'copy'(.|\n)*other(.|\n)*use another checkpoint directory"):
        copy(few_orders, tmp_path / "out", name="other").run(checkpoint=store)


def test_output_of_another_run_is_refused(few_orders: Path, tmp_path: Path) -> None:
    copy(few_orders, tmp_path / "out").run()
    with pytest.raises(OutputExists, match=r'already holds 1 Parquet files .*or pass if_exists="append"'):
        copy(few_orders, tmp_path / "out").run()


def test_a_second_run_after_the_end_adds_nothing(few_orders: Path, tmp_path: Path) -> None:
    store = flow.Checkpointing(tmp_path / "ckpt")
    copy(few_orders, tmp_path / "out").run(checkpoint=store)
    again = copy(few_orders, tmp_path / "out").run(checkpoint=store)
    assert again.rows_in == {"orders": 0}
    assert read_committed(tmp_path / "out").num_rows == 8_000


def test_a_reader_that_can_be_read_once_is_refused_with_checkpoints(tmp_path: Path) -> None:
    with flow.Pipeline("once") as p:
        p.source(op.from_arrow(_reader()), name="once").sink(op.collect(), name="out")
    with pytest.raises(ConfigurationError, match=r"source 'once' cannot be read again .*replayable=False"):
        p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))


class Once(flow.Source):
    """A source of a user that cannot be read again."""

    replayable = False
    schema = pa.schema({"x": pa.int64()})  # type: ignore[assignment]

    def splits(self) -> list[flow.Split]:
        return []

    def reader(self, split: flow.Split, offset: Any, context: Any) -> flow.SplitReader:
        raise AssertionError("it has no splits")


def test_a_users_source_that_can_be_read_once_is_told_the_attribute_to_set() -> None:
    rows = flow.Pipeline().source(Once())
    with pytest.raises(ConfigurationError, match="set accepts_loss = True in a Source of your own"):
        rows.collect(checkpoint=flow.Checkpointing(flow.MemoryStore()))
    accepting = Once()
    accepting.accepts_loss = True
    flow.Pipeline().source(accepting).collect(checkpoint=flow.Checkpointing(flow.MemoryStore()))


def test_a_reader_that_can_be_read_once_runs_with_checkpoints_at_most_once_if_one_says_so(tmp_path: Path) -> None:
    with flow.Pipeline("once") as p:
        p.source(op.from_arrow(_reader(), replayable=False), name="once").sink(op.collect(), name="out")
    result = p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))
    assert result.table("out").num_rows == 3
    assert "end to end at most once" in str(result)


def _reader() -> pa.RecordBatchReader:
    return pa.table({"n": [1, 2, 3]}).to_reader()
