"""Rounds of measurements: in each round every variant runs once at every point, each in a process of its own.

The variants of one setting run next to each other, in a random order that differs by round, so that a change of the
machine's speed hits all of them. The order comes from a seed.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.checkpoints.child import Figures, Task
from benchmarks.checkpoints.settings import CENTRE, NONE, Point, Setting
from benchmarks.children import run_child

__all__ = ["Plan", "Round", "Run", "measure", "run_of"]

OVERHEAD = 2.5
"""Seconds that a process takes besides its window, on two quiet cores: start, imports, warm-up, end."""

Say = Callable[[str], None]
Run = tuple[Setting, str]
"""A setting and a variant."""
Round = Mapping[Run, Figures]


@dataclass(frozen=True)
class Plan:
    """The measurements: ``repeats`` rounds, windows of ``seconds``, checkpoints below ``folder``."""

    points: Sequence[Point]
    variants: Sequence[str]
    repeats: int
    seconds: float
    folder: Path | None = None

    @property
    def minutes(self) -> float:
        """The estimated time of all rounds."""
        runs = sum([len(group) for group in self.groups])
        return runs * self.repeats * (self.seconds + OVERHEAD) / 60

    @property
    def groups(self) -> list[list[Run]]:
        """The different runs of a round, grouped by setting."""
        settings = dict.fromkeys([point.setting for point in self.points])
        groups = {setting: [run_of(setting, variant) for variant in self.variants] for setting in settings}
        different = dict.fromkeys([run for group in groups.values() for run in group])
        return [[run for run in different if run[0] == setting] for setting in dict.fromkeys([s for s, _ in different])]


def run_of(setting: Setting, variant: str) -> Run:
    """Return the run that measures ``variant`` at ``setting``: without checkpoints the interval has no effect."""
    return (replace(setting, interval=CENTRE.interval) if variant == NONE else setting), variant


def measure(plan: Plan, say: Say) -> list[Round]:
    """Return the figures of every round. One run before them, which compiles kernels, is not counted.

    Raises: RuntimeError with what a child wrote when it failed.
    """
    groups = plan.groups
    _child(*groups[0][0], plan)
    rounds: list[Round] = []
    for number in range(plan.repeats):
        rng = random.Random(number)
        figures: dict[Run, Figures] = {}
        for group in groups:
            for run in rng.sample(group, len(group)):
                figures[run] = _child(*run, plan)
            rates = ", ".join(f"{variant} {figures[s, variant].rows_per_second / 1e6:.2f}" for s, variant in group)
            say(f"round {number + 1} of {plan.repeats}: {group[0][0]}: M rows/s: {rates}")
        rounds.append(figures)
    return rounds


def _child(setting: Setting, variant: str, plan: Plan) -> Figures:
    with tempfile.TemporaryDirectory(prefix="barrierflow-checkpoints-", dir=plan.folder) as folder:
        task = Task(variant, asdict(setting), plan.seconds, folder)
        return Figures(**run_child("benchmarks.checkpoints.child", task))
