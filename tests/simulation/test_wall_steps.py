"""Jobs that go by the clock, while the wall clock steps and processes crash."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError
from dataflow.runners.faults import Faults
from dataflow.runners.liveness_check import LivenessBroken
from dataflow.runtime.task.job_clock import JobClock
from dataflow.testing import Pause, ScriptedSource
from tests.seeds import each_once_with_seeds

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
STEPS = Faults(crashes=2, crash_after=(1,), wall_steps=0.05, stall=0.05, slices=0.2)


class Alarm(flow.KeyedProcess):
    """Rings 2 ms after each row, by the clock, and emits how long that took."""

    rung = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for at in rows["at"].to_pylist():
            ctx.timers.clock(at + timedelta(milliseconds=2))

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "due": due})


def timed(pauses: int) -> flow.Pipeline:
    """Rows with pauses between them, and what goes by the clock after them."""
    batches = [pa.record_batch({"k": ["a"], "n": [number]}) for number in range(6)]
    script = [entry for batch in batches for entry in (batch, Pause(pauses))]
    with flow.Pipeline("timed") as p:
        rows = p.source(ScriptedSource(script), name="rows").with_processing_time("at", name="clock")
        rows.sink(op.collect(), name="times")
        alarms = rows.select("k", "at").key_by("k")
        alarms.process(Alarm, schema=pa.schema({"k": pa.string(), "due": pa.timestamp("us")}), name="alarm").sink(
            op.collect(), name="alarms"
        )
        rows.select("k", "n").unique("k", ttl="1us", name="unique").sink(op.collect(), name="unique rows")
    return p


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(60, ["aligned", "unaligned-persisted"]))
def test_steps_of_the_wall_clock_change_nothing_that_goes_by_the_clock(seed: int, mode: str) -> None:
    """The simulator checks every few turns, and at each restore, that time by the clock goes on."""
    settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
    result = timed(60).run(flow.SimulatedRunner(seed, STEPS, wall=NOON), checkpoint=settings, parallelism=2)
    times = result.table("times").sort_by("n")
    assert times["n"].to_pylist() == list(range(6))
    assert times["at"].to_pylist() == sorted(times["at"].to_pylist())
    assert result.table("unique rows")["n"].to_pylist() == list(range(6)), "a ttl has not ended"
    due = [at + timedelta(milliseconds=2) for at in times["at"].to_pylist()]
    assert result.table("alarms")["due"].to_pylist() == [at.replace(tzinfo=None) for at in due]


def test_the_wall_clock_of_a_simulation_begins_at_a_datetime() -> None:
    (first, *_) = timed(1).run(flow.SimulatedRunner(wall=NOON)).table("times")["at"].to_pylist()
    assert NOON <= first < NOON + timedelta(seconds=1)
    with pytest.raises(ConfigurationError, match=r"SimulatedRunner\(wall=\): expected a datetime or None, got 'noon'"):
        flow.SimulatedRunner(wall="noon")  # type: ignore[arg-type]


def test_the_simulator_notices_if_time_by_the_clock_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JobClock, "time", lambda clock: int(clock.wall() * 1_000_000))
    with pytest.raises(LivenessBroken, match="passed, time by the clock moved by -"):
        timed(60).run(flow.SimulatedRunner(0, Faults(wall_steps=0.05), wall=NOON))
