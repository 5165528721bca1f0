"""Checkpoints of rows that a restore put back and that no task has taken yet, over several generations.

Every restarted job takes a checkpoint before its first step, so all restored rows are still queued when it is
triggered. The job crashes soon after that checkpoint is durable, and the next job restores it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.protocol.events import Data, EndOfInput
from dataflow.runners import simulated
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedJob, SimulatedRunner
from dataflow.runtime.job.job import Job
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.parts import ChannelState
from dataflow.testing import Ledger, Pause, ScriptedSource, delivered_again, ledger_sink
from tests.checkpoints import task_states
from tests.forcing import Force
from tests.seeds import each_once_with_seeds
from tests.simulation.workloads import Dawdler, Order

OVERTAKING = (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)
MANY, FEW, RARE, NEAR = 0, 1_000, 2_000, 3_000
"""The first number of each source."""

CRASHES = ("step", "step", "step", Point.DURABLE, Point.COMMIT, Point.BETWEEN_COMMITS, Point.RECOVERY)
SOON = {"step": 40, Point.DURABLE: 1, Point.COMMIT: 2, Point.BETWEEN_COMMITS: 1}
"""How often these places are passed, at most, after a checkpoint is durable: a crash is to come soon."""


COVERED = {
    "put back": 12,
    "put back again": 6,
    "ends after rows": 1,
    "full queues": 6,
    "empty channels": 5,
    "folded": 3,
}
"""How often eight runs restore rows at least: the same rows again, rows with the end of input after them, and so on."""


@pytest.fixture(autouse=True)
def checkpoint_at_once(monkeypatch: pytest.MonkeyPatch, force: Force) -> None:
    """Let every restored job trigger a checkpoint before any task takes a step, and crash soon after it."""
    force(simulated, "_MAX_PASSES", {**simulated._MAX_PASSES, **SOON}, calls=SimulatedJob._draw_crash)
    build = simulated.build

    def build_and_trigger(*args: Any) -> Job:
        job = build(*args)
        if job.restore_report is not None:
            job.checkpoint()
            job.step()
            assert job.history.under_way, "the checkpoint is not triggered yet"
        return job

    monkeypatch.setattr(simulated, "build", build_and_trigger)


def numbers(start: int, count: int) -> pa.Table:
    return pa.table({"x": range(start, start + count)})


@dataclass(slots=True)
class Queues:
    """A job that a seed draws: several inputs, some empty or at their end, before a slow operator and two sinks."""

    seed: int
    taken: Mode
    others: Sequence[Mode]
    store: flow.MemoryStore = field(default_factory=flow.MemoryStore)
    plain: Ledger = field(default_factory=Ledger)
    summed: Ledger = field(default_factory=Ledger)
    disorder: list[str] = field(default_factory=list)
    inputs: Sequence[str] = ()
    parallelism: int = 0
    credit: int = 0
    attempts: Sequence[Attempt] = ()

    def run(self) -> Queues:
        draw = random.Random(f"queued rows {self.seed}")
        self.parallelism = draw.choice((1, 2, 2, 3))
        self.credit = draw.choice((1, 2, 4, 8))
        faults = Faults(
            crashes=6, crash_at=CRASHES, crash_after=(1,), skew=0.3,
            joins=draw.choice((0.0, 0.5)), little_room=draw.choice((0.0, 0.3)), slices=draw.choice((0.0, 0.3)),
            slow=draw.choice((0.0, 0.2)), restart_with=[self._settings(mode, "1h") for mode in self.others],
        )  # fmt: skip
        job = SimulatedRunner(self.seed, faults, max_turns=200_000).start(
            self._pipeline(draw),
            parallelism=self.parallelism,
            checkpoint=self._settings(self.taken, draw.choice(("1ms", "3ms"))),
            channel_credit=self.credit,
        )
        try:
            job.wait()
        finally:
            self.attempts = job.attempts
        return self

    def _settings(self, mode: Mode, every: str) -> flow.Checkpointing:
        patience = "100us" if mode is Mode.ALIGNED_TIMEOUT else None
        return flow.Checkpointing(
            self.store, every=every, mode=mode, alignment_timeout=patience, keep=1_000, duplicates="rows"
        )

    def _pipeline(self, draw: random.Random) -> flow.Pipeline:
        # 0, 1 or 2 inputs beside the long one, so that some seeds have every channel full, others an empty one
        script = [entry for batch in numbers(RARE, 8).to_batches(max_chunksize=1) for entry in (Pause(60), batch)]
        others = {
            "few": lambda p: p.source(op.from_arrow(numbers(FEW, 12), batch_rows=4), name="few").rebalance(),
            "rare": lambda p: p.source(ScriptedSource(script), name="rare").rebalance(),
            "near": lambda p: p.source(op.from_arrow(numbers(NEAR, 12), batch_rows=2, splits=2), name="near"),
        }
        self.inputs = draw.sample(sorted(others), draw.choice((0, 1, 2, 2, 3)))
        splits = draw.choice((1, 2, 3))
        many = op.from_arrow(numbers(MANY, 90), batch_rows=2, splits=splits)
        starts = sorted([*(int(str(split.info["start"])) for split in many.splits()), FEW, RARE, NEAR, NEAR + 6])
        with flow.Pipeline("queues") as p:
            rows = p.source(many, name="many").rebalance()
            if self.inputs:
                rows = rows.union(*(others[name](p) for name in self.inputs), name="all")
            ordered = rows.apply(lambda context: Order(context, starts, self.disorder), name="order")
            units = draw.choice((20, 60))
            slow = ordered.apply(lambda context: Dawdler(context, units), name="slow")
            slow.rebalance().sink(ledger_sink(self.plain), name="out", parallelism=draw.choice((1, 2)))
            keyed = slow.with_columns(k=col("x") % 5).key_by("k")
            totals = keyed.agg(n=op.count(), s=col("x").sum(), emit="final", name="sums")
            totals.sink(ledger_sink(self.summed), name="totals")
        return p

    def check(self) -> None:
        """The sinks show each row once, and those that restores reported once more; each split is in order."""
        rows = [*range(MANY, MANY + 90)]
        rows += [x for name in self.inputs for x in _INPUTS[name]]
        found, expected = self.plain.rows(), Counter((x,) for x in rows) + delivered_again(self.attempts, "out")
        assert found == expected, f"lost {expected - found}, too many {found - expected}"
        counted = Counter((x,) for x in rows) + Counter(
            {(x,): n for (x, _), n in delivered_again(self.attempts, "sums").items()}
        )
        totals: dict[int, tuple[int, int]] = {}
        for (x,), times in counted.items():
            n, s = totals.get(x % 5, (0, 0))
            totals[x % 5] = n + times, s + x * times
        assert self.summed.rows() == Counter((k, n, s) for k, (n, s) in totals.items())
        assert not self.disorder or Mode.UNALIGNED in self.others, self.disorder[0]
        if Mode.UNALIGNED not in self.others:
            again = delivered_again(self.attempts, "out"), delivered_again(self.attempts, "sums")
            assert not any(again), f"reported as duplicates: {again}"

    def generations(self) -> Counter[str]:
        """How often restored rows were captured again, and what was among them."""
        seen: Counter[str] = Counter()
        put_back: set[tuple[str, int]] = set()
        for attempt in self.attempts:
            if attempt.restored is None:
                continue
            states = [s for t in task_states(self.store, attempt.restored.checkpoint).values() for s in t.in_flight]
            now = {(state.channel, x) for state in states for x in _numbers(state)}
            batches = [e.rows for state in states for e in state.elements if isinstance(e, Data)]
            seen["restores"] += 1
            seen["put back"] += bool(now)
            seen["put back again"] += bool(now & put_back)
            seen["folded"] += any("x" not in batch.schema.names for batch in batches)  # type: ignore[attr-defined]
            seen["ends after rows"] += any(_numbers(s) and isinstance(s.elements[-1], EndOfInput) for s in states)
            queued = Counter(state.channel for state in states for e in state.elements if isinstance(e, Data))
            seen["full queues"] += any(count >= self.credit for count in queued.values())
            seen["empty channels"] += 0 < sum(name.startswith("many[") for name in queued) < self.parallelism**2
            put_back = now
        return seen


_INPUTS = {"few": range(FEW, FEW + 12), "rare": range(RARE, RARE + 8), "near": range(NEAR, NEAR + 12)}


def _numbers(state: ChannelState) -> list[int]:
    batches: list[Any] = [element.rows for element in state.elements if isinstance(element, Data)]
    return [x for batch in batches if "x" in batch.schema.names for x in batch["x"].to_pylist()]


@pytest.mark.parametrize(("seed", "other", "taken"), each_once_with_seeds(60, [*Mode, None], OVERTAKING))
def test_restored_rows_that_are_still_queued_count_once(seed: int, taken: Mode, other: Mode | None) -> None:
    """``other`` is the mode of all restarts; None: each draws one."""
    queues = Queues(seed, taken, [other] if other else list(Mode)).run()
    queues.check()


@pytest.mark.soak
def test_the_runs_have_restored_rows_in_several_checkpoints_one_after_the_other() -> None:
    """The coverage of the test above."""
    seen: Counter[str] = Counter()
    for seed in range(8):
        seen += Queues(seed, Mode.UNALIGNED_PERSISTED, [Mode.UNALIGNED_PERSISTED]).run().generations()
    few = {what: seen[what] for what, least in COVERED.items() if seen[what] < least}
    assert not few, f"reached too rarely: {few}, of {seen}"
