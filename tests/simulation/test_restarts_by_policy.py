"""Restarts by policy in the simulator: errors restart in the same process, crashes as other processes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.errors import JobRestartedWarning, JobTimeout
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedJob
from dataflow.testing import Ledger, Pause, ScriptedSource, ledger_sink
from tests.seeds import seeds

ROWS = 40
TWICE = flow.Restarts.fixed(2, "7ms")


@pytest.fixture(autouse=True)
def restarts_are_expected() -> Iterator[None]:
    with warnings.catch_warnings(category=JobRestartedWarning, action="ignore"):
        yield


def failing(world: Ledger, *errors: Exception, at: int = 30) -> flow.Pipeline:
    """40 numbers in batches of two through a function that raises the next of ``errors`` at the number ``at``."""
    left = list(errors)

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if left and at in batch["x"].to_pylist():
            raise left.pop(0)
        return batch

    batches = [pa.record_batch({"x": pa.array([x, x + 1])}) for x in range(0, ROWS, 2)]
    script = [entry for batch in batches for entry in (Pause(3), batch)]
    with flow.Pipeline("failing") as p:
        rows = p.source(ScriptedSource(script), name="in").map_batches(function, name="function")
        rows.rebalance().sink(ledger_sink(world), name="out")
    return p


def start(p: flow.Pipeline, seed: int, faults: Faults | None = None, **options: Any) -> SimulatedJob:
    settings = {"checkpoint": flow.Checkpointing(flow.MemoryStore(), every="1ms"), "restarts": TWICE, **options}
    return flow.SimulatedRunner(seed, faults).start(p, **settings)


@pytest.mark.parametrize("seed", seeds(3, 300, extended=40))
def test_errors_and_crashes_lose_and_repeat_no_row(seed: int) -> None:
    world = Ledger()
    faults = Faults(crashes=seed % 3, skew=0.3, slow=0.3)
    job = start(failing(world, OSError("one"), ValueError("two")), seed, faults)
    result = job.wait()
    assert sorted(world.rows().elements()) == [(x,) for x in range(ROWS)]
    assert sorted(type(a.error).__name__ for a in job.attempts if a.error is not None) == ["OSError", "ValueError"]
    assert result.restarts == len(job.attempts) - 1 == len(result.attempts) - 1
    assert result.events.attempts[-1] <= len(job.attempts)


def test_the_delay_passes_in_simulated_time_and_counts_for_the_timeout() -> None:
    job = start(failing(Ledger(), OSError("one")), seed=1)
    job.wait()
    first, second = job.attempts
    assert first.ended is not None
    assert second.started - first.ended == 7_000
    assert second.restored_checkpoint == (second.restored.checkpoint if second.restored else None)
    late = flow.Restarts.fixed(2, "1h")
    with pytest.raises(JobTimeout):
        start(failing(Ledger(), OSError("one")), 1, restarts=late).wait("30min")


def test_one_failure_too_many_is_raised_with_the_reason() -> None:
    errors = [kind("again") for kind in (OSError, ValueError, OSError)]
    with pytest.raises(OSError, match="again") as caught:
        start(failing(Ledger(), *errors), seed=1).wait()
    assert "it failed for the 3rd time" in caught.value.__notes__[-1]


def test_without_a_policy_the_first_error_is_raised() -> None:
    job = start(failing(Ledger(), OSError("one")), seed=1, restarts=None)
    with pytest.raises(OSError, match="one"):
        job.wait()
    assert len(job.attempts) == 1
