"""A histogram of how late the late rows of an operator were: of bounded size, exact to 3 %.

Lateness is the time from the moment a window stopped taking rows (its end plus the allowed lateness) to the watermark
that a row met. It is counted in buckets whose width is 1/32 of their lower bound or less. So 64 bits of microseconds
need 1,900 buckets at most, and histograms of subtasks are merged by addition.

>>> lateness = Lateness()
>>> lateness.add([0, 1_000, 2_000, 60_000_000])
>>> lateness.checked = 10
>>> lateness.rows, lateness.share, lateness.quantile(0.5), lateness.most
(4, 0.4, 1007, 60000000)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = ["Lateness"]

_BITS: Final = 5
_FINE: Final = 1 << _BITS


@dataclass(slots=True)
class Lateness:
    """A histogram of the lateness of rows, in microseconds.

    Attributes:
        checked: rows whose time was compared with the watermark, late or not; 0 if the operator does not count them.
        buckets: rows by number of the bucket.
        most: the largest lateness.
    """

    checked: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    most: int = 0

    @property
    def rows(self) -> int:
        """The number of late rows whose lateness is known."""
        return sum(self.buckets.values())

    @property
    def share(self) -> float | None:
        """The share of the checked rows that was late, 0 to 1; None if no row was checked."""
        return self.rows / self.checked if self.checked else None

    def add(self, lateness: Sequence[int] | Any, rows: Sequence[int] | Any | None = None) -> None:
        """Count late rows.

        Args:
            lateness: microseconds, 0 or more; a sequence or an int64 array.
            rows: the number of rows that each entry represents; None: one.
        """
        import numpy as np

        late = np.asarray(lateness, np.int64)
        if not late.size:
            return
        _, exponents = np.frexp(late.astype(np.float64))
        shifts = np.maximum(exponents.astype(np.int64) - (_BITS + 1), 0)
        numbers, inverse = np.unique(shifts * _FINE + (late >> shifts), return_inverse=True)
        counts = np.bincount(inverse, weights=None if rows is None else np.asarray(rows, np.float64))
        self._count(zip(numbers.tolist(), map(int, counts.tolist()), strict=True))
        self.most = max(self.most, int(late.max()))

    def __add__(self, other: Lateness) -> Lateness:
        """Return the histogram of the rows of both. The thread of an operator may be counting in either."""
        both = Lateness(self.checked + other.checked, dict(self.buckets), max(self.most, other.most))
        both._count(dict(other.buckets).items())
        return both

    def quantile(self, q: float) -> int:
        """Return a lateness that a share ``q`` (0 to 1) of the late rows does not exceed, in microseconds: at most 1/32
        too large.

        Raises: ValueError if no row was late.

        >>> Lateness(buckets={0: 3, 40: 1}, most=40).quantile(0.5)
        0
        """
        if not self.buckets:
            raise ValueError("no row was late: there is no quantile")
        limit, counted = q * self.rows, 0
        for number in sorted(self.buckets):
            counted += self.buckets[number]
            if counted >= limit:
                return min(_upper(number), self.most)
        return self.most

    def to_json(self) -> dict[str, Any] | None:
        """Return the quantiles for programs, in microseconds; None if no lateness is known."""
        if not self.buckets:
            return None
        return {"p50": self.quantile(0.5), "p90": self.quantile(0.9), "max": self.most}

    def _count(self, entries: Iterable[tuple[int, int]]) -> None:
        for number, rows in entries:
            self.buckets[number] = self.buckets.get(number, 0) + rows


def _upper(number: int) -> int:
    """Return the largest lateness of a bucket.

    >>> [_upper(n) for n in (0, 63, 64, 96)]
    [0, 63, 65, 131]
    """
    if number < 2 * _FINE:
        return number
    shift = number // _FINE - 1
    return ((number - shift * _FINE + 1) << shift) - 1
