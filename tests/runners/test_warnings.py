"""The thread that waits warns once, after the last commit, of failures that did not end the run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.operator import Operator, Out
from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.contracts.sink import Handle
from dataflow.errors import (
    BarrierflowWarning,
    CheckpointError,
    CheckpointsFailedWarning,
    CheckpointSkippedWarning,
    CleanupFailedWarning,
    CommitsDelayedWarning,
    CommitsRetriedWarning,
    JobFailedWarning,
    LateRowsWarning,
    RowsTakenBackWarning,
    StoreError,
    UnstablePredicateWarning,
)
from dataflow.runners.faults import Faults
from dataflow.runners.run_warnings import late_rows
from dataflow.runtime.job import committer
from dataflow.runtime.job.committer import Committer
from dataflow.runtime.task.notices import Notices
from dataflow.runtime.task.progress import JobState
from dataflow.store.memory import MemoryStore
from tests.forcing import Force


def late_pipeline(out: Path | None = None, *, aside: bool = False) -> flow.Pipeline:
    """Counts per 5 s; of five rows two are late, by 3 s and 4 s."""
    times = pa.array([0, 10, 1, 11, 2], pa.timestamp("s"))
    with flow.Pipeline("clicks") as p:
        rows = p.source(op.from_arrow(pa.table({"k": 5 * ["a"], "at": times}), batch_rows=1), name="rows")
        counts = rows.with_watermark("at", delay="2s").key_by("k").window(op.tumbling("5s"))
        counted = counts.agg(op.count().alias("n"), name="counts")
        counted.sink(op.collect() if out is None else op.write_parquet(out), name="out")
        if aside:
            counted.side("late").sink(op.collect(), name="late")
    return p


def numbers(sink: Any = None, rows: int = 3_000) -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        source = op.paced(op.from_arrow(pa.table({"n": range(rows)})), 30_000)
        p.source(source, name="numbers").sink(sink or op.collect(), name="out")
    return p


class FullStore(MemoryStore):
    """Refuses the first ``failures`` manifests."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures

    def commit(self, manifest: Any) -> None:
        if self.failures > 0:
            self.failures -= 1
            raise StoreError("the disk is full")
        super().commit(manifest)


def caught(run: Any) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        return run(), list(found)


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_late_rows_are_warned_of_once_with_their_share_and_how_late_they_were(runner: str) -> None:
    result, found = caught(lambda: late_pipeline().run(runner))
    (warning,) = found
    assert warning.category is LateRowsWarning
    assert str(warning.message) == (
        "2 rows (40.0% of its rows) came too late for 'counts', whose result lacks them: half of them at most "
        "3.01 s late, 90% at most 4.00 s, all at most 4.00 s; read them with .side('late'); if the input is unordered, "
        'wait longer with delay= or lateness=, or run with execution="batch", in which no row is late'
    )
    assert warning.filename == __file__
    assert [str(w) for w in result.warnings] == [str(warning.message)]
    assert result.to_dict()["warnings"] == [{"category": "LateRowsWarning", "text": str(warning.message)}]


def test_late_rows_that_are_read_are_not_warned_of() -> None:
    result = late_pipeline(aside=True).run()
    assert (result.late, list(result.warnings)) == (2, [])
    (late_by,) = [o["late_by_us"] for o in result.to_dict()["operators"] if o["operator"] == "counts"]
    assert late_by == {"p50": 3_014_655, "p90": 4_000_000, "max": 4_000_000}


def test_late_rows_of_a_join_with_a_ttl_are_warned_of_unless_they_are_read() -> None:
    times = pa.array([0, *30 * [10], 1], pa.timestamp("s"))  # 1 is late: the other side ends long before it comes
    rows = pa.table({"k": 32 * ["a"], "at": times})

    def run(*tags: str) -> flow.RunResult:
        with flow.Pipeline("near") as p:
            left = p.source(op.from_arrow(rows, batch_rows=1), name="left").with_watermark("at")
            right = p.source(op.from_arrow(rows.slice(0, 1)), name="right").with_watermark("at")
            near = left.join(right, on="k", ttl="5s", name="near")
            near.sink(op.collect(), name="out")
            for tag in tags:
                near.side(tag).sink(op.collect(), name=tag)
        return p.run("simulated", parallelism=1)

    with pytest.warns(LateRowsWarning, match=r"1 row \(3.0% .* too late for 'near', whose result may lack pairs with"):
        run("late_right")
    result = run("late")
    assert (result.late, list(result.warnings), result.table("late")["at"].cast(pa.int64()).to_pylist()) == (1, [], [1])


def test_collect_and_head_warn_the_caller() -> None:
    times = pa.table({"k": ["a"] * 3, "at": pa.array([0, 10, 1], pa.timestamp("s"))})
    stream = flow.Pipeline().source(op.from_arrow(times, batch_rows=1)).with_watermark("at", delay="0s").key_by("k")
    with pytest.warns(LateRowsWarning) as found:
        stream.window(op.tumbling("5s")).agg(op.count().alias("n")).collect()
    assert [warning.filename for warning in found] == [__file__]


@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_a_warning_that_is_an_error_comes_after_the_last_commit_and_has_the_result(tmp_path: Path, runner: str) -> None:
    with late_pipeline(tmp_path / "out").start(runner) as job:
        with pytest.raises(LateRowsWarning) as raised:  # the tests run with warnings as errors
            job.wait()
        assert op.read_committed(tmp_path / "out").num_rows == 2
        assert raised.value.result is not None
        assert raised.value.result.late == 2
        assert job.wait().late == 2


def test_of_several_warnings_that_are_errors_none_is_lost() -> None:
    store = flow.Checkpointing(FullStore(1))
    with pytest.raises(CheckpointsFailedWarning) as raised:  # the tests run with warnings as errors
        late_pipeline().run(checkpoint=store)
    assert ["LateRowsWarning" in note for note in raised.value.__notes__] == [True]


def test_failed_checkpoints_are_warned_of_by_their_number() -> None:
    store = flow.Checkpointing(FullStore(3), every="1ms")
    with pytest.warns(CheckpointsFailedWarning, match=r"^3 of \d+ checkpoints failed.*the disk is full"):
        result = numbers().run(checkpoint=store)
    assert result.to_dict()["checkpoints"]["failed"] == 3
    assert "  warning: 3 of " in str(result)


def test_a_job_survives_ten_failed_checkpoints_in_a_row_and_not_more() -> None:
    store = flow.Checkpointing(FullStore(1_000), every="1ms")
    with pytest.raises(CheckpointError, match="too many"), pytest.warns(CheckpointsFailedWarning, match="^11 of 11 "):
        numbers(rows=30_000).run(checkpoint=store)


def test_a_job_that_fails_warns_and_raises_what_it_failed_of() -> None:
    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ZeroDivisionError("no")

    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(pa.table({"n": [1]})), name="rows").apply(BadlyClosed, name="bad")
        rows.map_batches(failing).sink(op.collect(), name="out")
    with pytest.raises(ZeroDivisionError), pytest.warns(CleanupFailedWarning, match=r"closing rows\[0\] raised"):
        p.run()
    with pytest.raises(ZeroDivisionError) as raised:  # the tests run with warnings as errors
        p.run()
    assert [note for note in raised.value.__notes__ if note.startswith("CleanupFailedWarning: closing")]


class BadlyClosed(Operator):
    """Passes rows on and cannot be closed."""

    def __init__(self, context: flow.OperatorContext) -> None: ...

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)

    def close(self) -> None:
        raise OSError("still open")


def test_a_damaged_checkpoint_and_the_rows_that_were_taken_back_for_it_are_told(tmp_path: Path) -> None:
    store, out = flow.Checkpointing(tmp_path / "ckpt", every="60ms"), tmp_path / "out"
    *_, newest = [c.checkpoint for c in numbers(op.write_parquet(out)).run("simulated", checkpoint=store).checkpoints]
    (file,) = out.glob(f"part-{newest:08d}-*")
    lost = pq.read_metadata(file).num_rows
    part = next((tmp_path / "ckpt" / f"chk-{newest:08d}").glob("*.part"))
    part.write_bytes(part.read_bytes()[:-1] + b"\xff")
    result, found = caught(lambda: numbers(op.write_parquet(out)).run("simulated", checkpoint=store))
    assert [warning.category for warning in found] == [CheckpointSkippedWarning, RowsTakenBackWarning]
    assert f"checkpoint {newest} in {tmp_path}/ckpt is damaged, so checkpoint {newest - 1}" in str(found[0].message)
    assert f"so {lost:,} rows in 1 file that sink 'out' had committed later" in str(found[1].message)
    assert op.read_committed(out).num_rows == 3_000
    assert sum(line.startswith("  warning: ") for line in str(result).splitlines()) == 2


class Stubborn(op.write_parquet("anywhere").__class__):  # type: ignore[misc, name-defined]
    """Refuses to commit twice."""

    refusals = 2

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        if handles and self.refusals:
            self.refusals -= 1
            raise StoreError("no space left")
        super().commit(checkpoint, handles)


def test_commits_that_were_tried_again_are_told(tmp_path: Path) -> None:
    sink = op.write_parquet(tmp_path / "out")
    sink.__class__ = Stubborn
    with pytest.warns(CommitsRetriedWarning, match=r"^2 commits of sink 'out' failed .*no space left"):
        numbers(sink, rows=10).run()


def test_commits_that_fail_for_long_are_told_once_while_the_job_runs(tmp_path: Path, force: Force) -> None:
    force(committer, "_LONG_WAIT", 1, calls=Committer.overdue, giving=bool)
    shown: list[tuple[str, list[tuple[str, int]], JobState]] = []
    sink: Any = op.write_parquet(tmp_path / "out")
    sink.__class__ = Stubborn

    def show(message: Any, *_: Any, **__: Any) -> None:
        shown.append((str(message), [(one.sink, one.rows) for one in job.progress().waiting], job.state))
        sink.refusals = 0  # until now, every commit was refused

    sink.refusals = 1_000
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        with numbers(sink, rows=10).start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1h")) as job:
            result = job.wait()
    (text, waiting, state), *others = shown
    assert text.startswith("10 rows have waited ")
    assert (waiting, state) == ([("out", 10)], JobState.RUNNING)
    assert [type(warning) for warning in result.warnings] == [CommitsDelayedWarning, CommitsRetriedWarning]
    assert len(others) == 1
    assert job.progress().waiting == ()


def test_a_delayed_commit_that_a_filter_turns_into_an_error_is_raised_at_the_end(tmp_path: Path, force: Force) -> None:
    force(committer, "_LONG_WAIT", 1, calls=Committer.overdue, giving=bool)
    sink = op.write_parquet(tmp_path / "out")
    sink.__class__ = Stubborn
    with pytest.raises(CommitsDelayedWarning) as raised:
        numbers(sink, rows=10).run()
    assert raised.value.result.rows_out == {"out": 10}


def test_a_predicate_that_stopped_the_job_and_no_longer_holds_is_told() -> None:
    with numbers(rows=100_000).start(checkpoint=flow.Checkpointing(flow.MemoryStore(), every="5ms")) as job:
        answers = job.stop_when(lambda state: state.snapshot == 2)
        with pytest.warns(UnstablePredicateWarning, match="held at checkpoint 2"):
            job.wait()
    assert answers.lapsed == 3


def test_warnings_come_from_the_thread_that_waits() -> None:
    threads = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_, **__: threads.append(threading.current_thread())  # type: ignore[assignment]
        late_pipeline().run()
    assert threads == [threading.current_thread()]


def test_a_job_that_is_left_early_warns_when_it_is_cancelled() -> None:
    def leave() -> None:
        with numbers(rows=100_000).start(checkpoint=flow.Checkpointing(FullStore(1), every="1ms")) as job:
            while not job.progress().failed:
                pass

    with pytest.warns(CheckpointsFailedWarning):
        leave()


def test_injected_faults_are_in_the_result_and_not_warned_of() -> None:
    runner = flow.SimulatedRunner(3, Faults(fail=0.3))
    result = numbers(rows=300).run(runner, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert CheckpointsFailedWarning in [type(warning) for warning in result.warnings]


def test_every_category_is_a_barrierflow_warning() -> None:
    categories = [value for name, value in vars(flow.errors).items() if name.endswith("Warning")]
    assert all(issubclass(category, BarrierflowWarning) for category in categories)
    assert {category.__name__ for category in categories} <= {*flow.errors.__all__}


def failing() -> flow.Pipeline:
    def refuse(batch: pa.RecordBatch) -> pa.RecordBatch:
        raise ValueError("no")

    with flow.Pipeline("failing") as p:
        rows = p.source(op.from_arrow(pa.table({"n": [1]})), name="rows")
        rows.map_batches(refuse, schema=pa.schema({"n": pa.int64()}), name="refuse").sink(op.collect(), name="out")
    return p


def is_over(job: flow.LocalJob) -> flow.LocalJob:
    while job.state is JobState.RUNNING:
        pass
    assert job._run.wait(60)
    return job


def test_a_block_that_is_left_without_waiting_warns_of_a_job_that_failed() -> None:
    match = "'failing' failed, but its block ended without job.wait.*no"
    with pytest.warns(JobFailedWarning, match=match), failing().start() as job:
        is_over(job)
    with failing().start() as job, pytest.raises(ValueError, match="no"):
        job.wait()


def divides_by_zero(job: flow.LocalJob) -> float:
    return is_over(job).progress().rows_in / 0


def test_a_block_that_is_left_by_another_error_warns_of_a_job_that_failed() -> None:
    with (
        pytest.raises(ZeroDivisionError),
        pytest.warns(JobFailedWarning, match="'failing' failed.*no"),
        failing().start() as job,
    ):
        divides_by_zero(job)


def test_a_block_that_is_left_by_the_error_of_the_job_does_not_warn() -> None:
    with pytest.raises(ValueError, match="no"), failing().start() as job:
        is_over(job).checkpoint()


def test_late_rows_of_endless_input_are_not_sent_to_a_batch() -> None:
    ticks = flow.Pipeline().source(op.generate({"k": op.sequence()}), name="ticks")
    (warning,) = late_rows(ticks._pipeline.graph, [OperatorMetrics("windows", 9, 1, late=2)])
    assert str(warning).endswith("; if the input is unordered, wait longer with delay= or lateness=")


def test_a_block_that_is_left_without_waiting_warns_of_late_rows() -> None:
    with pytest.warns(LateRowsWarning), late_pipeline().start() as job:
        is_over(job)


def test_an_error_of_the_block_is_not_replaced_by_a_warning_that_is_an_error() -> None:
    def leave() -> None:
        with late_pipeline().start() as job:  # the tests run with warnings as errors
            is_over(job)
            raise KeyError("of the user")

    with pytest.raises(KeyError) as raised:
        leave()
    assert ["LateRowsWarning" in note for note in raised.value.__notes__] == [True]


def test_a_result_takes_no_longer_when_it_is_asked_for_again() -> None:
    job = numbers().start()
    first = is_over(job).wait()
    assert job.wait().duration == first.duration


def test_of_many_events_of_a_category_the_first_five_are_told_and_all_are_counted() -> None:
    notices = Notices()
    for number in range(1_000):
        notices.add(CleanupFailedWarning, f"cannot delete {number}")
    (warning,) = notices.warnings()
    assert str(warning) == f"1,000 times: {'; '.join(f'cannot delete {n}' for n in range(5))}; ..."


def test_all_warnings_have_one_root() -> None:
    found = [getattr(flow.errors, name) for name in flow.errors.__all__]
    assert all(
        issubclass(kind, BarrierflowWarning) for kind in found if isinstance(kind, type) and issubclass(kind, Warning)
    )
