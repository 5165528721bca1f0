"""The choices that a run makes from measurements, drawn at random instead, for the simulated runner.

Whatever is drawn, no row, late row or watermark may change: the simulation shows that.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from dataflow.contracts.execution import Spill
from dataflow.contracts.folding import FoldAll, Folding, FoldNone, FoldWherePays
from dataflow.contracts.kept_rows import Keep, KeepNone
from dataflow.runners.faults import Faults
from dataflow.runtime.task.byte_credit import TASK_BYTES
from dataflow.runtime.task.joined_rows import Apart, JoinPolicy
from dataflow.runtime.task.pace import Pace, Unpaced
from dataflow.runtime.task.poll_times import AtOnce, PollTimes

__all__ = ["DrawnPolicies"]


class DrawnPolicies:
    """Draws the policies of each attempt, task and operator from the seed, as often as ``faults`` says.

    Most have generators of their own, so that the draws of ``draw``, the generator of the run, stay those of the seed.
    """

    def __init__(self, faults: Faults, draw: random.Random, seed: int) -> None:
        self._faults = faults
        self._random = draw
        self._joins = random.Random(f"joined batches, seed {seed}")
        self._keeps = random.Random(f"rows kept back, seed {seed}")
        self._folds = random.Random(f"batches folded, seed {seed}")
        self._rooms = random.Random(f"bytes in channels, seed {seed}")

    def pace(self) -> Pace:
        """Return the pace of one task."""
        return _FewRows(self._random) if self._random.random() < self._faults.slices else Unpaced()

    def join(self) -> Callable[[int], JoinPolicy]:
        """Return the rule of an attempt for joining batches, for any number of channels."""
        rule = _SomeJoined(self._joins) if self._joins.random() < self._faults.joins else Apart()
        return lambda channels: rule

    def polls(self) -> PollTimes:
        """Return the rule for polling one source task."""
        return _SomePolls(self._joins) if self._joins.random() < self._faults.joins else AtOnce()

    def keep(self) -> Keep:
        """Return the rule by which one operator keeps rows back."""
        return _SomeKept(self._keeps) if self._keeps.random() < self._faults.joins else KeepNone()

    def folding(self) -> Folding:
        """Return the rule by which one operator folds rows."""
        if self._folds.random() >= self._faults.joins:
            return FoldWherePays()
        return self._folds.choice((FoldAll(), FoldNone(), _SomeFolded(self._folds)))

    def spill(self) -> Spill:
        """Return the memory in which a subtask of a batch sorts its rows, for an attempt."""
        few = self._keeps.random() < self._faults.joins
        return Spill(memory=self._keeps.choice((1, 500, 5000))) if few else Spill()

    def task_bytes(self) -> int:
        """Return the bytes that may wait in the channels into a task, for an attempt."""
        return self._rooms.choice((1, 40, 200)) if self._rooms.random() < self._faults.little_room else TASK_BYTES


class _FewRows:
    """A random pace for each step: the clock does not move within a step, so no pace can be learned from it."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.max_rows: int | None = draw.randrange(1, 6)

    def notice(self, now: int, *, hurried: bool) -> None:
        """Ignore it."""

    def took(self, rows: int, elapsed: int) -> None:
        self.max_rows = self._draw.randrange(1, 6)


class _SomeJoined:
    """Joins few or many of the batches that wait."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._most = draw.choice((1, 3, 20))

    def room(self, rows: int) -> int:
        return self._draw.randint(0, self._most)


class _SomePolls:
    """Polls a source now or later, and keeps it waiting for its outputs or not."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.next = 0
        self.gathers = False

    def gave(self, now: int, rows: int, until: int | None, *, more: bool) -> None:
        self.next = now + self._draw.choice((0, 0, 500, 5_000))
        self.gathers = self._draw.random() < 0.5

    def gave_nothing(self, now: int, until: int | None) -> None:
        self.gave(now, 0, until, more=False)


class _SomeKept:
    """Keeps rows back for some batches."""

    keeps = True

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def goes_on(self, records: int) -> bool:
        return self._draw.random() < 0.8


class _SomeFolded:
    """Folds some batches."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def tries(self, rows: int, *, keeps: bool) -> bool:
        return self._draw.random() < 0.7

    def pays(self, rows: int, records: int, *, keeps: bool) -> bool:
        return self._draw.random() < 0.7
