"""The axis of time: where a moment is drawn, and which moments are labelled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Scale", "nice_step", "tick_words"]

_STEPS: Final = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Scale:
    """A linear scale from microseconds to pixels. ``begin`` is drawn at ``left``, ``end`` at ``right``.

    >>> scale = Scale(0, 1000, 0.0, 100.0)
    >>> scale.x(500), scale.x(-5), scale.x(5000)
    (50.0, 0.0, 100.0)
    """

    begin: int
    end: int
    left: float
    right: float

    def x(self, time: int) -> float:
        """Return where a moment is drawn; one outside the axis at its nearer end."""
        share = (time - self.begin) / max(self.end - self.begin, 1)
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def shows(self, begin: int, end: int) -> bool:
        """Return whether a part of a span is on the axis."""
        return begin <= self.end and end >= self.begin

    def ticks(self, zero: int, *, most: int = 9, first: str = "") -> list[tuple[int, str]]:
        """Return moments and their labels: multiples of a nice step from ``zero`` on.

        >>> Scale(-20, 506_000, 0.0, 700.0).ticks(0, most=4, first="trigger")
        [(0, 'trigger'), (200000, '200 ms'), (400000, '400 ms')]
        """
        step = nice_step((self.end - max(zero, self.begin)) / max(most - 1, 1))
        skipped = max(0, -((zero - self.begin) // step))
        times = [zero + count * step for count in range(skipped, skipped + most)]
        shown = [time for time in times if time <= self.end]
        labels = [tick_words(time - zero, shown[-1] - zero) for time in shown]
        return list(zip(shown, [first, *labels[1:]] if first and shown[:1] == [zero] else labels, strict=True))


def nice_step(least: float) -> int:
    """Return the smallest of 1, 2, 5, 10, 20, ... that is at least ``least``; from a minute on, parts of hours.

    >>> nice_step(63_250), nice_step(0), nice_step(100_000_000)
    (100000, 1, 120000000)
    """
    minute = 60_000_000
    for count in (1, 2, 5, 10, 30, 60, 120, 360, 720, 1440):
        if 30_000_000 < least <= count * minute:
            return count * minute
    scale = 1
    while True:
        for step in _STEPS:
            if step * scale >= least:
                return step * scale
        scale *= 10


def tick_words(time: int, largest: int) -> str:
    """Return the label of a tick: exact, in a unit for an axis up to ``largest``.

    >>> [tick_words(time, 1_400_000) for time in (0, 200_000, 1_000_000)], tick_words(200_000, 800_000)
    (['0 s', '0.2 s', '1 s'], '200 ms')
    >>> tick_words(200, 900), tick_words(90_000_000, 600_000_000), tick_words(3_600_500_000, 3_600_500_000)
    ('0.2 ms', '1 min 30 s', '1 h 0.5 s')
    """
    if largest < 1_000_000:
        return f"{time / 1_000:g} ms"
    minutes, rest = divmod(time, 60_000_000)
    if largest < 120_000_000 or not minutes:
        return f"{time / 1_000_000:g} s"
    hours, minutes = divmod(minutes, 60)
    parts = [f"{hours} h"] if hours else []
    parts += [f"{minutes} min"] if minutes else []
    parts += [f"{rest / 1_000_000:g} s"] if rest else []
    return " ".join(parts)
