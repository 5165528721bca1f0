"""What is special about running a batch: what it refuses, its one checkpoint, and how it is resumed and stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.cli import main
from dataflow.contracts.execution import Spill
from dataflow.errors import CheckpointError, CheckpointMismatch, ConfigurationError, JobCancelled
from dataflow.runners.faults import Faults

AT = pa.array(range(1000, 0, -1), pa.timestamp("s"))
ROWS = pa.table({"k": [n % 7 for n in range(1000)], "at": AT, "x": range(1000)})


def totals(out: Path, source: flow.Source | None = None) -> flow.Pipeline:
    with flow.Pipeline("totals") as p:
        rows = p.source(source or op.from_arrow(ROWS, batch_rows=50, splits=3), name="rows").with_watermark("at")
        first = rows.unique("x", name="all").key_by("k").window(op.tumbling("100s"))
        first.agg(n=op.count(), x=col("x").first(), name="sums").sink(op.write_parquet(out), name="out")
    return p


def read(out: Path) -> list[dict[str, Any]]:
    return sorted(pq.read_table(out).to_pylist(), key=repr)


def endless() -> flow.Pipeline:
    with flow.Pipeline("endless") as p:
        p.source(op.generate({"id": op.sequence()}), name="numbers").sink(op.collect(), name="out")
    return p


def by_the_clock() -> flow.Pipeline:
    with flow.Pipeline("clock") as p:
        p.source(op.from_arrow(ROWS), name="in").with_processing_time("now").sink(op.collect(), name="out")
    return p


@pytest.mark.parametrize(
    ("pipeline", "options", "message"),
    [
        (endless, {}, r"source 'numbers' \(Generate\w*\) has no end"),
        (by_the_clock, {}, r"'with_processing_time' \(with_processing_time\) takes times from the clock"),
        (None, {"mode": "unaligned"}, r"Checkpointing\(mode='unaligned'\) is for streams"),
        (None, {"mode": "aligned-timeout"}, r"Checkpointing\(mode='aligned-timeout'\) is for streams"),
        (None, {"every": "1s"}, r"Checkpointing\(every=\) is for streams"),
    ],
)
@pytest.mark.parametrize("runner", ["local", "simulated", "spark"])
def test_what_a_batch_cannot_be_is_refused_by_name(
    pipeline: Any, options: Any, message: str, runner: str, tmp_path: Path
) -> None:
    p = totals(tmp_path / "out") if pipeline is None else pipeline()
    settings = flow.Checkpointing(tmp_path / "checkpoints", **options) if options else None
    with pytest.raises(ConfigurationError, match=message):
        p.run(runner, execution="batch", checkpoint=settings)
    assert not (tmp_path / "checkpoints").exists()
    assert not (tmp_path / "out").exists()


def test_a_watched_directory_has_no_end(tmp_path: Path) -> None:
    pq.write_table(ROWS, tmp_path / "rows.parquet")
    with flow.Pipeline("watched") as p:
        p.source(op.watch(tmp_path, op.read_parquet), name="files").sink(op.collect(), name="out")
    with pytest.raises(ConfigurationError, match=r"source 'files' .* has no end"):
        p.explain(execution="batch")


@pytest.mark.parametrize(
    ("runner", "method"),
    [(runner, method) for runner in ("local", "simulated", "spark") for method in ("run", "start")]
    + [("local", "explain"), ("spark", "explain")],
)
def test_another_word_is_refused(method: str, runner: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"execution=\) must be 'streaming' or 'batch', got 'bath'"):
        getattr(totals(tmp_path), method)(runner, execution="bath")


def test_a_batch_has_one_checkpoint_which_names_what_was_committed(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "checkpoints")
    result = totals(tmp_path / "out").run(execution="batch", checkpoint=settings, parallelism=2)
    assert [record.checkpoint for record in result.checkpoints] == [1]
    (manifest,) = (tmp_path / "checkpoints").glob("*/manifest.json")
    stored = json.loads(manifest.read_text())["manifest"]
    assert (stored["execution"], stored["finished"], stored["kind"]) == ("batch", True, "final")
    assert sum(len(handles) for handles in stored["transactions"].values()) > 0
    assert sum(part["size"] for part in stored["parts"]) < 20_000  # the rows of unique() are not stored
    shown = CliRunner().invoke(main, ["checkpoints", "show", str(tmp_path / "checkpoints"), "1"]).output
    assert "batch: what its sinks must commit, and no state" in shown
    totals(tmp_path / "alone").run(execution="batch")
    assert read(tmp_path / "out") == read(tmp_path / "alone")
    assert len(read(tmp_path / "out")) == 71  # seven keys in ten windows, and one row in the last one


def test_a_batch_that_has_finished_is_not_run_again(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "checkpoints")
    totals(tmp_path / "out").run(execution="batch", checkpoint=settings)
    before = read(tmp_path / "out")
    again = totals(tmp_path / "out").run(execution="batch", checkpoint=settings)
    assert again.rows_in == {"rows": 0}
    assert again.restore_report is not None
    assert again.restore_report.finished
    assert read(tmp_path / "out") == before


@pytest.mark.parametrize("execution", ["streaming", "batch"])
def test_the_rows_collected_by_a_job_that_has_finished_are_there_again(execution: str, tmp_path: Path) -> None:
    for _ in range(2):
        with flow.Pipeline("counts") as p:
            rows = p.source(op.from_arrow(ROWS), name="rows").key_by("k").agg(n=op.count(), name="counts")
            rows.sink(op.collect(), name="out")
        result = p.run(execution=execution, checkpoint=flow.Checkpointing(tmp_path))
        assert sorted(result.table("out")["k"].to_pylist()) == list(range(7))


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_streams_and_batches_do_not_continue_each_other(tmp_path: Path) -> None:
    for first, second in (("streaming", "batch"), ("batch", "streaming")):
        settings = flow.Checkpointing(tmp_path / first)
        totals(tmp_path / f"{first} out").run(execution=first, checkpoint=settings)
        before = read(tmp_path / f"{first} out")
        with pytest.raises(CheckpointMismatch, match=f"is of a job with execution='{first}', and this one has exec"):
            totals(tmp_path / f"{first} out").run(execution=second, checkpoint=settings)
        assert read(tmp_path / f"{first} out") == before


@pytest.mark.parametrize("seed", range(12))
def test_a_crash_repeats_the_batch_or_finishes_its_commit(seed: int, tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "checkpoints")
    runner = flow.SimulatedRunner(seed, Faults(crashes=3, skew=0.2))
    totals(tmp_path / "out").run(runner, execution="batch", checkpoint=settings, parallelism=2)
    totals(tmp_path / "alone").run(execution="batch")
    assert read(tmp_path / "out") == read(tmp_path / "alone")
    staged = [path for path in (tmp_path / "out").rglob("*") if "stag" in path.name and path.is_file()]
    assert staged == []


def slow_rows(offset: int | None) -> Iterator[tuple[pa.RecordBatch, int]]:
    number = offset or 0
    while number < 10**9:  # as good as endless, but a batch may read it
        yield pa.record_batch({"x": [number]}), number
        number += 1


def test_a_batch_is_cancelled_where_a_stream_takes_a_last_checkpoint(tmp_path: Path) -> None:
    with flow.Pipeline("long") as p:
        rows = p.source(op.from_generator(slow_rows, schema=pa.schema({"x": pa.int64()})), name="rows")
        rows.sink(op.write_parquet(tmp_path / "out"), name="out")
    with p.start(execution="batch", checkpoint=flow.Checkpointing(tmp_path / "checkpoints")) as job:
        with pytest.raises(CheckpointError, match="a batch has one checkpoint, at its end"):
            job.checkpoint(timeout="1min")
        with pytest.raises(JobCancelled, match="before the end of a batch there is nothing to resume from"):
            job.stop()
    assert list((tmp_path / "out").glob("*.parquet")) == []


@pytest.mark.parametrize("runner", ["local", "simulated"])
@pytest.mark.parametrize("method", ["on_checkpoint", "stop_when"])
def test_predicates_have_no_state_to_look_at(runner: str, method: str, tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "checkpoints")
    with totals(tmp_path / "out").start(runner, execution="batch", checkpoint=settings) as job:
        with pytest.raises(ConfigurationError, match="looks at state, and the one checkpoint of a batch has none"):
            getattr(job, method)(lambda state: True)
        job.wait()


def test_rows_that_are_too_many_for_memory_are_sorted_on_disk(tmp_path: Path) -> None:
    runner = flow.LocalRunner(spill=tmp_path / "spill") if (tmp_path / "spill").mkdir() is None else None
    assert runner is not None
    runner._spill = Spill(str(tmp_path / "spill"), memory=4_000)
    totals(tmp_path / "out").run(runner, execution="batch")
    totals(tmp_path / "alone").run(execution="batch")
    assert read(tmp_path / "out") == read(tmp_path / "alone")
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_directory_for_sorted_rows_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"spill=\) must be an existing directory"):
        flow.LocalRunner(spill=tmp_path / "nowhere")


class Clocked(flow.Operator):
    """Makes watermarks that are far ahead of its rows."""

    stateless = True
    makes_time = True

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)
        out.watermark(10**15)
        out.idle()


class Seen(flow.Operator):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(pa.record_batch({"event": [batch.num_rows]}))

    def advance(self, watermark: int, out: flow.Out) -> None:
        out.emit(pa.record_batch({"event": [watermark]}))


def test_the_time_of_operators_moves_only_at_the_end() -> None:
    with flow.Pipeline("clocked") as p:
        rows = p.source(op.from_arrow(ROWS, batch_rows=400), name="rows").apply(Clocked)
        rows.apply(lambda context: Seen(), schema=pa.schema({"event": pa.int64()})).sink(op.collect(), name="out")
    events = p.run(execution="batch").table("out")["event"].to_pylist()
    assert events[-1] == 2**63 - 1
    assert sum(events[:-1]) == 1000


def test_the_plan_of_a_batch_is_explained(tmp_path: Path) -> None:
    settings = flow.Checkpointing(tmp_path / "checkpoints")
    text = str(totals(tmp_path / "out").explain(execution="batch", checkpoint=settings))
    assert "a batch: results come at the end of the input, where its only checkpoint is taken" in text
    assert "after that checkpoint a crash leaves only the commit to do" in text
    assert "all: rows sorted by at and their place in the source" in text
    alone = str(totals(tmp_path / "out").explain(execution="batch"))
    assert "without checkpoint= a crash leaves nothing to resume" in alone
