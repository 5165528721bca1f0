"""Jobs on real threads: started, cancelled, stopped and interrupted from outside, and what they leave behind."""

from __future__ import annotations

import logging
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import (
    CheckpointError,
    DirectoryInUse,
    JobCancelled,
    JobTimeout,
    LateRowsWarning,
    StillRunningWarning,
)
from dataflow.runners import local_job
from dataflow.runners.local_job import LocalJob
from tests.forcing import Force
from tests.reality.conftest import engine_threads, open_files
from tests.reality.parts import CountingSource, FlakySink, Gatekeeper, SilentSource


def counting(sink: flow.Sink, *, batches: int | None = None, function: Any = None) -> flow.Pipeline:
    """Numbers, through ``function``, into ``sink``."""
    with flow.Pipeline("numbers") as p:
        numbers = p.source(CountingSource(batches), name="numbers")
        if function is not None:
            numbers = numbers.map_batches(function, name="function")
        numbers.sink(sink, name="out")
    return p


def test_leaving_the_block_early_cancels_the_job(tmp_path: Path) -> None:
    with counting(op.write_parquet(tmp_path / "out")).start() as job:
        pass
    with pytest.raises(JobCancelled):
        job.wait()


def test_another_thread_may_cancel_a_job() -> None:
    gate = Gatekeeper()
    with counting(op.collect(), function=gate).start() as job, ThreadPoolExecutor() as pool:
        gate.reached.wait()
        cancelled = pool.submit(job.cancel)
        gate.open.set()
        with pytest.raises(JobCancelled):
            job.wait()
        cancelled.result()


def test_a_stopped_job_goes_on_where_it_was(tmp_path: Path) -> None:
    sink = FlakySink()
    gate, store = Gatekeeper(first=5), flow.Checkpointing(tmp_path / "ckpt")
    with counting(sink, batches=20, function=gate).start(checkpoint=store) as job:
        gate.reached.wait()
        with ThreadPoolExecutor() as pool:
            stopped = pool.submit(job.stop)
            gate.open.set()
            assert stopped.result().state.value in ("stopped", "finished")
    result = counting(sink, batches=20).run(checkpoint=store)
    assert result.restore_report is not None
    assert sink.rows == list(range(200))


def test_a_checkpoint_on_request_is_durable_and_committed_when_it_answers(tmp_path: Path) -> None:
    sink = FlakySink()
    with counting(sink).start(checkpoint=flow.Checkpointing(tmp_path / "ckpt")) as job:
        first = job.checkpoint(timeout="30s")
        assert sink.attempts > 0
        assert job.checkpoint(timeout="30s") > first
        assert flow.DirectoryStore(tmp_path / "ckpt").checkpoints() == [first, first + 1]


def test_a_checkpoint_that_is_held_up_says_so_and_may_still_be_committed(tmp_path: Path) -> None:
    gate = Gatekeeper()
    with counting(op.collect(), function=gate).start(checkpoint=flow.Checkpointing(tmp_path / "c", every="1h")) as job:
        gate.reached.wait()
        with pytest.raises(TimeoutError, match=r"not committed within 10\.0 ms; the job continues, .* job\.who_waits"):
            job.checkpoint(timeout="10ms")
        gate.open.set()
        job.checkpoint(timeout="30s")
        assert [record.checkpoint for record in job.checkpoints] == [1, 2]


def test_a_checkpoint_asked_of_a_job_that_is_over_is_refused_at_once() -> None:
    with counting(op.collect(), batches=3).start() as job:
        job.wait()
        with pytest.raises(JobCancelled, match="the job is finished"):
            job.checkpoint(timeout="30s")


def test_a_checkpoint_asked_of_a_failed_job_raises_the_error_of_the_job() -> None:
    def fails(batch: Any) -> Any:
        raise ValueError("broken by the function")

    with counting(op.collect(), batches=3, function=fails).start() as job:
        with pytest.raises(ValueError, match="broken by the function"):
            job.wait()
        with pytest.raises(ValueError, match="broken by the function"):
            job.checkpoint(timeout="30s")


def test_requests_that_meet_the_end_of_a_job_are_all_answered(tmp_path: Path) -> None:
    with counting(op.collect(), batches=200).start(checkpoint=flow.Checkpointing(tmp_path / "ckpt")) as job:
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(job.checkpoint, timeout="60s") for _ in range(40)]
            job.wait()
        assert all(isinstance(a.exception(), JobCancelled | CheckpointError | None) for a in asked)


def test_head_of_an_endless_source_stops_early() -> None:
    numbers = flow.Pipeline("numbers").source(CountingSource())
    assert numbers.head(3)["n"].to_pylist() == [0, 1, 2]
    assert numbers.head(25, parallelism=3)["n"].to_pylist() == list(range(25))
    assert numbers.head(0).num_rows == 0


def test_collect_runs_what_a_stream_depends_on(few_orders: Path) -> None:
    kept = flow.Pipeline("orders").source(op.read_parquet(few_orders)).filter(col("amount") > 0)
    amounts = duckdb.execute(f"select amount from '{few_orders}/*.parquet'").fetchall()
    assert kept.collect(parallelism=2).num_rows == sum(amount > 0 for (amount,) in amounts)


def test_two_jobs_run_side_by_side_in_directories_of_their_own(tmp_path: Path) -> None:
    sinks = [FlakySink(), FlakySink()]
    jobs = [
        counting(sink, batches=50).start(checkpoint=flow.Checkpointing(tmp_path / str(i), every="5ms"))
        for i, sink in enumerate(sinks)
    ]
    for job in jobs:
        job.wait()
    assert [sink.rows for sink in sinks] == [list(range(500))] * 2


def test_a_second_job_on_the_same_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    sink, gate, store = FlakySink(), Gatekeeper(), flow.Checkpointing(tmp_path / "ckpt")
    with counting(sink, batches=5, function=gate).start(checkpoint=store) as first:
        with pytest.raises(DirectoryInUse, match=r"in use by process \d+ on .*wait for that job, or use another"):
            counting(FlakySink(), batches=5).run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))
        gate.open.set()
        first.wait()
    assert sink.rows == list(range(50))


def test_fifty_jobs_leave_no_thread_file_or_lock_behind(tmp_path: Path) -> None:
    counting(FlakySink(), batches=3).run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"))
    before = open_files()
    for i in range(50):
        store = flow.Checkpointing(tmp_path / f"ckpt-{i // 2}", every="1ms")  # every second run finds a finished job
        counting(FlakySink(), batches=3).run(checkpoint=store, parallelism=1 + i // 2 % 3)
        assert engine_threads() == []
    assert open_files() == before


def test_a_timeout_cancels_the_job_and_says_what_it_was_doing(tmp_path: Path) -> None:
    with pytest.raises(JobTimeout, match=r"at that moment:\nnumbers\[0\]: "):
        counting(op.write_parquet(tmp_path / "out")).run(timeout="50ms")


def test_a_job_that_fails_as_its_time_is_over_raises_its_own_error() -> None:
    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        gate(batch)
        raise ValueError("its own")

    gate = Gatekeeper()
    job = counting(op.collect(), function=failing).start()
    waits = job.who_waits

    def fail_now() -> str:
        text = waits()
        gate.open.set()
        assert job._run.wait(60)
        return text

    gate.reached.wait()
    job.who_waits = fail_now  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="its own"):
        job.wait(timeout="1ms")


def test_an_interrupt_is_raised_though_the_job_ends_as_its_time_is_over() -> None:
    gate = Gatekeeper()
    job = counting(op.collect(), batches=1, function=gate).start()
    waits = job.who_waits

    def interrupted() -> str:
        text = waits()
        signal.raise_signal(signal.SIGINT)
        gate.open.set()
        assert job._run.wait(60)
        return text

    gate.reached.wait()
    job.who_waits = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        job.wait(timeout="1ms")


def test_a_timeout_does_not_wait_for_a_function_that_does_not_return(
    force: Force,
) -> None:
    force(local_job, "_GRACE", 0.05, calls=LocalJob._cancel, giving=bool)
    gate = Gatekeeper()
    job = counting(op.collect(), function=gate).start()
    gate.reached.wait()
    with (
        pytest.raises(JobTimeout, match="busy in operator 'function'"),
        pytest.warns(StillRunningWarning, match="still waits for a call to return"),
    ):
        job.wait(timeout="1ms")
    gate.open.set()
    with pytest.raises(JobCancelled):
        job.wait()


def test_a_job_that_outlived_its_cancel_warns_of_late_rows_when_it_is_over(force: Force) -> None:
    force(local_job, "_GRACE", 0.05, calls=LocalJob._cancel, giving=bool)
    gate = Gatekeeper()
    late = pa.table({"n": [0, 1], "time": pa.array([100, 0], pa.timestamp("s"))})
    with flow.Pipeline("late") as p:
        (
            p.source(op.from_arrow(late, batch_rows=1), name="in")
            .with_watermark("time")
            .key_by("n")
            .window(op.tumbling("1s"))
            .agg(op.count().alias("c"), name="windows")
            .map_batches(gate, name="function")
            .sink(op.collect(), name="out")
        )
    job = p.start()
    gate.reached.wait()
    with warnings.catch_warnings(record=True) as first:
        warnings.simplefilter("always")
        job.cancel()
    gate.open.set()
    with pytest.warns(LateRowsWarning, match="1 row"), pytest.raises(JobCancelled):
        job.wait()
    assert [warning.category for warning in first] == [StillRunningWarning]


def test_a_job_that_outlives_its_cancel_and_its_block_is_warned_of_once(force: Force) -> None:
    force(local_job, "_GRACE", 0.05, calls=LocalJob._cancel, giving=bool)
    gate = Gatekeeper()
    with flow.Pipeline("stuck") as p:
        rows = p.source(op.from_arrow(pa.table({"n": [0]})), name="in").map_batches(gate, name="function")
        rows.sink(op.collect(), name="out")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        with p.start() as job:
            gate.reached.wait()
            job.cancel()
    gate.open.set()
    with pytest.raises(JobCancelled):
        job.wait()
    assert [warning.category for warning in given] == [StillRunningWarning]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_stalled_job_says_who_waits_for_whom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, checkpointed: bool
) -> None:
    with flow.Pipeline("stalled") as p:
        p.source(SilentSource(), name="silent").key_by("n").agg(op.count().alias("c"), name="counts").sink(
            op.collect(), name="out"
        )
    store = flow.Checkpointing(tmp_path / "ckpt", every="20ms") if checkpointed else None
    said = threading.Event()
    handler = _Telling(said)
    logging.getLogger("dataflow.local").addHandler(handler)
    try:
        with p.start(flow.LocalRunner(stall_after="100ms"), checkpoint=store):
            assert said.wait(30), "the watchdog said nothing"
    finally:
        logging.getLogger("dataflow.local").removeHandler(handler)
    assert "no row has moved for 100.0 ms" in caplog.text
    assert "silent[0]: waiting for input" in caplog.text
    assert "its source has no rows now" in caplog.text
    assert "empty: silent[0] -> counts[0]" in caplog.text


class _Telling(logging.Handler):
    def __init__(self, said: threading.Event) -> None:
        super().__init__(logging.WARNING)
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        self._said.set()


def test_a_full_channel_is_named_with_whom_it_waits_for() -> None:
    gate, moment = Gatekeeper(), threading.Event()
    with flow.Pipeline("full") as p:
        p.source(CountingSource(), name="numbers").rebalance().map_batches(gate, name="slow").sink(
            op.collect(), name="out"
        )
    with p.start(channel_credit=1) as job:
        gate.reached.wait()
        while "full: numbers[0] -> slow[0] (10 rows queued)" not in job.who_waits():
            assert job.state.value == "running"
            moment.wait(0.001)
        text = job.who_waits()
        gate.open.set()
    assert "numbers[0]: back-pressured" in text
    assert "busy in operator 'slow', which took 10 rows so far" in text
