"""Windows without times: one for all rows, or windows of so many rows in the order of arrival. Pure.

Their results have ``window_index`` instead of the edges of a window, and no event time. No row is late in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["WINDOW_INDEX", "CountWindow", "GlobalWindow", "Untimed"]

WINDOW_INDEX: Final = "window_index"
"""The column with the number of a window among those of its key, from 0 on."""


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """One window for all rows of a key. Use `op.global_window`."""

    def __str__(self) -> str:
        return "global_window()"


@dataclass(frozen=True, slots=True)
class CountWindow:
    """Windows of ``rows`` rows of a key by arrival; one ends after every ``every`` rows. Use `op.count_window`.

    >>> str(CountWindow(4, 2))
    'count_window(4, every=2)'
    """

    rows: int
    every: int

    def __str__(self) -> str:
        return f"count_window({self.rows}, every={self.every})"


Untimed = GlobalWindow | CountWindow
