"""The report of a comparison as a page of HTML: tables, charts, and a timeline of each mode. It requests nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final, Protocol

from dataflow.compare.charts import cost_charts
from dataflow.compare.mode_report import ModeReport
from dataflow.compare.tables import ReportTable
from dataflow.compare.trial import RECORDING
from dataflow.drawing import printable
from dataflow.errors import EventsError
from dataflow.views.documents import html_page, save
from dataflow.views.events import Events
from dataflow.views.read_events import read_events
from dataflow.views.timeline import Timeline, compare_timelines

__all__ = ["PageReport", "report_page", "save_page"]

_STYLE: Final = """\
body{max-width:82rem}
table{border-collapse:collapse;margin:.5rem 0}
th,td{padding:.2rem .7rem .2rem 0;text-align:left;vertical-align:top;border-bottom:1px solid #98a2b0}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums}
.table{overflow-x:auto}
h3{font-size:1.1rem;overflow-wrap:anywhere}
figure svg,details svg{max-width:100%;height:auto}
p.soft{opacity:.75}
p.problem{font-weight:bold}
"""


class PageReport(Protocol):
    """What the page shows of a report."""

    @property
    def headline(self) -> str: ...

    @property
    def tables(self) -> Sequence[ReportTable]: ...

    @property
    def closing(self) -> Sequence[str]: ...

    @property
    def problems(self) -> Sequence[str]: ...


def save_page(file: Path, title: str, report: PageReport, modes: Sequence[ModeReport]) -> None:
    """Write `report_page` to ``file``. Raises: StoreError if it cannot be written."""
    save(file, {".html": lambda: report_page(title, report, modes)})


def report_page(title: str, report: PageReport, modes: Sequence[ModeReport]) -> str:
    """Return the page. The recordings in the folders of the runs are read.

    Args:
        title: the heading.
        report: its tables and conclusions are shown.
        modes: the results of the modes, in order.
    """
    undisturbed = {str(mode.mode): _recording(mode.undisturbed) for mode in modes}
    runs = {name: events for name, events in undisturbed.items() if isinstance(events, Events)}
    parts = [
        f"<h1>{_text(title)}</h1>",
        *_conclusions(report),
        *map(_table, report.tables),
        *_charts(runs),
        *_timelines(runs),
        *_whole_runs(modes),
        *[_paragraph(f"{name}: {why}", "soft") for name, why in undisturbed.items() if isinstance(why, str)],
    ]
    return html_page(title, "\n".join(parts), style=_STYLE)


def _recording(folder: Path) -> Events | str:
    """Return the events of the run in ``folder``, or why there are none."""
    try:
        return read_events(folder / RECORDING)
    except EventsError as error:
        return str(error)


def _conclusions(report: PageReport) -> Iterator[str]:
    yield _paragraph(report.headline)
    for problem in report.problems:
        yield _paragraph(f"error: {problem}", "problem")
    first, *others = report.closing
    yield _paragraph(first)
    yield f"<ul>{''.join(f'<li>{_text(paragraph)}</li>' for paragraph in others)}</ul>"


def _table(table: ReportTable) -> str:
    headings = list(table.rows[0])
    number = {heading: ' class="number"' if table.is_numeric(heading) else "" for heading in headings}
    head = "".join(f"<th{number[heading]}>{_text(heading)}</th>" for heading in headings)
    rows = ["".join(f"<td{number[heading]}>{_text(row[heading])}</td>" for heading in headings) for row in table.rows]
    body = "".join(f"<tr>{row}</tr>" for row in [head, *rows])
    legend = "".join(f"<li>{_text(line)}</li>" for line in table.legend_lines())
    return (
        f'<h2>{_text(table.title.rstrip(":"))}</h2><div class="table"><table>{body}</table></div>'
        f"<details><summary>What the columns mean</summary><ul>{legend}</ul></details>"
    )


def _charts(runs: Mapping[str, Events]) -> Iterator[str]:
    if runs:
        yield "<h2>What checkpoints cost, in the run without a kill</h2>"
        yield from (f"<figure>{chart}</figure>" for chart in cost_charts(runs))


def _timelines(runs: Mapping[str, Events]) -> Iterator[str]:
    """Yield a timeline of each mode, all at one scale of time; of a mode without checkpoints, the reason."""
    drawn: dict[str, Events] = {}
    reasons = []
    for name, events in runs.items():
        try:
            events.timeline()
        except EventsError as error:
            reasons.append(f"{name}: {error}")
        else:
            drawn[name] = events
    if drawn:
        yield "<h2>What barriers did in the run without a kill, all modes at one scale of time</h2>"
        yield _body(compare_timelines(drawn))
    yield from (_paragraph(reason, "soft") for reason in reasons)


def _whole_runs(modes: Sequence[ModeReport]) -> Iterator[str]:
    """Yield the whole of each run that was killed and restored, folded."""
    recordings = [(mode, _recording(mode.killed)) for mode in modes if mode.killed is not None]
    pictures = [(mode, _whole(events)) for mode, events in recordings if isinstance(events, Events)]
    if any(picture for _, picture in pictures):
        yield "<h2>The runs that were killed and restored</h2>"
    for mode, picture in pictures:
        if picture:
            yield f"<details><summary>{_text(str(mode.mode))}</summary>{picture}</details>"


def _whole(events: Events) -> str:
    try:
        return _body(events.timeline("all"))
    except EventsError:
        return ""


def _body(timeline: Timeline) -> str:
    return timeline.body(level=3)


def _paragraph(text: str, kind: str = "") -> str:
    return f'<p class="{kind}">{_text(text)}</p>' if kind else f"<p>{_text(text)}</p>"


def _text(text: str) -> str:
    return escape(printable(text))
