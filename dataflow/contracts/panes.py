"""When windows show results besides the one at their end: early ones before it, late ones after it. Pure.

A result of a window and key is a *pane*. The pane at the end of the window, ``on_time``, always comes. A trigger says
when the rows that were not shown yet are shown before that (``early=``), or after it (``late=``). Rows that no trigger
has shown when their window takes no more rows are shown then.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from dataflow.clock import exact_duration_text

__all__ = ["PANE", "PANE_INDEX", "AfterRows", "AfterTime", "AtTimes", "Panes", "Trigger"]

PANE: Final = "pane"
"""The column that says of a result whether it is "early", "on_time" or "late"."""
PANE_INDEX: Final = "pane_index"
"""The column with the number of a result among those of its window and key, from 0 on."""


class Panes(Enum):
    """What a pane shows: all rows of the window so far, or those that no pane has shown before."""

    ACCUMULATING = "accumulating"
    DISCARDING = "discarding"


@dataclass(frozen=True, slots=True)
class AfterRows:
    """Shows a result when a batch leaves at least ``rows`` rows that were not shown. Use `op.after_rows`."""

    rows: int

    def __str__(self) -> str:
        return f"after_rows({self.rows})"


@dataclass(frozen=True, slots=True)
class AfterTime:
    """Shows a result ``length`` microseconds of the clock after the first row not shown. Use `op.after_time`."""

    length: int

    def __str__(self) -> str:
        return f"after_time({exact_duration_text(self.length)})"


@dataclass(frozen=True, slots=True)
class AtTimes:
    """Shows results when the watermark passes a multiple of ``length`` microseconds. Use `op.at_times`."""

    length: int

    def __str__(self) -> str:
        return f"at_times({exact_duration_text(self.length)})"

    def passes(self, before: int | None, watermark: int) -> bool:
        """Return whether a time lies between two watermarks; ``before`` is None for the first one.

        >>> AtTimes(10).passes(12, 19), AtTimes(10).passes(12, 20), AtTimes(10).passes(None, 5)
        (False, True, True)
        """
        return before is None or watermark // self.length > before // self.length


Trigger = AfterRows | AfterTime | AtTimes
