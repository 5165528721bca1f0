"""Restarts inside one run on threads: what an attempt restores, what lives on, what ends a delay, what is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import EndOfSplit, Json, SourceContext
from dataflow.errors import (
    CheckpointDamaged,
    CheckpointError,
    ConfigurationError,
    DirectoryInUse,
    JobCancelled,
    JobRestartedWarning,
    JobTimeout,
    StillRunningWarning,
    StoreError,
)
from dataflow.runners import local_run
from dataflow.runners.local_job import LocalJob
from dataflow.runners.local_run import LocalRun
from dataflow.runtime.task.progress import JobState
from dataflow.store.manifest import PartHandle
from dataflow.testing import Ledger, ledger_sink
from dataflow.testing.ledger import LedgerSink
from tests.forcing import Force
from tests.reality.parts import CountingSource, Gatekeeper

AT_ONCE = flow.Restarts.fixed(10, "0s")
BATCHES = 6
ROWS = BATCHES * 10


@pytest.fixture(autouse=True)
def restarts_are_expected() -> Iterator[None]:
    with warnings.catch_warnings(category=JobRestartedWarning, action="ignore"):
        yield


class Gated(CountingSource):
    """Ascending numbers in batches of ten; batch n comes when ``may_read(n)`` is true."""

    def __init__(self, may_read: Callable[[int], object] = lambda batch: True, batches: int | None = BATCHES) -> None:
        super().__init__(batches)
        self._may_read = may_read

    def reader(self, split: flow.Split, offset: Json, context: SourceContext) -> flow.SplitReader:
        return _GatedReader(super().reader(split, offset, context), self._may_read)


class _GatedReader(flow.SplitReader):
    def __init__(self, reader: flow.SplitReader, may_read: Callable[[int], object]) -> None:
        self._reader = reader
        self._may_read = may_read

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        at = self._reader.offset
        assert isinstance(at, int)
        return self._reader.poll(max_rows) if at >= BATCHES or self._may_read(at) else None

    @property
    def offset(self) -> Json:
        return self._reader.offset


class Failing:
    """A function of batches that raises the next of ``errors`` at the batch whose first number is ``at``."""

    def __init__(self, *errors: BaseException, at: int = 50) -> None:
        self.errors = list(errors)
        self.at = at

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() == self.at and self.errors:
            raise self.errors.pop(0)
        return batch


def numbers(function: Any, sink: flow.Sink | None = None, source: flow.Source | None = None) -> flow.Pipeline:
    with flow.Pipeline("numbers") as p:
        rows = p.source(source or Gated(), name="numbers").map_batches(function, name="function")
        rows.sink(sink or op.collect(), name="out")
    return p


def memory(every: str | None = None) -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every=every)


def n_of(result: flow.RunResult) -> list[int]:
    return sorted(result.table()["n"].to_pylist())


def until(condition: Callable[[], object]) -> None:
    """Wait for ``condition``, which other threads make true."""
    for _ in range(10_000):
        if condition():
            return
        time.sleep(0.001)
    raise AssertionError("it did not come to be")


@contextmanager
def in_a_delay(p: flow.Pipeline, **options: Any) -> Iterator[LocalJob]:
    """A job that failed and waits for an hour until it restarts."""
    settings = {"checkpoint": memory(), "restarts": flow.Restarts.fixed(3, "1h"), **options}
    with p.start(**settings) as job:
        until(lambda: job.progress().restarting_in)
        assert job.state is JobState.RESTARTING
        yield job


# --- what an attempt is


def test_a_job_restarts_after_errors_and_its_result_is_that_of_the_last_attempt() -> None:
    with pytest.warns(JobRestartedWarning) as caught:
        result = numbers(Failing(OSError("one"), ValueError("two"))).run(checkpoint=memory(), restarts=AT_ONCE)
    assert n_of(result) == list(range(ROWS))
    assert (result.restarts, result.rows_in, result.state.value) == (2, {"numbers": ROWS}, "finished")
    assert [type(attempt.error) for attempt in result.attempts] == [OSError, ValueError, type(None)]
    assert [attempt.restored_checkpoint for attempt in result.attempts] == [None, None, None]
    assert result.attempts[-1].rows_read == ROWS
    times = [time for attempt in result.attempts for time in (attempt.started, attempt.ended)]
    assert times == sorted(times)  # type: ignore[type-var]
    assert [str(w.message).partition(" after ")[0] for w in caught] == [
        "2 times: the job failed at operator 'function'"
    ]
    assert "  restarts: 2; the last error: ValueError: two" in str(result)
    assert [a["error"] for a in result.to_dict()["attempts"]] == ["OSError: one", "ValueError: two", None]
    assert result.events.attempts == (1, 2, 3)


def test_an_attempt_restores_the_newest_checkpoint_and_each_row_is_there_once() -> None:
    store, failing, world = flow.MemoryStore(), Failing(OSError("lost")), Ledger()
    source = Gated(lambda batch: batch < 3 or store.checkpoints())
    p = numbers(failing, ledger_sink(world), source)
    result = p.run(checkpoint=flow.Checkpointing(store, every="1ms"), restarts=AT_ONCE)
    first, second = result.attempts
    assert second.restored_checkpoint is not None
    assert (first.restored_checkpoint, first.rows_read) == (None, ROWS)
    assert second.rows_read == result.rows_in["numbers"] < ROWS
    assert sorted(world.rows().elements()) == [(n,) for n in range(ROWS)]
    assert result.restore_report is not None


class Calls(LedgerSink):
    """Notes which calls of a sink an attempt makes, and by which run it is held."""

    def __init__(self, world: Ledger) -> None:
        super().__init__(world)
        self.calls: list[str] = []

    @contextmanager
    def hold(self, run_id: str) -> Iterator[None]:  # type: ignore[override]
        self.calls.append(f"hold {run_id}")
        yield
        self.calls.append("release")

    def begin(self) -> None:
        self.calls.append("begin")
        super().begin()

    def recover(self, checkpoint: int, handles: Any) -> None:
        self.calls.append("recover")
        super().recover(checkpoint, handles)


class Opens(flow.Operator):
    """Notes the run of each operator that is opened, and keeps no reference to it."""

    opened: ClassVar[list[tuple[str, weakref.ref[Opens]]]] = []
    alive_at_open: ClassVar[list[int]] = []

    def open(self) -> None:
        self.alive_at_open.append(sum(ref() is not None for _, ref in self.opened))
        self.opened.append((self.context.run_id, weakref.ref(self)))

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


def test_locks_are_taken_once_and_old_operators_are_freed_before_new_ones_open() -> None:
    store, world = flow.MemoryStore(), Ledger()
    sink, failing = Calls(world), Failing(OSError("one"), ValueError("two"))
    completed = store.checkpoints
    may_read = [lambda: True, completed]  # one attempt fails before the first checkpoint, one after it
    with flow.Pipeline("held") as p:
        source = Gated(lambda batch: batch < 3 or may_read[2 - len(failing.errors)]() if failing.errors else True)
        rows = p.source(source, name="numbers").apply(Opens, name="opens")
        rows.map_batches(failing, name="function").sink(sink, name="out")
    p.run(checkpoint=flow.Checkpointing(store, every="20ms"), restarts=AT_ONCE)
    runs = [run for run, _ in Opens.opened]
    assert len(set(runs)) == 3
    assert Opens.alive_at_open == [0, 0, 0]
    assert sink.calls[0] == f"hold {runs[0]}"
    assert sink.calls[-1] == "release"
    assert [call for call in sink.calls[1:-1] if call != "begin"] == ["recover"]
    assert sink.calls.count("begin") == 2


def test_before_its_first_checkpoint_an_attempt_restores_what_the_user_named(tmp_path: Path) -> None:
    stopped = numbers(lambda batch: batch, source=Gated(lambda batch: batch < 3)).start(
        checkpoint=flow.Checkpointing(tmp_path / "old")
    )
    with stopped:
        until(lambda: stopped.progress().rows_in == 30)
        stopped.stop()
    new, record = flow.Checkpointing(tmp_path / "new"), tmp_path / "events.arrow"
    p, path = numbers(Failing(OSError("one"))), tmp_path / "old" / "chk-00000001"
    result = p.run(checkpoint=new, restore=str(path), restarts=AT_ONCE, record=record)
    assert [attempt.restored_checkpoint for attempt in result.attempts] == [1, 1]
    assert n_of(result) == list(range(ROWS))
    assert flow.read_events(record).attempts == (1, 2), "they are of one job"


# --- what is not restarted


@pytest.mark.parametrize("error", [MemoryError("mine"), SystemExit("mine"), ConfigurationError("mine")])
def test_some_errors_fail_the_job_at_once(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        numbers(Failing(error)).run(checkpoint=memory(), restarts=AT_ONCE)
    why = f"a restart does not help against {type(error).__name__}"
    assert caught.value.__notes__[-1] == f"the job was not restarted, because {why}"


def test_the_same_error_of_one_operator_three_times_fails_the_job_and_names_row_split_and_offset() -> None:
    failing = Failing(*[ValueError("bad row") for _ in range(9)])
    with pytest.raises(ValueError, match="bad row") as caught:
        numbers(failing).run(checkpoint=memory(), restarts=AT_ONCE)
    assert len(failing.errors) == 9 - 3
    assert caught.value.__notes__[-1] == (
        "the job was not restarted after 2 restarts, because ValueError was raised 3 times in a row by operator "
        "'function' (row {'n': 50}; split 'numbers', read up to 6), and no checkpoint was completed between; "
        "change the function, or leave the row out, and run again with restore='auto'"
    )


def test_a_function_of_rows_names_its_own_row_and_no_split_in_a_later_chain() -> None:
    def fails(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == 57:
            raise ValueError("bad row")
        return row

    with flow.Pipeline("rows") as p:
        p.source(Gated(), name="numbers").rebalance().map(fails, name="fails").sink(op.collect(), name="out")
    with pytest.raises(ValueError, match="bad row") as caught:
        p.run(checkpoint=memory(), restarts=AT_ONCE)
    assert "by operator 'fails' (row {'n': 57}), and no" in caught.value.__notes__[-1]


def test_a_completed_checkpoint_between_two_failures_separates_them() -> None:
    store, seen = flow.MemoryStore(), list[int]()

    def may_read(batch: int) -> bool:
        """Pass batch 3 only if a checkpoint was completed since the last failure."""
        return batch < 3 or max(store.checkpoints(), default=0) > max(seen, default=0)

    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() == 50 and len(seen) < 5:
            seen.append(max(store.checkpoints()))
            raise ValueError("again")
        return batch

    p = numbers(fails, source=Gated(may_read))
    assert p.run(checkpoint=flow.Checkpointing(store, every="1ms"), restarts=AT_ONCE).restarts == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"restarts": AT_ONCE}, r"restarts=Restarts.fixed\(10, '0us'\) needs checkpoint="),
        ({"restarts": 3, "checkpoint": memory()}, r"must be a policy such as .* got 3 \(int\)"),
    ],
)
def test_restarts_without_checkpoints_or_without_a_policy_are_refused(options: Any, message: str) -> None:
    for runner in ("local", "simulated"):
        with pytest.raises(ConfigurationError, match=message):
            numbers(Failing()).run(runner, **options)


def test_sources_that_cannot_be_read_again_are_refused_also_if_loss_is_accepted() -> None:
    table = pa.table({"n": [1]})
    p = numbers(Failing(), source=op.from_arrow(table, replayable=False))
    with pytest.raises(ConfigurationError, match="source 'numbers' cannot be read again from an offset"):
        p.run(checkpoint=memory(), restarts=AT_ONCE)
    assert p.run(checkpoint=memory(), restarts=flow.Restarts.none()).restarts == 0


# --- in a delay


def test_stop_ends_a_delay_and_leaves_the_newest_checkpoint_committed() -> None:
    store, world = flow.MemoryStore(), Ledger()
    source = Gated(lambda batch: batch < 3 or store.checkpoints())
    p = numbers(Failing(OSError("lost")), ledger_sink(world), source)
    with in_a_delay(p, checkpoint=flow.Checkpointing(store, every="1ms")) as job:
        assert str(job.progress()).startswith("failed, restart 1 in 60.0 min")
        result = job.stop()
    assert (result.state.value, result.rows_in, result.restarts) == ("stopped", {"numbers": 0}, 1)
    assert world.staged == 0
    p.run(checkpoint=flow.Checkpointing(store))
    assert sorted(world.rows().elements()) == [(n,) for n in range(ROWS)]


def test_cancel_ends_a_delay() -> None:
    with in_a_delay(numbers(Failing(OSError("lost")))) as job:
        job.cancel()
        assert job.state is JobState.CANCELLED
        with pytest.raises(JobCancelled):
            job.wait()


def test_ctrl_c_ends_a_delay() -> None:
    with in_a_delay(numbers(Failing(OSError("lost")))) as job:
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt) as caught:
            job.wait()
    assert job.state is JobState.STOPPED
    assert caught.value.__notes__[0].startswith("no row had been read, so no checkpoint was taken")


def test_a_checkpoint_requested_in_a_delay_is_taken_after_it() -> None:
    opened = threading.Event()
    p = numbers(Failing(OSError("lost"), at=20), source=Gated(lambda batch: batch < 4 or opened.is_set()))
    with p.start(checkpoint=memory(), restarts=flow.Restarts.fixed(3, "100ms")) as job:
        until(lambda: job.state is JobState.RESTARTING)
        assert job.checkpoint(timeout="30s") == 1
        opened.set()
        assert job.wait().restarts == 1


def test_one_that_no_attempt_will_take_fails() -> None:
    with in_a_delay(numbers(Failing(OSError("lost")))) as job:
        asked: Future[int] = job._run.request(lambda job: job.checkpoint())
        job.stop()
        assert isinstance(asked.exception(10), JobCancelled)


def test_a_checkpoint_that_is_pending_when_the_job_fails_fails() -> None:
    gate = Gatekeeper()

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not gate.open.is_set():
            gate(batch)
            raise OSError("lost")
        return batch

    with numbers(function).start(checkpoint=memory(), restarts=AT_ONCE) as job:
        assert gate.reached.wait(30)
        asked: Future[int] = job._run.request(lambda job: job.checkpoint())
        gate.open.set()
        error = asked.exception(30)
        assert isinstance(error, CheckpointError)
        assert "the job failed and restarts: OSError: lost; request it again" in str(error)
        assert n_of(job.wait()) == list(range(ROWS))


def test_the_error_of_a_job_that_gives_up_is_that_of_a_pending_request() -> None:
    gate = Gatekeeper()

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        gate(batch)
        raise MemoryError("lost")

    with numbers(function).start(checkpoint=memory(), restarts=AT_ONCE) as job:
        assert gate.reached.wait(30)
        asked: Future[int] = job._run.request(lambda job: job.checkpoint())
        gate.open.set()
        assert isinstance(asked.exception(30), MemoryError)
        with pytest.raises(MemoryError):
            job.wait()


# --- what lives on


def test_predicates_and_events_live_on() -> None:
    store = flow.MemoryStore()
    source = Gated(lambda batch: batch < 3 or store.checkpoints())
    p = numbers(Failing(OSError("lost")), source=source)
    with p.start(checkpoint=flow.Checkpointing(store, every="1ms"), restarts=AT_ONCE) as job:
        answers = job.on_checkpoint(lambda state: state.table("out").num_rows >= 0)
        before = job.events()
        result = job.wait()
    newest = max(record.checkpoint for record in result.checkpoints)
    assert newest in answers
    assert result.attempts[1].restored_checkpoint in answers, "the last one before the failure was not forgotten"
    assert list(answers) == sorted(answers)
    assert set(job.events(since=before).table["attempt"].to_pylist()) >= {2}
    assert len(job.events()) == len(before) + len(job.events(since=before))


def test_stop_when_stops_a_later_attempt() -> None:
    store = flow.MemoryStore()
    p = numbers(Failing(OSError("lost"), at=20), source=Gated(lambda batch: batch < 4))
    with p.start(checkpoint=flow.Checkpointing(store, every="1ms"), restarts=AT_ONCE) as job:
        job.stop_when(lambda state: state.table("out").num_rows == 40)
        result = job.wait()
    assert (result.state.value, result.restarts) == ("stopped", 1)


def test_the_time_to_wait_is_counted_over_all_attempts() -> None:
    def fails(batch: pa.RecordBatch) -> pa.RecordBatch:
        kinds.append(kinds[0])
        raise kinds.pop(0)("again")

    kinds: list[type[Exception]] = [OSError, ValueError]
    policy = flow.Restarts.exponential("20ms", "20ms", "1h")
    with pytest.raises(JobTimeout):
        numbers(fails).run(checkpoint=memory(), restarts=policy, timeout="100ms")


# --- what goes wrong in a restart


class Unreadable(flow.MemoryStore):
    """The next ``errors`` are raised instead of reading a part."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    def read(self, checkpoint: int, handle: PartHandle) -> Any:
        if self.errors:
            raise self.errors.pop(0)
        return super().read(checkpoint, handle)


def failing_restore(*errors: Exception) -> flow.RunResult:
    store = Unreadable(*errors)
    source = Gated(lambda batch: batch < 3 or store.checkpoints())
    p = numbers(Failing(OSError("lost")), source=source)
    return p.run(checkpoint=flow.Checkpointing(store, every="1ms"), restarts=flow.Restarts.fixed(3, "0s"))


def test_an_error_of_a_restore_counts_as_a_failure() -> None:
    result = failing_restore(StoreError("not now"), StoreError("not yet"))
    assert [type(attempt.error) for attempt in result.attempts] == [OSError, StoreError, StoreError, type(None)]
    assert n_of(result) == list(range(ROWS))
    with pytest.raises(StoreError, match="third") as caught:
        failing_restore(StoreError("first"), StoreError("second"), StoreError("third"))
    assert "it failed for the 4th time, and restarts=Restarts.fixed(3, '0us') allows 3" in caught.value.__notes__[-1]


def test_a_damaged_checkpoint_is_passed_over_and_damage_to_all_fails_the_job() -> None:
    with pytest.raises(CheckpointDamaged):
        failing_restore(*[CheckpointDamaged("torn") for _ in range(50)])


def test_too_many_failed_checkpoints_are_restarted() -> None:
    class Full(flow.MemoryStore):
        left = 3

        def write(self, checkpoint: int, task: str, data: Any, part: int = 0) -> PartHandle:
            if self.left:
                self.left -= 1
                raise StoreError("the disk is full")
            return super().write(checkpoint, task, data, part)

    store = Full()
    settings = flow.Checkpointing(store, every="1ms", tolerable_failures=0)
    source = Gated(lambda batch: batch < 3 or store.checkpoints())
    assert numbers(Failing(), source=source).run(checkpoint=settings, restarts=AT_ONCE).restarts == 3


def test_a_call_that_does_not_return_fails_the_job_and_keeps_its_locks_until_it_does(
    tmp_path: Path, force: Force
) -> None:
    force(local_run, "_PATIENCE", 0.01, calls=LocalRun._give_up_waiting)
    gate, settings = Gatekeeper(), flow.Checkpointing(tmp_path)
    with flow.Pipeline("stuck") as p:
        rows = p.source(Gated(), name="numbers")
        rows.map_batches(Failing(OSError("lost"), at=0), name="fails").sink(op.collect(), name="out")
        waits = p.source(Gated(), name="others").map_batches(gate, name="waits")
        waits.sink(op.collect(), name="waiting")
    failing = p.start(checkpoint=settings, restarts=AT_ONCE)
    with pytest.raises(OSError, match="lost") as caught, pytest.warns(StillRunningWarning):
        failing.wait()
    if not gate.reached.is_set():
        return  # the other task failed first, so no call was waiting
    assert "a call had not returned 0 s after the failure" in caught.value.__notes__[-1]
    with pytest.raises(DirectoryInUse):
        p.start(checkpoint=settings)
    gate.open.set()
    assert failing._run.done.wait(30)
    with p.start(checkpoint=settings) as job:
        job.cancel()
