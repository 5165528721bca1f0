"""An operator that is slowed down on purpose: it waits for its rows, on a thread of its own, and loses none."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow import col
from dataflow.errors import ConfigurationError
from dataflow.runners.local import LocalRunner
from operators.sinks.batches import write_batches
from operators.sinks.collect import collect
from operators.sources.arrow import from_arrow


def _pipeline(rows: int = 200, sink: flow.Sink | None = None) -> flow.Pipeline:
    with flow.Pipeline("slow") as p:
        rebalanced = p.source(from_arrow(pa.table({"x": range(rows)})), name="numbers").rebalance()
        rebalanced.filter(col("x") >= 0, name="all").rebalance().sink(sink or collect(), name="out")
    return p


def _workers() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith("dataflow-worker")]


def test_a_slow_operator_is_busy_for_its_cost_a_row_and_loses_none() -> None:
    result = _pipeline().run(LocalRunner(slow={"all": "100us"}))
    assert result.table("out").num_rows == 200
    assert next(t.meter.busy for t in result.metrics if t.task == "all[0]") >= 200 * 100


def test_a_cancelled_job_does_not_wait_for_a_slow_operator() -> None:
    with _pipeline().start(LocalRunner(slow={"all": "1h"})) as job:
        job.cancel()
    assert _workers() == []


def test_a_slow_operator_has_a_thread_of_its_own() -> None:
    with _pipeline().start(LocalRunner(threads=1, slow={"all": "1h"})):
        assert len(_workers()) == 2, "one for the source and the sink, one that waits"


def test_a_sink_that_may_wait_for_something_outside_has_a_thread_of_its_own() -> None:
    sink = write_batches(lambda context: lambda batch: None)
    with _pipeline(sink=sink).start(LocalRunner(threads=1, slow={"all": "1h"})):
        assert len(_workers()) == 3, "one for the source, one that waits, one for the sink"


def test_an_unknown_operator_cannot_be_slowed_down() -> None:
    with pytest.raises(ConfigurationError, match=r"no operator 'al' to slow down \(did you mean 'all'\?\); there are"):
        _pipeline().run(LocalRunner(slow={"al": "1us"}))


@pytest.mark.parametrize(
    ("cost", "message"),
    [("0us", "at least 1us per row"), ("100", "'100'"), ("0.1us", "a whole number of microseconds")],
)
def test_a_slow_down_is_a_duration_above_zero(cost: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"LocalRunner\(slow=\) of 'all'.*{message}"):
        LocalRunner(slow={"all": cost})
