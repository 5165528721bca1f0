"""The summary of a run: in words, as tables, and as JSON."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pytest
from rich.console import Console

import dataflow as flow
import operators as op
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.errors import LateRowsWarning

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")


class LateFrom(Operator):
    """Counts rows from 90 on as late."""

    def __init__(self, context: OperatorContext) -> None:
        self.tally = context.tally

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self.tally.late += sum(1 for n in batch["n"].to_pylist() if n >= 90)
        out.emit(batch)


def picky(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] % 10 == 0:
        raise ValueError(f"<{row['n']}>\nno tens")
    return row


def run(**options: Any) -> flow.RunResult:
    with flow.Pipeline("numbers") as p:
        rows = p.source(op.from_arrow(pa.table({"n": range(100)}), splits=2), name="rows")
        picked = rows.map(picky, on_error="skip", name="picky")
        picked.apply(LateFrom, name="late").sink(op.collect(), name="out")
    return p.run("simulated", **options)


@pytest.fixture(scope="module")
def result() -> flow.RunResult:
    with pytest.warns(LateRowsWarning, match="9 rows came too late for 'late'"):
        return run(parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))


def test_late_and_skipped_rows_are_told_in_all_and_per_operator(result: flow.RunResult) -> None:
    assert (result.late, result.skipped, len(result.samples)) == (9, 10, 10)
    assert [(o.operator, o.late, o.skipped) for o in result.operators] == [
        ("rows", 0, 0),
        ("picky", 0, 10),
        ("late", 9, 0),
        ("out", 0, 0),
    ]
    assert {"  late: 9 rows (9 at 'late')", "  skipped: 10 rows (10 at 'picky')"} <= {*str(result).splitlines()}


def test_five_samples_are_shown_each_on_one_line(result: flow.RunResult) -> None:
    shown = [line for line in str(result).splitlines() if line.startswith("    map 'picky': ")]
    assert len(shown) == 5
    assert shown[0] == "    map 'picky': {'n': 0}: ValueError: <0> no tens"


def test_late_rows_are_told_where_no_operator_has_time() -> None:
    with flow.Pipeline("plain") as p:
        p.source(op.from_arrow(pa.table({"n": [1]})), name="rows").sink(op.collect(), name="out")
    lines = str(p.run("simulated")).splitlines()
    assert {"  late: 0 rows", "  skipped: 0 rows"} <= {*lines}
    assert "no checkpoints; end to end at most once" in lines[0]


def test_files_are_told_as_a_pattern_that_finds_committed_rows_alone(tmp_path: Path) -> None:
    with flow.Pipeline("files") as p:
        rows = p.source(op.from_arrow(pa.table({"n": [1, 2]})), name="rows")
        rows.sink(op.write_parquet(tmp_path / "p"), name="parquet")
        rows.sink(op.write_csv(tmp_path / "c", compression="gzip"), name="csv")
    done = p.run()
    assert f"  out  parquet: 2 rows -> {tmp_path}/p/*.parquet" in str(done).splitlines()
    assert done.outputs == {"parquet": f"{tmp_path}/p/*.parquet", "csv": f"{tmp_path}/c/*.csv.gz"}
    assert polars.read_parquet(done.outputs["parquet"]).height == 2


def test_rows_that_a_window_finds_late_are_told() -> None:
    times = pa.array([0, 10, 1, 11, 2], pa.timestamp("s"))
    with flow.Pipeline("windows") as p:
        rows = p.source(op.from_arrow(pa.table({"k": 5 * ["a"], "at": times}), batch_rows=1), name="rows")
        keyed = rows.with_watermark("at", delay="2s").key_by("k")
        keyed.window(op.tumbling("5s")).agg(op.count().alias("n"), name="counts").sink(op.collect(), name="out")
    done = p.run("simulated")
    assert (done.late, done.operator("counts").late) == (2, 2)
    assert "  late: 2 rows (2 at 'counts')" in str(done).splitlines()
    how = "half of them at most 3.01 s late, 90% at most 4.00 s, all at most 4.00 s"
    assert f"    'counts': 40.0% of its rows, {how}" in str(done).splitlines()


def test_rows_are_told_per_source_and_sink(result: flow.RunResult) -> None:
    rate = 100 * 1_000_000 // result.duration
    assert f"  in   rows: 100 rows, {rate:,} rows/s" in str(result).splitlines()
    assert "  out  out: 90 rows" in str(result).splitlines()


def test_checkpoints_and_the_guarantee_are_told(result: flow.RunResult) -> None:
    done = len(result.checkpoints)
    assert f"  checkpoints: {done} completed, 0 failed, slowest " in str(result)
    assert "mode aligned (exactly once); end to end exactly once" in str(result).splitlines()[0]


def test_the_shares_of_operators_and_engine_are_the_whole() -> None:
    with flow.Pipeline("slow") as p:
        rows = p.source(op.from_arrow(pa.table({"n": range(20_000)}), batch_rows=1_000), name="rows")
        rows.map(lambda row: row, name="same").sink(op.collect(), name="out")
    done = p.run()
    busy, total = {o.operator: o.busy for o in done.operators}, sum(t.meter.busy for t in done.metrics)
    assert busy["same"] > busy["out"]
    assert sum(busy.values()) <= total
    table = [line.split() for line in str(done).splitlines() if line.endswith("%")]
    assert [row[0] for row in table] == ["rows", "same", "out", "(engine)"]
    assert 97 <= sum(int(row[-1].rstrip("%")) for row in table) <= 103


def test_reading_is_the_work_of_the_source() -> None:
    def slow(position: object) -> Any:
        for i in range(200_000):
            if i % 50_000 == 0:
                yield {"n": i}, i + 1

    with flow.Pipeline("reading") as p:
        p.source(op.from_generator(slow, schema=pa.schema({"n": pa.int64()})), name="rows").sink(op.collect())
    done = p.run()
    assert done.operator("rows").busy > 10 * done.operator("sink").busy


def test_programs_get_json(result: flow.RunResult) -> None:
    read = json.loads(result.to_json())
    assert read == result.to_dict()
    assert (read["state"], read["mode"], read["late"], read["skipped"]) == ("finished", "aligned", 9, 10)
    assert (read["rows_in"], read["rows_out"]) == ({"rows": 100}, {"out": 90})
    assert read["samples"][0] == {"where": "map 'picky'", "row": "{'n': 0}", "error": "ValueError: <0>\nno tens"}
    assert read["checkpoints"]["completed"] == len(result.checkpoints)
    assert [o["operator"] for o in read["operators"]] == ["rows", "picky", "late", "out"]
    assert [t["task"] for t in read["tasks"]] == ["rows[0]", "rows[1]"]


def test_json_tells_what_was_restored() -> None:
    store = flow.MemoryStore()
    run(checkpoint=flow.Checkpointing(store, every="1ms"))
    again = run(checkpoint=flow.Checkpointing(store, every="1ms"))
    assert again.restore_report is not None
    assert json.loads(again.to_json())["restore"]["checkpoint"] == again.restore_report.checkpoint
    assert "  late: 0 rows, since the restore" in str(again).splitlines()


def test_a_terminal_gets_tables(result: flow.RunResult) -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(result)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for expected in ("late: 9 rows", "operator", "share", "(engine)", "back-pressured", "rows[1]"):
        assert expected in text


def test_a_notebook_gets_escaped_tables(result: flow.RunResult) -> None:
    page = result._repr_html_()
    assert page.count("<table>") == 3
    assert "ValueError: &lt;0&gt; no tens" in page
    assert "<td>picky</td><td>100</td><td>90</td>" in page
