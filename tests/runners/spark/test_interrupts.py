"""Ctrl-C on a real process, as a terminal sends it: to everybody of the process group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.spark.quiet_logs import is_spark_handler
from dataflow.runners.spark.runner import SparkRunner
from tests.runners.spark.engine import ROOT
from tests.runners.spark.interrupted import ROWS, options, pipeline


def start(directory: Path) -> subprocess.Popen[str]:
    """The process, once the second micro-batch has come to its sinks."""
    command = [sys.executable, str(Path(__file__).with_name("interrupted.py")), str(directory)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) > 1_000:
            return process
    pytest.fail(process.communicate()[1])


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore::dataflow.errors.RowsTakenBackWarning")
def test_an_interrupt_stops_the_query_in_a_few_lines_and_a_restart_loses_and_repeats_nothing(
    spark: Any, tmp_path: Path
) -> None:
    process = start(tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGINT, errors
    assert "done" not in output
    first, *_, last = errors.splitlines()
    assert first == "interrupted: stopping the query"
    assert last.endswith("run again with restore='auto' to resume after them")
    assert not {"py4j", "pyspark", "WARN", "Streaming"} & set(errors.replace(".", " ").split()), errors
    assert len(op.read_committed(tmp_path / "out")) < ROWS
    again = pipeline(tmp_path, lambda batch: None).run(SparkRunner(spark), **options(tmp_path))
    assert again.restore_report is not None
    assert sorted(op.read_committed(tmp_path / "out")["n"].to_pylist()) == list(range(ROWS))


@pytest.mark.soak
def test_nobody_waits_for_ever_for_a_function_in_the_driver(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on, came = threading.Event(), threading.Event()

    def stuck(batch: pa.RecordBatch) -> None:
        came.set()
        go_on.wait(120)

    job = pipeline(tmp_path, stuck).start(SparkRunner(spark, rows_per_trigger=500), **options(tmp_path))
    assert came.wait(60)
    with pytest.raises(flow.errors.JobTimeout):
        job.wait(timeout="1us")
    assert "a function in the driver has not returned yet" in caplog.text
    with pytest.raises(flow.errors.DirectoryInUse):
        pipeline(tmp_path, stuck).run(SparkRunner(spark), **options(tmp_path))
    go_on.set()
    job._stopping.join(60)  # it gives the directory back
    assert not job._stopping.is_alive()
    assert not list((tmp_path / "out").glob("*.parquet")), "a micro-batch of a job that was over was committed"
    pipeline(tmp_path, lambda batch: None).run(SparkRunner(spark), **options(tmp_path))
    assert sorted(op.read_committed(tmp_path / "out")["n"].to_pylist()) == list(range(ROWS))


def test_a_handler_of_sparks_is_put_aside_while_somebody_waits_and_comes_back() -> None:
    def handler(number: int, frame: object) -> None:
        raise AssertionError("it would call the JVM in the middle of another call")

    handler.__module__ = "pyspark.core.context"
    before = signal.signal(signal.SIGINT, handler)
    try:
        with CtrlC(replaces=is_spark_handler) as pressed:
            signal.raise_signal(signal.SIGINT)
            assert pressed.count == 1
        assert signal.getsignal(signal.SIGINT) is handler
        with CtrlC() as pressed, pytest.raises(AssertionError, match="in the middle"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
