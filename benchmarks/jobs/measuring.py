"""Rounds of measurements: every engine once a round, each in a process of its own, the order turned around every time.

What a machine does meanwhile (other programs, heat) comes and goes in minutes, so a rival is compared with the run of
ours in its own round, and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.jobs.answers import difference
from benchmarks.jobs.bids import Bids
from benchmarks.jobs.child import OURS, TUNED, Figures, Task
from benchmarks.jobs.ours import JOBS, Input

__all__ = ["Measured", "Plan", "WrongAnswer", "measure", "require_agreement"]

ROOT = Path(__file__).parents[2]
WARM_UP_ROWS = 200_000

Say = Callable[[str], None]


class WrongAnswer(Exception):
    """Two engines disagree: their times mean nothing."""


@dataclass(frozen=True)
class Plan:
    """How much to measure: ``pairs`` rounds over input repeated until ours lasts ``seconds``.

    ``tuned``: whether ours is measured with the settings of an expert, too.
    """

    rivals: tuple[str, ...]
    pairs: int
    seconds: float
    bids: Bids
    warm_up: Bids
    tuned: bool = True


@dataclass(frozen=True)
class Measured:
    """The rounds of one job, each with the figures of ours and of every rival, by name."""

    job: str
    rows: int
    repetitions: int
    row_group: int
    rounds: list[dict[str, Figures]]


def measure(job: str, plan: Plan, say: Say) -> Measured:
    """All rounds of one job.

    Raises: WrongAnswer, naming the engine and the first row that differs; RuntimeError with what a child wrote
    when it failed.
    """
    repetitions = _calibrated(job, plan, say)
    rounds = []
    for number in range(plan.pairs):
        with tempfile.TemporaryDirectory(prefix="barrierflow-jobs-") as folder:
            rounds.append(_round(job, plan, repetitions, number, Path(folder)))
        walls = ", ".join(f"{engine} {figures.wall:.2f} s" for engine, figures in rounds[-1].items())
        say(f"{job}: round {number + 1} of {plan.pairs}: {walls}")
    return Measured(job, plan.bids.rows * repetitions, repetitions, plan.bids.row_group, rounds)


def _calibrated(job: str, plan: Plan, say: Say) -> int:
    """How often the bids are repeated so that ours lasts long enough, with a tenth to spare for a quick round."""
    repetitions = 1
    while plan.seconds > 0:
        with tempfile.TemporaryDirectory(prefix="barrierflow-jobs-") as folder:
            wall = _child(OURS, job, plan, repetitions, Path(folder)).wall
        needed = math.ceil(1.1 * repetitions * plan.seconds / wall)
        say(f"{job}: {repetitions} times {plan.bids.rows:,} bids took {wall:.2f} s")
        if wall > plan.seconds / 4:
            return max(needed, repetitions)
        repetitions = max(repetitions + 1, min(needed, -(-needed // 2)))
    return repetitions


def _round(job: str, plan: Plan, repetitions: int, number: int, folder: Path) -> dict[str, Figures]:
    engines = [OURS, *([TUNED] if plan.tuned else []), *JOBS[job].variants, *plan.rivals]
    found = {}
    for engine in engines if number % 2 else reversed(engines):
        found[engine] = _child(engine, job, plan, repetitions, folder / _place(engine))
    require_agreement(job, {engine: folder / _place(engine) / "answer" for engine in engines})
    return {engine: found[engine] for engine in engines}


def _place(engine: str) -> str:
    return engine.replace(", ", "-")


def require_agreement(job: str, answers: Mapping[str, Path]) -> None:
    """Raise WrongAnswer where a rival's files, by engine, hold another answer than ours."""
    for engine, place in answers.items():
        differs = difference(answers[OURS], place, JOBS[job].keys)
        if differs is not None:
            raise WrongAnswer(f"{job}: {OURS} and {engine} differ: {differs}")


def _child(engine: str, job: str, plan: Plan, repetitions: int, folder: Path) -> Figures:
    folder.mkdir(exist_ok=True)
    files, warm_up = (_files(job, bids, n) for bids, n in ((plan.bids, repetitions), (plan.warm_up, 1)))
    task = Task(engine, job, files, warm_up, str(folder))
    command = [sys.executable, "-m", "benchmarks.jobs.child"]
    jemalloc = {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc"} if engine == TUNED else {}  # keeps less than mimalloc
    env = {**os.environ, **jemalloc}
    done = subprocess.run(
        command,
        input=json.dumps(asdict(task)),
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{job} by {engine} failed:\n{done.stderr}")
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def _files(job: str, bids: Bids, repetitions: int) -> list[str]:
    made = bids.later_and_later(repetitions) if JOBS[job].input is Input.LATER else bids.files(repetitions)
    return [str(file) for file in made]
