"""Users' functions, sources and sinks that raise: the job ends with their exception and says where it came from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CommitsRetriedWarning, SchemaMismatch
from dataflow.runtime.job import committer
from dataflow.runtime.job.committer import Committer
from tests.forcing import Force
from tests.reality.parts import CountingSource, FlakySink


def numbers(function: Callable[[pa.RecordBatch], Any], sink: flow.Sink | None = None) -> flow.Pipeline:
    """200 numbers through ``function``."""
    with flow.Pipeline("numbers") as p:
        stream = p.source(CountingSource(20), name="numbers").rebalance()
        stream.map_batches(function, name="function").sink(sink or op.collect(), name="out")
    return p


def raising(error: BaseException, at: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Raises ``error`` at the batch whose first number is ``at``."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch["n"][0].as_py() == at:
            raise error
        return batch

    return function


@pytest.mark.parametrize("error", [ZeroDivisionError("mine"), SystemExit("mine"), StopIteration("mine"), MemoryError()])
def test_a_function_that_raises_ends_the_job_with_its_exception_and_where(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        numbers(raising(error, at=50)).run(parallelism=2)
    assert caught.value is error
    notes = "\n".join(error.__notes__)
    assert "raised by operator 'function' (MapBatchesOperator), subtask function[" in notes
    assert "the current batch has 10 rows of [n]; first:\n  {'n': 50}" in notes


def test_a_job_that_failed_can_be_run_again() -> None:
    mood = [raising(ValueError("once"), at=50), lambda batch: batch]
    p = numbers(lambda batch: mood[0](batch))
    with pytest.raises(ValueError, match="once"):
        p.run()
    del mood[0]
    assert p.run().table("out").num_rows == 200


def test_a_failed_job_goes_on_from_its_last_checkpoint(tmp_path: Any) -> None:
    sink, mood, store = FlakySink(), [raising(ValueError("once"), at=150)], flow.Checkpointing(tmp_path, every="1ms")
    p = numbers(lambda batch: mood[0](batch), sink)
    with pytest.raises(ValueError, match="once"):
        p.run(checkpoint=store)
    mood[0] = lambda batch: batch
    p.run(checkpoint=store)
    assert sink.rows == list(range(200))


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        ("text", TypeError, "must return a RecordBatch, a Table, .*it returned a builtins.str"),
        (pa.table({"m": [1]}), SchemaMismatch, r"column 'n' \(int64\) is missing.*change the function or the schema"),
        (pa.table({"n": ["1"]}), SchemaMismatch, "column 'n' should be int64 but is string"),
    ],
)
def test_a_wrong_answer_of_map_batches_is_named(answer: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        numbers(lambda batch: answer).run()


def test_a_source_that_raises_in_poll_ends_the_job_with_where() -> None:
    def poll(batch: int) -> None:
        if batch == 3:
            raise ConnectionError("the wire is cut")

    with flow.Pipeline("wired") as p:
        p.source(CountingSource(20, poll), name="wire").sink(op.collect(), name="out")
    with pytest.raises(ConnectionError, match="the wire is cut") as caught:
        p.run()
    assert caught.value.__notes__ == [
        "raised by source 'wire' (CountingSource), split 'numbers'",
        "raised in task wire[0]",
    ]


def test_a_sink_that_raises_in_begin_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def begin() -> None:
        raise ConnectionError("the wire is cut")

    sink = FlakySink()
    monkeypatch.setattr(sink, "begin", begin)
    with pytest.raises(ConnectionError) as caught:
        numbers(lambda batch: batch, sink).run()
    assert caught.value.__notes__ == ["raised by begin() of sink 'out' (FlakySink)"]


def test_a_commit_that_fails_twice_is_tried_again(tmp_path: Any) -> None:
    def flaky(attempt: int) -> None:
        if attempt <= 2:
            raise ConnectionError("not now")

    sink = FlakySink(flaky)
    with pytest.warns(CommitsRetriedWarning, match="2 commits of sink 'out' failed"):
        numbers(lambda batch: batch, sink).run(checkpoint=flow.Checkpointing(tmp_path))
    assert sink.attempts == 3
    assert sink.rows == list(range(200))


def test_a_commit_that_always_fails_ends_the_job_and_a_rerun_commits(tmp_path: Any, force: Force) -> None:
    def failing(attempt: int) -> None:
        if broken:
            raise ConnectionError("never")

    force(committer, "_FIRST_RETRY", 1_000, calls=Committer.failed, times=2)
    broken, store = [True], flow.Checkpointing(tmp_path)
    sink = FlakySink(failing)
    with pytest.raises(ConnectionError) as caught:
        numbers(lambda batch: batch, sink).run(checkpoint=store)
    assert "run again with restore='auto' to commit them" in caught.value.__notes__[0]
    assert sink.rows == []
    broken.clear()
    numbers(lambda batch: batch, sink).run(checkpoint=store)
    assert sink.rows == list(range(200))


def test_a_commit_that_always_fails_ends_a_job_that_is_stopped(tmp_path: Any, force: Force) -> None:
    def failing(attempt: int) -> None:
        if broken:
            tried.set()
            raise ConnectionError("never")

    force(committer, "_FIRST_RETRY", 1_000, calls=Committer.failed, times=2)
    broken, tried, sink = [True], threading.Event(), FlakySink(failing)
    with flow.Pipeline("endless") as p:
        p.source(op.generate({"n": op.sequence()}, rate="1000/s"), name="in").sink(sink, name="out")
    checkpoint = flow.Checkpointing(tmp_path, every="10ms")
    with p.start(checkpoint=checkpoint) as job:
        assert tried.wait(60)
        with pytest.raises(ConnectionError) as caught:
            job.stop()
    assert "its rows are staged and durable" in caught.value.__notes__[0]
    assert not sink.committed
    broken.clear()
    with p.start(checkpoint=checkpoint, restore="latest") as job:
        job.stop()
    assert sink.committed
    assert sink.rows == list(range(len(sink.rows)))


def test_a_commit_that_leaves_with_system_exit_does_not_hang_the_job(tmp_path: Any) -> None:
    def leaving(attempt: int) -> None:
        raise SystemExit("out of here")

    with pytest.raises(SystemExit, match="out of here"):
        numbers(lambda batch: batch, FlakySink(leaving)).run(checkpoint=flow.Checkpointing(tmp_path))
