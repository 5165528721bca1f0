"""Join the warnings of several runs: one warning per category, with the names of the runs that raised it."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow.errors import BarrierflowWarning

__all__ = ["WarningsByRun"]


class WarningsByRun:
    """Warnings of the runs of a comparison.

    >>> from dataflow.errors import LateRowsWarning
    >>> by_run = WarningsByRun()
    >>> by_run.add("aligned", [LateRowsWarning("3 rows came too late")])
    >>> print(*by_run.warnings())
    in run 'aligned': 3 rows came too late
    >>> by_run.add("aligned, restored", [])
    >>> by_run.add("unaligned", [LateRowsWarning("3 rows came too late"), LateRowsWarning("1 row came too late")])
    >>> print(*by_run.warnings())
    in 2 of 3 runs (aligned; unaligned): 3 rows came too late
    in 1 of 3 runs (unaligned): 1 row came too late
    """

    def __init__(self) -> None:
        self._runs = 0
        self._texts: dict[type[BarrierflowWarning], dict[str, list[str]]] = {}

    def add(self, run: str, warnings: Sequence[BarrierflowWarning]) -> None:
        """Add the warnings of the run with the name ``run``."""
        self._runs += 1
        for warning in warnings:
            self._texts.setdefault(type(warning), {}).setdefault(str(warning), []).append(run)

    def warnings(self) -> list[BarrierflowWarning]:
        """Return a warning for each category, in the order of the first run that raised it."""
        return [
            category("\n".join(self._line(text, runs) for text, runs in texts.items()))
            for category, texts in self._texts.items()
        ]

    def _line(self, text: str, runs: Sequence[str]) -> str:
        if self._runs == 1:
            return f"in run {runs[0]!r}: {text}"
        if len(runs) == self._runs:
            return f"in each of {self._runs} runs: {text}"
        return f"in {len(runs)} of {self._runs} runs ({'; '.join(runs)}): {text}"
