"""What functions do to the processes they run in, and what of it reaches the user: with a name, and in a few lines."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

import dataflow as flow
import operators as op
from dataflow.errors import SparkFailed
from dataflow.runners.spark.runner import SparkRunner
from dataflow.runners.spark.user_errors import original_error, spark_failure

NUMBERS = pa.table({"x": range(100)})


class Locked(Exception):
    """Cannot be pickled."""

    def __init__(self) -> None:
        super().__init__("no room")
        self.lock = threading.Lock()


def leave() -> NoReturn:
    raise SystemExit(3)


def close() -> NoReturn:
    raise GeneratorExit("of a user")


def lock() -> NoReturn:
    raise Locked


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Doing(flow.Operator):
    """Does something to its process when the 50 comes, behind a shuffle."""

    def __init__(self, context: flow.OperatorContext, *, what: Callable[[], object]) -> None:
        self.what = what

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        if 50 in batch["x"].to_pylist():
            self.what()
        out.emit(batch)

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot()


def in_a_source_task(what: Callable[[], object]) -> flow.Pipeline:
    def do(batch: pa.RecordBatch) -> pa.RecordBatch:
        what()
        return batch

    with flow.Pipeline("source task") as p:
        source = p.source(op.from_arrow(NUMBERS, batch_rows=10), name="numbers")
        source.map_batches(do, schema=source.schema, name="doing").sink(op.collect(), name="out")
    return p


def in_a_keyed_task(what: Callable[[], object]) -> flow.Pipeline:
    with flow.Pipeline("keyed task") as p:
        source = p.source(op.from_arrow(NUMBERS, batch_rows=10), name="numbers").key_by("x")
        source.apply(lambda context: Doing(context, what=what), schema=source.schema, name="doing").sink(
            op.collect(), name="out"
        )
    return p


def failure(spark: Any, pipeline: flow.Pipeline) -> BaseException:
    with pytest.raises(BaseException) as caught:
        pipeline.run(SparkRunner(spark), parallelism=1, max_key_groups=2, timeout="2min")
    return caught.value


def test_an_exit_in_a_source_task_is_raised_as_locally_with_the_operators_name(spark: Any) -> None:
    for leaving, kind in ((leave, SystemExit), (close, GeneratorExit)):
        error = failure(spark, in_a_source_task(leaving))
        assert isinstance(error, kind)
        assert getattr(error, "code", 3) == 3
        assert "in operator 'doing' of numbers[0]" in error.__notes__[0]


def test_an_exception_that_cannot_be_pickled_comes_with_its_name_text_and_place(spark: Any) -> None:
    error = failure(spark, in_a_keyed_task(lock))
    assert str(error) == "Locked: no room"
    assert "in operator 'doing' of doing[" in error.__notes__[0]


@pytest.mark.parametrize(
    ("build", "place"),
    [
        pytest.param(
            in_a_source_task, r"numbers[0] (operators 'numbers', 'doing')", id="source", marks=pytest.mark.soak
        ),
        pytest.param(in_a_keyed_task, r"doing[", id="keyed"),
    ],
)
def test_the_death_of_a_worker_is_told_with_its_task_and_what_to_do_next(
    spark: Any, build: Callable[[Callable[[], object]], flow.Pipeline], place: str
) -> None:
    error = failure(spark, build(die))
    assert isinstance(error, SparkFailed)
    assert f"a Python worker died without an error at {place}" in str(error)
    assert "Run again: a stream with checkpoint= resumes after the last micro-batch, a batch begins anew" in str(error)
    assert "\tat " not in str(error)
    assert len(str(error)) < 600
    assert "exited unexpectedly" in str(error.spark_error)


def test_a_jvm_that_is_gone_is_named_however_the_bridge_to_it_says_so() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    bridge = ClientServer(java_parameters=JavaParameters(port=port), python_parameters=PythonParameters(port=0))
    try:
        with pytest.raises(OSError, match="refused") as refused:
            bridge.jvm.System.currentTimeMillis()
    finally:
        bridge.shutdown_callback_server()
    found = original_error(refused.value)
    assert isinstance(found, SparkFailed)
    assert "the JVM was killed or has crashed; start this program again" in str(found)


@pytest.mark.parametrize(
    "text",
    [
        "[STREAM_FAILED] Query [id = 1] terminated with exception: Cannot invoke "
        '"org.apache.spark.scheduler.DAGScheduler.cleanupQueryJobs(long)" because the return value of '
        '"org.apache.spark.SparkContext.dagScheduler()" is null',
        "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.",
        "Job 3 cancelled because SparkContext was shut down",
    ],
)
def test_a_session_that_was_stopped_meanwhile_is_named(text: str) -> None:
    from pyspark.errors import PySparkException

    assert "the SparkSession was stopped while the job ran: build a new one" in str(
        spark_failure(PySparkException(text))
    )


def test_a_refused_connection_of_a_users_function_stays_what_it_is() -> None:
    with pytest.raises(ConnectionRefusedError) as refused:
        raise ConnectionRefusedError("the database is down")
    assert original_error(refused.value) is refused.value
