"""Every barrier gets an answer: with several checkpoints at once, at the end of input, with savepoints in between.

``SimulatedRunner`` checks this in every run, see ``dataflow.runners.liveness_check``. Here are the systems in which
barriers were once lost, and the proof that the check notices: with the faults put back it finds them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.protocol.events import BarrierKind
from dataflow.runners import liveness_check
from dataflow.runners.faults import Faults
from dataflow.runners.liveness_check import LivenessBroken
from dataflow.runners.simulated import SimulatedJob, SimulatedRunner
from dataflow.runtime.job.job import Job
from dataflow.runtime.task.messages import AbortCheckpoint, Mailbox
from dataflow.runtime.task.task import Task
from tests.forcing import Force
from tests.protocol.faults_put_back import pass_over_in_silence, start_ahead_of_barriers
from tests.seeds import each_once, seeds
from tests.simulation.jobs import MODES

LONGEST = 60
"""Seconds of simulated time: a tenth of the timeout of a checkpoint."""


def counting(
    seed: int, mode: str, max_concurrent: int, faults: Faults | None = None, emit: str = "final"
) -> SimulatedJob:
    """Few rows, many checkpoints: most of these meet the end of input."""
    with flow.Pipeline("counting") as p:
        table = pa.table({"x": range(12), "k": [x % 3 for x in range(12)]})
        rows = p.source(op.from_arrow(table, splits=2, batch_rows=2), name="in")
        rows.key_by("k").agg(n=op.count(), emit=emit, name="count").as_rows().rebalance().sink(op.collect(), name="out")
    timeout = "50us" if mode == "aligned-timeout" else None
    store = flow.MemoryStore()
    checkpoint = flow.Checkpointing(
        store, every="20us", mode=mode, max_concurrent=max_concurrent, alignment_timeout=timeout
    )
    restarts = flow.Restarts.fixed(100, "0s")
    return SimulatedRunner(seed, faults).start(p, parallelism=2, checkpoint=checkpoint, restarts=restarts)


def seconds(job: SimulatedJob) -> float:
    """The simulated time of a job, run to its end."""
    job.wait()
    return job.attempts[-1].time / 1e6


@pytest.mark.parametrize(("mode", "max_concurrent"), each_once(MODES, [2, 3, 4]))
def test_no_checkpoint_at_the_end_of_input_waits_for_its_timeout(mode: str, max_concurrent: int) -> None:
    assert max(seconds(counting(seed, mode, max_concurrent)) for seed in range(8)) < LONGEST


def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    pass_over_in_silence(monkeypatch, Task)


def overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put two faults back: each of the two corrections would be enough here."""
    pass_over_in_silence(monkeypatch, Task)
    start_ahead_of_barriers(monkeypatch)


LOST = [
    pytest.param(silent, "aligned", 4, 532, id="a cancel overtakes the barriers of a lower checkpoint"),
    pytest.param(silent, "aligned", 4, 743, id="of several lower ones"),
    pytest.param(silent, "unaligned", 4, 350, id="where nothing is blocked"),
    pytest.param(overtaken, "unaligned-persisted", 3, 1833, id="a trigger at the end of input overtakes barriers"),
    pytest.param(overtaken, "aligned-timeout", 3, 1833, id="so does one after the timeout"),
]
"""Seeds with which barriers are lost if a fault is put back.

Whatever changes schedules may make a seed harmless. Then the second test below fails: look for another one with

    python -m tests.simulation.test_liveness overtaken aligned-timeout 3
"""

PutBack = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(("fault", "mode", "max_concurrent", "seed"), LOST)
def test_a_barrier_that_was_once_lost_is_answered(fault: PutBack, mode: str, max_concurrent: int, seed: int) -> None:
    assert seconds(counting(seed, mode, max_concurrent)) < LONGEST


@pytest.mark.parametrize(("fault", "mode", "max_concurrent", "seed"), LOST)
def test_it_is_lost_again_and_found_if_the_fault_is_put_back(
    fault: PutBack, mode: str, max_concurrent: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    with pytest.raises(LivenessBroken, match=r"has not settled checkpoint \d"):
        counting(seed, mode, max_concurrent).wait()


@pytest.mark.soak
@pytest.mark.parametrize("max_concurrent", [1, 2, 3, 4])
@pytest.mark.parametrize("mode", MODES)
def test_the_same_over_six_hundred_seeds(mode: str, max_concurrent: int) -> None:
    faults = [Faults(), Faults(skew=0.5, slow=0.3), Faults(stall=0.005, fail=0.05)]
    times = [seconds(counting(seed, mode, max_concurrent, faults[seed % 3])) for seed in range(600)]
    assert max(times) < LONGEST


@pytest.mark.parametrize("seed", seeds(2, 4))
def test_tasks_that_stall_do_not_make_time_pass_faster(seed: int) -> None:
    job = counting(seed, "aligned", 2, Faults(stall=0.2))
    assert seconds(job) * 1e6 < 200 * job.attempts[-1].turns, "a turn takes less than 200 us, unless the job is still"


# --- savepoints


@pytest.fixture
def savepoints(monkeypatch: pytest.MonkeyPatch) -> list[Future[int]]:
    """Every job is asked for three savepoints, one every few of its steps."""
    asked: list[Future[int]] = []
    step, steps = Job.step, dict[Job, int]()

    def step_and_ask(job: Job) -> bool:
        steps[job] = steps.get(job, 0) + 1
        if steps[job] in (5, 10, 15):
            asked.append(job.checkpoint(BarrierKind.SAVEPOINT))
        return step(job)

    monkeypatch.setattr(Job, "step", step_and_ask)
    return asked


@pytest.mark.parametrize(("mode", "max_concurrent"), each_once(MODES, [2, 4]))
def test_savepoints_among_checkpoints_wait_for_no_timeout(
    mode: str, max_concurrent: int, savepoints: list[Future[int]]
) -> None:
    faults = Faults(skew=0.5, slow=0.3)
    assert max(seconds(counting(seed, mode, max_concurrent, faults, "updates")) for seed in range(5)) < LONGEST
    assert all(future.done() for future in savepoints)


# --- the check itself


def test_a_task_that_declines_without_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "_decline", lambda task, checkpoint, reason, detail: None)
    with pytest.raises(LivenessBroken, match=r"nothing moves any more, but .* has not settled checkpoint \d"):
        counting(8, "aligned", 3).wait()


def test_a_cancel_that_does_not_reach_a_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Mailbox.put

    def lose_cancels(mailbox: Mailbox[object], message: object) -> None:
        if not isinstance(message, AbortCheckpoint):
            put(mailbox, message)

    monkeypatch.setattr(Mailbox, "put", lose_cancels)
    assert list(lost(range(12), "unaligned-persisted", 4))


def test_a_checkpoint_that_is_slow_is_not_lost(force: Force) -> None:
    """Only its timeout, which is shortened here, ends a checkpoint whose barriers wait for rows."""
    force(liveness_check, "LONGEST", 1_000, calls=liveness_check.check_age)
    with flow.Pipeline("slow") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(200)}), batch_rows=1), name="in").rebalance()
        rows.rebalance().sink(op.collect(), name="out")
    checkpoint = flow.Checkpointing(flow.MemoryStore(), every="100us", timeout="1s")
    result = p.run(SimulatedRunner(1, Faults(skew=1.0, slow=1.0)), checkpoint=checkpoint)
    assert max(record.duration for record in result.checkpoints) > 1_000
    assert not result.failures


def lost(seeds: Iterable[int], mode: str, max_concurrent: int) -> Iterator[int]:
    """The seeds with which the check finds something."""
    for seed in seeds:
        try:
            counting(seed, mode, max_concurrent).wait()
        except LivenessBroken:
            yield seed


if __name__ == "__main__":
    {"silent": silent, "overtaken": overtaken}[sys.argv[1]](pytest.MonkeyPatch())
    for one in lost(range(5_000), sys.argv[2], int(sys.argv[3])):
        print(one, flush=True)
