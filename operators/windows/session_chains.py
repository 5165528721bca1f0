"""Sessions as chains of cells (``session_cells``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots

__all__ = ["Sessions"]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Sessions as chains of cells: session i has the cells from ``offsets[i]`` to ``offsets[i + 1]``, in time order."""

    cells: Slots
    offsets: Numbers

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def ends(self) -> Slots:
        """The last cell of each session."""
        return self.cells[self.offsets[1:] - 1]

    @property
    def before_ends(self) -> Slots:
        """All cells but the last one of each session."""
        others = np.ones(len(self.cells), np.bool_)
        others[self.offsets[1:] - 1] = False
        return self.cells[others]

    @property
    def numbers(self) -> Slots:
        """The number of each cell's session."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.offsets))

    def chosen(self, mask: npt.NDArray[np.bool_]) -> Sessions:
        """Return the sessions whose entry of ``mask`` is true.

        >>> sessions = Sessions(np.array([4, 5, 6], np.int32), np.array([0, 2, 3]))
        >>> sessions.chosen(np.array([False, True])).cells.tolist()
        [6]
        """
        lengths = np.diff(self.offsets)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[mask])])
        return Sessions(self.cells[np.repeat(mask, lengths)], offsets)
