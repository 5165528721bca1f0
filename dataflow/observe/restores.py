"""Show the report of a restore as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.drawing import printable
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.restore.report_text import Section, sections

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["headline", "table"]


def headline(report: RestoreReport) -> str:
    """Return one line that names the checkpoint."""
    return f"a restore of checkpoint {report.checkpoint} in {report.location}, mode {report.mode}"


def table(report: RestoreReport) -> Table:
    """Return a table with a summary row for each section of the report and its details below; long lists are cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    result.add_column("section", overflow="fold")
    result.add_column("content", overflow="fold")
    for section in sections(report):
        result.add_row(Text(section.title), Text(printable(section.summary)), style="bold")
        for name, detail in _details(section):
            result.add_row(Text(printable(f"  {name}")), Text(printable(detail)))
    return result


def _details(section: Section) -> list[tuple[str, str]]:
    details = [(line[0], "  ".join(line[1:])) for line in section.lines]
    return [*details, (f"... and {section.more:,} more", "")] if section.more else details
