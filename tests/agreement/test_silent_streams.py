"""Time that moves without rows: splits that are closed, and the clock as event time."""

from __future__ import annotations

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.faults import Faults
from dataflow.testing import Pause, ScriptedSource
from tests.seeds import seeds
from tests.simulation.jobs import MODES

EXACT = [mode for mode in MODES if mode != Mode.UNALIGNED.value]
FAULTS = Faults(crashes=3, crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)


def row(*milliseconds: int) -> pa.RecordBatch:
    return pa.record_batch({"at": pa.array(milliseconds, pa.timestamp("ms")), "k": ["a"] * len(milliseconds)})


def simulated(p: flow.Pipeline, seed: int, mode: str, faults: Faults) -> flow.RunResult:
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    return flow.SimulatedRunner(seed, faults).start(p, parallelism=2, checkpoint=settings).wait()


def silent(close_after: str | None, idle_after: str | None = None) -> flow.Pipeline:
    """A split that falls silent after 5 ms of event time, and then has a row that may be late."""
    with flow.Pipeline("silent") as p:
        rows = p.source(ScriptedSource([row(1, 5), Pause(2_000), row(2)]), name="rows")
        timed = rows.with_watermark("at", close_after=close_after, idle_after=idle_after)
        counts = timed.key_by("k").window(op.tumbling("10ms")).agg(n=op.count(), name="counts")
        counts.sink(op.collect(), name="on time")
        counts.side("late").sink(op.collect(), name="late")
    return p


def found(result: flow.RunResult) -> tuple[list[int], int]:
    return result.table("on time")["n"].to_pylist(), result.table("late").num_rows


@pytest.mark.parametrize("idle_after", [None, "2ms"])
@pytest.mark.parametrize("mode", EXACT)
@pytest.mark.parametrize("seed", seeds(1, 40))
def test_windows_of_a_silent_split_come_out_and_later_rows_are_late(
    seed: int, mode: str, idle_after: str | None
) -> None:
    assert found(simulated(silent("20ms", idle_after), seed, mode, FAULTS)) == ([2], 1)


def test_a_silent_split_that_is_not_closed_waits_for_its_rows() -> None:
    assert found(simulated(silent(None), 1, "aligned", Faults())) == ([3], 0)


def test_on_threads_a_silent_split_is_closed() -> None:
    assert found(silent("1ms").run(timeout="60s")) == ([2], 1)
