"""Intervals on the clock of a time zone: when the one that contains a time begins, and when it ends.

The edges are the readings ``offset + k * every`` of the clock, for all whole numbers k, and an interval is from one to
the next, without gap or overlap:

- A reading that the clock shows once is an edge at that instant; one that it skips, at the end of the gap.
- A reading that it shows twice is an edge the first time only, so a day with two midnights is one interval. If
  intervals are no longer than the clock was set back, it is an edge both times, so both hours are intervals.

This code assumes that the clock of a zone does not change twice within two days (in Freetown in 1939 it did after
four), and is never set back by more than a day.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.expressions.signatures import NANOSECONDS

__all__ = ["LocalIntervals", "Ticks"]

Ticks = npt.NDArray[np.int64]
"""Times or readings of a clock, in units of time since 1970."""

_DAY: Final = 86_400 * 10**9
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class LocalIntervals:
    """Intervals of ``every`` ticks on the clock of ``zone``; times are int64 ticks of ``unit`` since 1970 in UTC.

    ``offset`` is 0 or more, and below ``every``.

    >>> days = LocalIntervals(86_400, 0, "s", "America/Havana")
    >>> midnight = 1_541_304_000  # of the 4th of November 2018, whose first hour the clock shows twice
    >>> later = np.array([0, 3_600, 25 * 3_600])
    >>> (days.starts(midnight + later) - midnight).tolist(), (days.ends(midnight + later) - midnight).tolist()
    ([0, 0, 90000], [90000, 90000, 176400])
    """

    every: int
    offset: int
    unit: str
    zone: str

    def starts(self, times: Ticks) -> Ticks:
        """Return the start of the interval that contains each time.

        Raises: OverflowError for a start, or a reading of the clock, that int64 cannot hold.
        """
        return self._edges(times, following=0)

    def ends(self, times: Ticks) -> Ticks:
        """Return the end of the interval that contains each time, which is the start of the next one.

        Raises: OverflowError for an end, or a reading of the clock, that int64 cannot hold.
        """
        return self._edges(times, following=1)

    @property
    def _day(self) -> int:
        return _DAY // NANOSECONDS[self.unit]

    def _edges(self, times: Ticks, following: int) -> Ticks:
        """Return the latest edge up to each time, or the edge that is ``following`` it."""
        shown = self._shown(times)
        may_wrap = len(times) > 0 and max(-int(times.min()), int(times.max())) > _MOST - 3 * self._day
        if may_wrap:
            self._check((shown > times) == (shown - times > 0))
        if self.every > self._day:
            return self._edges_by_search(times, shown, following)
        further = following * self.every - np.remainder(np.remainder(shown, self.every) - self.offset, self.every)
        edges = times + further
        if may_wrap:
            self._check((edges > times) == (further > 0))
        before = np.maximum(edges, _LEAST + self.every) - self.every
        ahead = self._shown(edges) - edges if following else shown - times
        changed = self._shown(before) - before != ahead
        if changed.any():
            edges[changed] = self._edges_by_search(times[changed], shown[changed], following)
        return edges

    def _edges_by_search(self, times: Ticks, shown: Ticks, following: int) -> Ticks:
        edges = self._edges_near(shown)
        places = np.searchsorted(edges, times, side="right") - 1 + following
        self._check((places >= 0) & (places < len(edges)))
        return edges[places]

    def _edges_near(self, shown: Ticks) -> Ticks:
        """Return edges in ascending order: at least the last one up to each of the times, and the first one after it.

        Their readings are next to what the clock shows. After the clock was set back, up to ``skipped`` readings were
        shown ahead of that; before it is set back, as many will be shown again.
        """
        numbers = shown // self.every - (shown % self.every < self.offset)
        margin = 2 * self._day  # a reading and its instant are at most as far apart
        least = -((self.offset - _LEAST - margin) // self.every)
        most = (_MOST - margin - self.offset) // self.every
        self._check((least <= numbers) & (numbers <= most))
        if self.every > self._day:
            numbers = np.unique(numbers)
            near = [numbers, numbers + 1, numbers + 2]
        else:
            first, last = self._instants(shown)
            skipped = (last - first) // self.every
            steps = (-skipped, 1 - skipped, 0, 1, 2, skipped, skipped + 1)
            near = [numbers + step for step in steps]
        numbers = np.unique(np.concatenate(near))
        numbers = numbers[(least <= numbers) & (numbers <= most)]
        first, last = self._instants(numbers * self.every + self.offset)
        return np.unique(np.concatenate([first, last[last - first >= self.every]]))

    def _shown(self, times: Ticks) -> Ticks:
        """Return what the clock shows, in ticks since its reading 1970-01-01 00:00; beyond int64 it wraps."""
        column = to_array(times, pa.timestamp(self.unit, self.zone))
        shown: Ticks = to_numbers(pc.local_timestamp(column).cast(pa.int64()))
        return shown

    def _instants(self, readings: Ticks) -> tuple[Ticks, Ticks]:
        """Return the first and the last time at which the clock shows each reading; in a gap, its end."""
        column = to_array(readings, pa.timestamp(self.unit))
        first, last = (
            pc.assume_timezone(column, self.zone, ambiguous=which, nonexistent="latest").cast(pa.int64())
            for which in ("earliest", "latest")
        )
        return to_numbers(first), to_numbers(last)

    def _check(self, holds: npt.NDArray[np.bool_]) -> None:
        if not holds.all():
            raise OverflowError(
                "an interval begins or ends beyond the times of the column's type; filter such rows out"
            )
