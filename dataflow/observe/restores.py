"""A restore's report as a table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.restore.report_text import Section, sections

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["headline", "table"]


def headline(report: RestoreReport) -> str:
    """Which checkpoint it is about."""
    return f"a restore of checkpoint {report.checkpoint} in {report.location}, mode {report.mode}"


def table(report: RestoreReport) -> Table:
    """A section for each thing there is to say: a line that sums it up, then its details; long lists are cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("what", overflow="fold")
    found.add_column("how much", overflow="fold")
    for section in sections(report):
        found.add_row(Text(section.title), Text(section.summary), style="bold")
        for name, detail in _details(section):
            found.add_row(Text(f"  {name}"), Text(detail))
    return found


def _details(section: Section) -> list[tuple[str, str]]:
    details = [(line[0], "  ".join(line[1:])) for line in section.lines]
    return [*details, (f"... and {section.more:,} more", "")] if section.more else details
