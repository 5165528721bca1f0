"""Tables of a report: one row per mode where there is room, else one column per mode, with a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["ReportTable"]


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of texts.

    Attributes:
        title: one line to print above the table.
        rows: the cells of each mode by heading. All rows have the same headings; the first one is "mode".
        legend: the meaning and unit of each heading that needs one.

    >>> table = ReportTable("Cost", [{"mode": "aligned", "bytes": "12"}], {"bytes": "size of the largest checkpoint"})
    >>> print(*table.legend_lines())
    bytes: size of the largest checkpoint
    """

    title: str
    rows: Sequence[Mapping[str, str]]
    legend: Mapping[str, str]

    def is_numeric(self, heading: str) -> bool:
        """Return whether each cell starts with a digit, or is a dash: such columns are aligned to the right."""
        return all(row[heading][:1].isdigit() or row[heading] == "-" for row in self.rows)

    def wide(self) -> Table:
        """Return the table with one row per mode."""
        table = _empty_table()
        for heading in self.rows[0]:
            table.add_column(heading, justify="right" if self.is_numeric(heading) else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row.values())
        return table

    def narrow(self) -> Table:
        """Return the table with one column per mode, for narrow terminals."""
        first, *others = self.rows[0]
        table = _empty_table()
        table.add_column(first, no_wrap=True)
        for row in self.rows:
            table.add_column(row[first], overflow="fold")
        for heading in others:
            table.add_row(heading, *(row[heading] for row in self.rows))
        return table

    def legend_lines(self) -> list[str]:
        """Return one line per heading of the legend, in the order of the columns, and one for dashes."""
        lines = [f"{heading}: {self.legend[heading]}" for heading in self.rows[0] if heading in self.legend]
        has_dash = any(cell == "-" for row in self.rows for cell in row.values())
        return [*lines, *(["a dash: not measured by this runner, or not done"] if has_dash else [])]


def _empty_table() -> Table:
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD, pad_edge=False)
