"""Rounds of measurements: in each round every engine runs every size once, each in a process of its own.

The engines of one size run next to each other, and take turns to be the first.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.children import run_child
from benchmarks.growth import endurance
from benchmarks.growth.child import Figures, Task
from benchmarks.growth.families import FAMILIES, Family
from benchmarks.growth.inputs import files

__all__ = ["Plan", "Round", "Run", "measure", "watch"]

Say = Callable[[str], None]
Run = tuple[str, int, str]
"""A family, a size and an engine."""
Round = Mapping[Run, Figures]


@dataclass(frozen=True)
class Plan:
    """The measurements: ``sizes`` by family, ``repeats`` rounds, rows below ``inputs``."""

    sizes: Mapping[str, Sequence[int]]
    repeats: int
    inputs: Path

    @property
    def families(self) -> list[Family]:
        """The families, in order."""
        return [FAMILIES[name] for name in self.sizes]


def measure(plan: Plan, say: Say) -> list[Round]:
    """Return the figures of every round.

    Raises: RuntimeError with what a child wrote when it failed, or gave a wrong answer.
    """
    plan.inputs.mkdir(parents=True, exist_ok=True)
    rounds: list[Round] = []
    for number in range(plan.repeats):
        figures: dict[Run, Figures] = {}
        for family in plan.families:
            for size in plan.sizes[family.name]:
                for shape in (family.baseline(size), family.shape(size)):
                    files(shape, plan.inputs)  # here, so that writing does not count in a child's memory
                for engine in family.engines[:: 1 if number % 2 else -1]:
                    figures[family.name, size, engine] = _child(family.name, size, engine, plan)
                walls = [f"{engine} {figures[family.name, size, engine].wall:.2f} s" for engine in family.engines]
                say(f"round {number + 1} of {plan.repeats}: {family.name} {size:,}: {', '.join(walls)}")
        rounds.append(figures)
    return rounds


def _child(family: str, size: int, engine: str, plan: Plan) -> Figures:
    with tempfile.TemporaryDirectory(prefix="barrierflow-growth-") as folder:
        task = Task(engine, family, size, str(plan.inputs), folder)
        return Figures(**run_child("benchmarks.growth.child", task))


def watch(seconds: float, marks: Sequence[int], say: Say) -> endurance.Figures:
    """Return the figures of the long run: ``seconds`` with rows, then checkpoints up to the last of ``marks``."""
    say(f"memory: {seconds:g} s with rows, then {max(marks):,} checkpoints")
    with tempfile.TemporaryDirectory(prefix="barrierflow-growth-") as folder:
        found: dict[str, Any] = run_child("benchmarks.growth.endurance", endurance.Task(seconds, list(marks), folder))
    return endurance.Figures(*[[endurance.Mark(**mark) for mark in found[part]] for part in ("flowing", "halted")])
