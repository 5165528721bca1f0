"""What is measured: variants of checkpoints, a centre of five factors, and the levels of each factor around it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["CENTRE", "FACTORS", "MODES", "NONE", "STOP_THE_WORLD", "VARIANTS", "Factor", "Point", "Setting", "points"]

NONE = "none"
STOP_THE_WORLD = "stop-the-world"
MODES = ("aligned", "unaligned", "unaligned-persisted", "aligned-timeout")
VARIANTS = (NONE, STOP_THE_WORLD, *MODES)


@dataclass(frozen=True)
class Setting:
    """The five factors.

    Attributes:
        interval: milliseconds from the start of one checkpoint to the start of the next.
        keys: the number of keys of the large state, with two numbers each.
        skew: the share of the rows that have one key.
        slow: microseconds per row that the last operator waits; 0: no back-pressure beyond that of the processor.
        parallelism: subtasks of each operator.
    """

    interval: int = 200
    keys: int = 100_000
    skew: float = 0.0
    slow: int = 0
    parallelism: int = 2


@dataclass(frozen=True)
class Factor:
    """A factor by the name of its field, with its levels; ``more`` are those of a full run."""

    field: str
    title: str
    levels: Sequence[Any]
    more: Sequence[Any] = ()


@dataclass(frozen=True)
class Point:
    """One level of one factor, with the whole setting."""

    factor: str
    level: float
    setting: Setting


CENTRE = Setting()
FACTORS: Mapping[str, Factor] = {
    factor.field: factor
    for factor in (
        Factor("interval", "checkpoint interval, ms", (10, 50, 200, 1_000, 2_000), (10_000,)),
        Factor("keys", "keys of state", (10_000, 100_000, 1_000_000)),
        Factor("skew", "share of rows with one key", (0.0, 0.5, 0.9)),
        Factor("slow", "wait of the last operator, us per row", (0, 2, 10)),
        Factor("parallelism", "parallelism", (1, 2, 4)),
    )
}


def points(factors: Sequence[str], *, full: bool, centre: Setting = CENTRE) -> Iterator[Point]:
    """Yield the points of ``factors``. The centre is a level of each; measure equal settings once.

    >>> [point.level for point in points(["interval"], full=True)]
    [10, 50, 200, 1000, 2000, 10000]
    """
    for name in factors:
        factor = FACTORS[name]
        levels = {*factor.levels, getattr(centre, name), *(factor.more if full else ())}
        for level in sorted(levels):
            yield Point(name, level, replace(centre, **{name: level}))
