"""What grows: families of jobs that differ in one size, and the goal of each exponent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.growth.windows import QUERIES

__all__ = ["DUCKDB", "FAMILIES", "OURS", "Family", "Shape", "sizes_to"]

OURS = "ours"
DUCKDB = "duckdb"
FIXED_KEYS = 100_000
ROWS_PER_KEY = 4
WINDOW_KEYS = 100


@dataclass(frozen=True)
class Shape:
    """One job: its input, the operators in its chain, its parallelism, and the rows of its batches (None: default).

    ``query`` is one of ``QUERIES``; empty: count and sum per key.
    """

    rows: int
    keys: int
    chain: int = 0
    parallelism: int = 2
    batch_rows: int | None = None
    query: str = ""


@dataclass(frozen=True)
class Family:
    """Jobs that differ in one size.

    Args:
        name: the name of the family.
        title: the meaning of its size.
        sizes: those of a default run.
        more: those that a full run adds.
        goal: the largest exponent that meets the goal; None: there is no goal.
        engines: the engines that run it.
    """

    name: str
    title: str
    sizes: Sequence[int]
    more: Sequence[int] = ()
    goal: float | None = None
    engines: Sequence[str] = (OURS,)

    def shape(self, size: int) -> Shape:
        """Return the job of ``size``."""
        if self.name == "rows":
            return Shape(size, FIXED_KEYS)
        if self.name == "keys":
            return Shape(ROWS_PER_KEY * size, size)
        if self.name in QUERIES:
            return Shape(size, WINDOW_KEYS, batch_rows=1_000, query=self.name)
        if self.name == "chain":
            return Shape(2_000_000, 1_000, chain=size, batch_rows=1_000)
        assert self.name == "channels", self.name
        return Shape(10_000_000, FIXED_KEYS, parallelism=math.isqrt(size))

    def baseline(self, size: int) -> Shape:
        """Return the job whose time is subtracted: the same job with few rows; for a chain, the job without it."""
        shape = self.shape(size)
        if self.name == "chain":
            return Shape(shape.rows, shape.keys, batch_rows=shape.batch_rows)
        if shape.query:
            return replace(shape, rows=1_000)
        return Shape(1_000, 1_000, parallelism=shape.parallelism)


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family(
            "rows",
            f"rows, with {FIXED_KEYS:,} keys",
            (100_000, 1_000_000, 10_000_000, 100_000_000),
            (1_000_000_000,),
            1.05,
            (OURS, DUCKDB),
        ),
        Family(
            "keys",
            f"keys, with {ROWS_PER_KEY} rows each",
            (10_000, 100_000, 1_000_000, 10_000_000),
            (),
            1.15,
            (OURS, DUCKDB),
        ),
        Family("chain", "operators in a chain, batches of 1,000 rows", (1, 5, 10, 20, 35, 50)),
        Family("channels", "channels of a shuffle", (1, 4, 16, 64)),
        *[
            Family(name, f"{query.title}, {WINDOW_KEYS} keys", (30_000, 100_000, 300_000), (1_000_000,), 1.1)
            for name, query in QUERIES.items()
        ],
    )
}


def sizes_to(family: Family, most: int | None, *, full: bool) -> list[int]:
    """Return the sizes of a run, up to ``most``. Above the largest one, powers of ten are added up to ``most``.

    >>> sizes_to(FAMILIES["keys"], 100_000_000, full=False)
    [10000, 100000, 1000000, 10000000, 100000000]
    >>> sizes_to(FAMILIES["channels"], 4, full=False)
    [1, 4]
    """
    sizes = [*family.sizes, *(family.more if full else ())]
    if most is None:
        return sizes
    while family.name not in ("chain", "channels") and sizes[-1] * 10 <= most:
        sizes.append(sizes[-1] * 10)
    return [size for size in sizes if size <= most] or [most]
