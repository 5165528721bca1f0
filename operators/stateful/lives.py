"""The rows of a batch that count for the values of their keys, if values expire."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataflow.state.free_numbers import MANY
from dataflow.state.index import Slots

__all__ = ["Lives"]


class Lives:
    """Finds the rows that come before a row that found its key expired: they do not count for the value that begins.

    A call costs what its batch costs, however many keys there are: memory for each slot is kept between calls.

    >>> lives = Lives()
    >>> lives.lasting(np.array([7, 8, 7], np.int32), np.array([False, True, True]), 9).tolist()
    [False, True, True]
    """

    kernels = ("operators.kernels.lives",)

    def __init__(self) -> None:
        self._last = np.empty(0, np.int32)  # -1 between calls

    @property
    def nbytes(self) -> int:
        """The memory that is kept between calls."""
        return self._last.nbytes

    def lasting(self, slots: Slots, fresh: npt.NDArray[np.bool_], used: int) -> npt.NDArray[np.bool_] | None:
        """Return for each row whether it counts; None: all do.

        Args:
            slots: the slot of each row.
            fresh: whether each row found no visible value of its key.
            used: the number of slots that there are, all of ``slots`` are below it.
        """
        from operators.kernels.lives import mark_lasting

        if not fresh.any():
            return None
        if not used <= len(self._last) <= 4 * max(used, MANY):
            self._last = np.full(max(2 * used, 64), -1, np.int32)
        lasting = np.empty(len(slots), np.bool_)
        return None if mark_lasting(slots, fresh, self._last, lasting) == len(slots) else lasting
