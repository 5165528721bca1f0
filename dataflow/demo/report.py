"""What the demo found: the comparison, and how many flights it was made on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataflow.compare.report import CompareReport

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["DemoReport"]


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole demo: ``read`` flights, ``cancelled`` of them without a departure, and what became of them."""

    compared: CompareReport
    read: int
    cancelled: int

    @property
    def duration(self) -> int:
        return self.compared.duration

    @property
    def problems(self) -> list[str]:
        """Everything that is not as it must be, one sentence each."""
        return self.compared.problems

    @property
    def headline(self) -> str:
        """The input in one sentence."""
        kept = self.read - self.cancelled
        return f"{self.read:,} flights read, {self.cancelled:,} cancelled ones dropped, {kept:,} counted"

    def table(self) -> Table:
        """One row a mode."""
        return self.compared.table()

    def sheet(self) -> Table:
        """One column a mode."""
        return self.compared.sheet()

    def to_json(self) -> dict[str, Any]:
        """All of it, with times in microseconds."""
        return {"flights_read": self.read, "cancelled_dropped": self.cancelled, **self.compared.to_json()}
