"""The windows that a watermark completes, of those that have rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dataflow.contracts.windows import Sliced
from dataflow.state.arrays import LEAST, Numbers
from operators.stateful.row_log import WindowRows

__all__ = ["CompleteWindows", "complete_windows"]

_WINDOWS = 8_192
"""The most windows whose numbers are made at a time."""


class CompleteWindows:
    """The windows after ``done``, up to ``last``, that contain one of ``slices``, in ascending order.

    Numbers are made in parts, because a slice may be in very many windows. Each of ``slices``, which ascend, is
    in at most ``overlap`` of the windows.

    >>> from dataflow.contracts.window_kinds import Hopping
    >>> windows = CompleteWindows(Hopping(10, 5), np.array([3, 4, 9]), 2, 8)
    >>> len(windows), list(windows), windows.part(1, 3).tolist()
    (3, [3, 4, 8], [4, 8])
    """

    def __init__(self, window: Sliced, slices: Numbers, done: int | None, last: int) -> None:
        firsts, ends = window.containing(slices)
        least, most = (int(firsts[0]), int(ends[-1])) if len(slices) else (0, -1)
        least = least if done is None else max(least, done + 1)
        ends = np.minimum(ends, max(min(last, most), least - 1))
        after = np.append(least, ends[:-1] + 1)[: len(ends)]  # a window is listed with the first of its slices
        self.overlap = int(np.max(ends - np.maximum(firsts, least) + 1, initial=0))
        self._begins = np.maximum(firsts, after)
        self._counts = np.maximum(ends - self._begins + 1, 0)
        self._totals = np.cumsum(self._counts)

    def __len__(self) -> int:
        return int(self._totals[-1]) if len(self._totals) else 0

    def __iter__(self) -> Iterator[int]:
        for start in range(0, len(self), _WINDOWS):
            yield from self.part(start, start + _WINDOWS).tolist()

    def part(self, start: int, stop: int) -> Numbers:
        """Return the numbers of the windows ``start`` to ``stop`` - 1 of all, as far as there are so many."""
        places = np.arange(start, min(stop, len(self)))
        of = np.searchsorted(self._totals, places, side="right")
        return self._begins[of] + places - (self._totals[of] - self._counts[of])


def complete_windows(window: Sliced, logs: Sequence[WindowRows], before: int, closed: int) -> Iterator[int]:
    """Yield the windows that ``closed`` completes and ``before`` did not, of those that have rows in one of ``logs``.

    Both are times in microseconds; the least number of 64 bits completes nothing. Rows have the numbers of slices.
    """
    done, last = None if before == LEAST else window.last_complete(before), window.last_complete(closed)
    if done != last:
        stop = window.covered(last)[1]
        slices = np.unique(np.concatenate([log.numbers(stop) for log in logs]))
        yield from CompleteWindows(window, slices, done, last)
