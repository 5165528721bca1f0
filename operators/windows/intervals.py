"""Windows of keys that become one if they overlap or touch, as arrays: interval i is of owner ``owners[i]``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import Numbers

__all__ = ["Intervals", "merged"]

Owners = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals from ``starts`` to ``ends``, by owner. Those of one owner are apart, in order of time.

    >>> intervals = merged(np.array([0, 0, 0, 1]), np.array([5, 0, 20, 7]), np.array([9, 5, 25, 8]))
    >>> intervals.owners.tolist(), intervals.starts.tolist(), intervals.ends.tolist()
    ([0, 0, 1], [0, 20, 7], [9, 25, 8])
    >>> intervals.holding(np.array([0, 0, 1]), np.array([5, 22, 9]), np.array([9, 23, 10])).tolist()
    [0, 1, -1]
    """

    owners: Owners
    starts: Numbers
    ends: Numbers

    def __len__(self) -> int:
        return len(self.owners)

    def holding(self, owners: Owners, starts: Numbers, ends: Numbers) -> npt.NDArray[np.int64]:
        """Return the interval that each of other intervals lies in; -1: none."""
        if not len(self):
            return np.full(len(owners), -1)
        values, ranks = np.unique(np.concatenate([self.ends, ends]), return_inverse=True)
        count = len(self)
        own = self.owners * len(values) + ranks[:count]
        at = np.searchsorted(own, owners * len(values) + ranks[count:])
        found = np.minimum(at, count - 1)
        holds = (at < count) & (self.owners[found] == owners) & (self.starts[found] <= starts)
        return np.where(holds, found, -1)


def merged(owners: Owners, starts: Numbers, ends: Numbers) -> Intervals:
    """Return what intervals of the same owner become. Each ends after its start."""
    if not len(owners):
        return Intervals(owners, starts, ends)
    order = np.lexsort((starts, owners))
    owners, starts, ends = owners[order], starts[order], ends[order]
    values, ranks = np.unique(ends, return_inverse=True)
    # a greater owner has greater numbers, so the maximum so far is that of the owner
    reached = values[np.maximum.accumulate(owners * len(values) + ranks) % len(values)]
    begins = np.ones(len(owners), np.bool_)
    begins[1:] = (owners[1:] != owners[:-1]) | (starts[1:] > reached[:-1])
    first = np.flatnonzero(begins)
    return Intervals(owners[first], starts[first], reached[np.append(first[1:], len(owners)) - 1])
