"""The choices that a run makes from measurements, drawn at random instead, for the simulated runner.

Whatever is drawn, no row, late row or watermark may change: the simulation shows that.
"""

from __future__ import annotations

import random

__all__ = ["FewRows", "SomeJoined", "SomeKept", "SomePolls"]


class FewRows:
    """A random pace for each step: the clock does not move within a step, so no pace can be learned from it."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self.max_rows: int | None = draw.randrange(1, 6)

    def notice(self, now: int, *, hurried: bool) -> None:
        """Ignore it."""

    def took(self, rows: int, elapsed: int) -> None:
        self.max_rows = self._draw.randrange(1, 6)


class SomeJoined:
    """Joins few or many of the batches that wait."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._most = draw.choice((1, 3, 20))

    def room(self, rows: int) -> int:
        return self._draw.randint(0, self._most)


class SomePolls:
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


class SomeKept:
    """Keeps rows back for some batches."""

    keeps = True

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def goes_on(self, records: int) -> bool:
        return self._draw.random() < 0.8
