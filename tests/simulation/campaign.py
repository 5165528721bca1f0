"""Many seeds: every one draws a pipeline, its settings and what goes wrong, and is held to an oracle.

python -m tests.simulation.campaign --seed 17         replay one seed and tell its lives
python -m tests.simulation.campaign --seeds 0:2000    run many, print the coverage, fail below it
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dataflow as flow
from dataflow.contracts.checkpointing import Mode
from dataflow.runners.attempts import Attempt
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.task.crash_points import Point
from dataflow.testing import lineage
from tests.simulation.workloads import WORKLOADS, Draw

__all__ = ["CORPUS", "Campaign", "Run", "run"]

CORPUS = Path(__file__).with_name("corpus.txt")
"""Seeds that once failed, one a line, each with what was wrong behind a #."""

PLACES = ("alignment", "recording", "copy", "prepared", "write", "durable", "commit", "between_commits", "recovery")
"""Where at least ``Campaign.least`` crashes must have been. ``durable`` is between manifest and notice."""

_AIM: Sequence[Point | str] = (
    *("step", *("alignment",) * 3, *("recording",) * 10),
    *(*Point, Point.COPY, Point.PREPARED, Point.WRITE, Point.DURABLE, Point.COMMIT),
    *(*(Point.BETWEEN_COMMITS,) * 3, *(Point.RECOVERY,) * 3),
)

_FLOORS = {"restored": 0.8, "blocked": 0.3, "duplicated": 0.3, "in flight": 0.3}
"""The least shares, see ``Campaign.shares``."""

LONGEST = 60_000_000
"""Microseconds of simulated time that a life may take: far less than a checkpoint that nothing answers."""

OVERTAKING = (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)
"""The modes whose checkpoints may hold rows in flight."""


@dataclass(frozen=True, slots=True)
class Run:
    """What a seed did."""

    seed: int
    workload: str
    mode: Mode
    attempts: Sequence[Attempt]

    @property
    def restored(self) -> bool:
        return any(attempt.restored is not None for attempt in self.attempts)

    @property
    def blocked(self) -> bool:
        return any(attempt.blocked for attempt in self.attempts)

    @property
    def duplicated(self) -> bool:
        """Whether rows were really delivered twice, not merely counted in a checkpoint that nobody restored."""
        return any(report.duplicated() for report in lineage(self.attempts))

    @property
    def in_flight(self) -> bool:
        """Whether rows were put back into their channels."""
        return any(attempt.restored is not None and attempt.restored.in_flight_rows for attempt in self.attempts)

    @property
    def captured(self) -> bool:
        """Whether a checkpoint holds rows that were in flight."""
        return any(attempt.in_flight for attempt in self.attempts)

    def check(self) -> None:
        """Time is bounded; one mode reports rows that it repeats, and those that overtake have rows in flight."""
        longest = max(attempt.time for attempt in self.attempts)
        assert longest < LONGEST, f"a life took {longest} us of simulated time, expected less than {LONGEST}"
        for report in lineage(self.attempts):
            n, mode = report.checkpoint, report.mode
            assert mode is Mode.UNALIGNED or not report.duplicated(), f"checkpoint {n}, {mode}: duplicates reported"
            assert mode in OVERTAKING or not report.in_flight_rows, f"checkpoint {n}, {mode}: rows in flight"

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: {self.workload}, {self.mode}"]
        for attempt in self.attempts:
            start, end = "afresh", attempt.crash or attempt.error or "its end"
            if (report := attempt.restored) is not None:
                start = f"from checkpoint {report.checkpoint} ({report.in_flight_rows} rows in flight)"
            lines.append(
                f"  {attempt.mode and attempt.mode.value}, {start}, checkpoints {attempt.checkpoints}, "
                f"{attempt.turns} turns, blocked {attempt.blocked} us, in flight {attempt.in_flight}, to {end}"
            )
        return "\n".join(lines)


def run(seed: int) -> Run:
    """Run one seed. Raises AssertionError where the oracle is not content, with the seed and how to replay it."""
    draw = random.Random(f"campaign {seed}")
    make = WORKLOADS[seed % len(WORKLOADS)]
    mode = list(Mode)[seed // len(WORKLOADS) % len(Mode)]
    store = flow.MemoryStore()
    parallelism = draw.choice((1, 2, 2, 3))
    calm = draw.random() < 0.5
    workload = make(
        Draw(
            draw,
            store,
            sink_fails=0.0 if calm else draw.choice((0.05, 0.15)),
            rows=draw.randrange(80, 160),
            batch_rows=draw.randrange(2, 8),
            parallelism=parallelism,
            keeps_rows=(keeps_rows := draw.random() < 0.85),
        )
    )
    patience = draw.choice(("200us", "1ms", "3ms", "8ms"))
    common: dict[str, Any] = {
        "every": draw.choice(("4ms", "8ms", "12ms")),
        "min_pause": draw.choice(("0s", "5ms")),
        "timeout": draw.choice(("10min", "10min", "10min", "100ms")),
        "max_concurrent": draw.choice((1, 4, 2, 3)),
        "tolerable_failures": draw.choice((None, None, 2)),
        "keep": draw.choice((1, 2, 3)),
        "duplicates": "rows" if keeps_rows else "sample",
    }

    def settings(mode: Mode) -> flow.Checkpointing:
        timeout = patience if mode is Mode.ALIGNED_TIMEOUT else None
        return flow.Checkpointing(store, mode=mode, alignment_timeout=timeout, **common)

    faults = Faults(
        crashes=draw.choice((0, *(1,) * 3, *(2,) * 6, *(3,) * 6, *(4,) * 4)),
        crash_at=_AIM,
        crash_after=(0, 1, 1, 1, 1, 1, 1, 1, 2, 2),
        skew=draw.choice((0.0, 0.4, 0.6)),
        stall=draw.choice((0.0, 0.002, 0.005)),
        slices=draw.choice((0.0, 0.0, 0.3)),
        joins=0.0 if seed in corpus() else 0.5,  # with joined batches, a seed of the corpus would be another run
        little_room=0.0 if seed in corpus() else 0.3,  # the same holds for channels with little room
        slow=draw.choice((0.0, 0.1, 0.4)),
        fail=0.0 if calm else draw.choice((0.0, 0.02, 0.05)),
        damage=draw.choice((0.0, 0.0, 0.3)),
        restart_with=[settings(other) for other in Mode] if draw.random() < 0.2 else (),
    )
    credit = draw.choice((1, 1, 2, 4))
    runner = SimulatedRunner(seed, faults, max_turns=1_000_000)
    job = runner.start(
        workload.pipeline,
        parallelism=parallelism,
        checkpoint=settings(mode),
        channel_credit=credit,
        restarts=flow.Restarts.fixed(200, "0s"),
    )
    try:
        job.wait()
        done = Run(seed, make.__name__, mode, job.attempts)
        done.check()
        workload.check(job.attempts)
        for name, world in workload.worlds.items():
            assert world.staged == 0, f"sink {name!r}: {world.staged} transactions are staged for ever"
    except BaseException as error:
        error.add_note(str(Run(seed, make.__name__, mode, job.attempts)))
        error.add_note(f"replay with: python -m tests.simulation.campaign --seed {seed}")
        raise
    return done


@dataclass(slots=True)
class Campaign:
    """What a number of runs covered. A campaign that tested little is a failure too."""

    least: int = 20
    runs: list[Run] = field(default_factory=list)

    def add(self, seeds: Iterable[int]) -> Campaign:
        """Run ``seeds``; raises at the first that fails."""
        self.runs += [run(seed) for seed in seeds]
        return self

    @property
    def crashes(self) -> Counter[str]:
        return Counter(attempt.crash for r in self.runs for attempt in r.attempts if attempt.crash)

    def shares(self) -> dict[str, float]:
        """Of all runs, those restored; of the aligned, those blocked; of the unaligned, those with duplicates.

        Of those that persist, those that put rows back in flight.
        """
        of = {mode: [r for r in self.runs if r.mode is mode] for mode in Mode}
        return {
            "restored": _share([r.restored for r in self.runs]),
            "blocked": _share([r.blocked for r in of[Mode.ALIGNED]]),
            "duplicated": _share([r.duplicated for r in of[Mode.UNALIGNED]]),
            "in flight": _share([r.in_flight for r in of[Mode.UNALIGNED_PERSISTED]]),
        }

    def shortfalls(self) -> list[str]:
        """Where the coverage is too small."""
        shares = self.shares()
        found = [f"{name}: {shares[name]:.0%}, wanted {s:.0%}" for name, s in _FLOORS.items() if shares[name] < s]
        few = [place for place in PLACES if self.crashes[place] < self.least]
        return found + [f"crashes in {place}: {self.crashes[place]}, wanted {self.least}" for place in few]

    def __str__(self) -> str:
        lives = sum(len(r.attempts) for r in self.runs)
        failed = sum(attempt.error is not None for r in self.runs for attempt in r.attempts)
        back = sum(bool(a.restored and a.restored.passed_over) for r in self.runs for a in r.attempts)
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares().items())
        crashes = ", ".join(f"{place} {n}" for place, n in sorted(self.crashes.items()))
        lost = f"{failed} failed jobs, {back} fell back"
        return f"{len(self.runs)} runs, {lives} lives, {lost}; {shares}\ncrashes: {crashes}"


def corpus() -> list[int]:
    """The seeds that once failed."""
    lines = (line.partition("#")[0].strip() for line in CORPUS.read_text().splitlines())
    return [int(line) for line in lines if line]


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="replay this seed")
    parser.add_argument("--seeds", default="0:200", help="first:last, the last not included")
    given = parser.parse_args()
    if given.seed is not None:
        print(run(given.seed))
        return 0
    first, _, last = given.seeds.partition(":")
    failed = []
    campaign = Campaign()
    for seed in [*corpus(), *range(int(first), int(last))]:
        try:
            campaign.add([seed])
        except Exception as error:
            failed.append(seed)
            print(f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ()), sep="\n")
    print(campaign, *campaign.shortfalls(), f"failed: {failed}", sep="\n")
    return 1 if failed or campaign.shortfalls() else 0


if __name__ == "__main__":
    sys.exit(main())
