"""The summary of a run: plain text, a table for a terminal or a notebook, and JSON for programs.

Late and skipped rows are shown even if there are none, because a user may not know to look for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final

from dataflow.clock import duration_text
from dataflow.contracts.operator_metrics import RULES, SAMPLES, OperatorMetrics
from dataflow.contracts.updates import Changes
from dataflow.drawing import printable
from dataflow.errors import LateRowsWarning
from dataflow.runners.attempts import error_line
from dataflow.runners.barrier_summary import BarrierSummary
from dataflow.runners.run_warnings import lateness_text, share_text

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from dataflow.runners.micro_batches import MicroBatches
    from dataflow.runners.run_result import RunResult

__all__ = ["as_dict", "as_html", "as_text", "renderable"]

_OPERATORS: Final = ("operator", "rows in", "rows out", "busy", "share")
_PHASES: Final = ("micro-batches", "time", "share")
_TASKS: Final = ("task", "busy", "waiting", "blocked", "back-pressured")
_TIMES: Final = ("busy_us", "waiting_us", "blocked_us", "back_pressured_us")
_ENGINE: Final = "(engine)"
_LONGEST: Final = 200
_MEANINGS: Final[Mapping[Changes, str]] = {"rows": "rows", "updates": "updates", "signed": "signed changes"}


def as_text(result: RunResult) -> str:
    """Return the summary as lines of plain text."""
    barriers = BarrierSummary(result)
    tables = [_aligned(heads, rows) for heads, rows in _tables(result, barriers)]
    return "\n".join([*_lines(result, barriers), *("  " + line for table in tables for line in table)])


def renderable(result: RunResult) -> Group:
    """Return the summary for a ``rich`` console."""
    from rich.console import Group
    from rich.text import Text

    barriers = BarrierSummary(result)
    tables = [_table(heads, rows) for heads, rows in _tables(result, barriers)]
    return Group(*[Text(line) for line in _lines(result, barriers)], *tables)


def as_html(result: RunResult) -> str:
    """Return the summary for a notebook, with the timeline of a checkpoint, folded."""
    barriers = BarrierSummary(result)
    tables = [_html(heads, rows) for heads, rows in _tables(result, barriers)]
    lines = escape(chr(10).join(_lines(result, barriers)))
    return f"<pre>{lines}</pre>" + "".join(tables) + barriers.timeline_html()


def as_dict(result: RunResult) -> dict[str, Any]:
    """Return the summary as JSON values; times in microseconds."""
    total, barriers = _in_all(result), BarrierSummary(result)
    return {
        "pipeline": result.pipeline,
        "job_id": result.job_id,
        "state": result.state.value,
        "mode": None if result.mode is None else result.mode.value,
        "guarantee": result.guarantee.value,
        "duration_us": result.duration,
        "rows_in": dict(result.rows_in),
        "rows_pruned": dict(result.rows_pruned),
        "rows_out": dict(result.rows_out),
        "outputs": dict(result.outputs),
        "read_hints": {name: list(lines) for name, lines in result.read_hints.items()},
        "changes": dict(result.changes),
        "late": result.late,
        **{name: getattr(total, name) for name, rule in RULES.items() if rule.line},
        "skipped": result.skipped,
        "samples": [{"where": s.where, "row": s.row, "error": s.error} for s in result.samples],
        "checkpoints": {
            "completed": result.totals.completed,
            "failed": result.totals.failed,
            "slowest_us": result.totals.slowest,
            "failures": list(result.failures),
            "not_listed": result.earlier.completed + result.earlier.failed,
            "slowest": barriers.slowest_json(),
            "repeats": barriers.repeats_json(),
        },
        "blocked_channels": barriers.blocked_json(),
        "savepoint": None if result.savepoint is None else str(result.savepoint.path),
        "restarts": result.restarts,
        "attempts": [
            {
                "started_us": attempt.started,
                "ended_us": attempt.ended,
                "rows_read": attempt.rows_read,
                "restored": attempt.restored_checkpoint,
                "error": None if attempt.error is None else error_line(attempt.error),
            }
            for attempt in result.attempts
        ],
        "notes": list(result.notes),
        "warnings": [{"category": type(w).__name__, "text": str(w)} for w in result.warnings],
        "restore": None if result.restore_report is None else result.restore_report.to_json(),
        "operators": [o.to_json() for o in result.operators],
        "tasks": [{"task": task, **dict(zip(_TIMES, times, strict=True))} for task, times in _times(result)],
        "tuning": result.tuning.to_json(),
        "micro_batches": None if result.micro_batches is None else result.micro_batches.to_json(),
    }


def _lines(result: RunResult, barriers: BarrierSummary) -> list[str]:
    """Return the lines above the tables, without control characters: names and errors may have any."""
    return [printable(line) for line in _raw_lines(result, barriers)]


def _raw_lines(result: RunResult, barriers: BarrierSummary) -> list[str]:
    mode = "no checkpoints" if result.mode is None else f"mode {result.mode}"
    lines = [
        f"{result.pipeline}: {result.state.value} in {duration_text(result.duration)}; {mode}; "
        f"end to end {result.guarantee.value}"
    ]
    pruned = {name: f" ({rows:,} pruned)" for name, rows in result.rows_pruned.items() if rows}
    lines += [
        f"  in   {name}: {rows:,} rows{pruned.get(name, '')}{_rate(rows, result.duration)}"
        for name, rows in result.rows_in.items()
    ]
    where = {name: f" -> {pattern}" for name, pattern in result.outputs.items()}
    for name, rows in result.rows_out.items():
        lines.append(f"  out  {name}: {rows:,} {_MEANINGS[result.changes.get(name, 'rows')]}{where.get(name, '')}")
        lines += [f"       {hint}" for hint in result.read_hints.get(name, ())]
    since = ", since the restore" if result.restore_report is not None else ""
    lines.append("  late: " + _counted(result, "late") + since)
    lines += [
        f"    {o.operator!r}: {', '.join(filter(None, (share_text(o.lateness), lateness_text(o.lateness))))}"
        for o in result.operators
        if o.late and o.lateness.rows
    ]
    total = _in_all(result)
    lines += [
        f"  {rule.line}: {_counted(result, name)}{since}"
        for name, rule in RULES.items()
        if rule.line and getattr(total, name)
    ]
    lines.append("  skipped: " + _counted(result, "skipped"))
    lines += [_short(f"    {s.where}: {s.row}: {s.error}") for s in result.samples[:SAMPLES]]
    if result.mode is not None:
        totals, hidden = result.totals, result.earlier.completed + result.earlier.failed
        more = f" (the records of {hidden:,} are not kept)" if hidden else ""
        lines.append(
            f"  checkpoints: {totals.completed} completed, {totals.failed} failed, slowest "
            f"{duration_text(totals.slowest)}{more}"
        )
        written = any(record.tasks for record in result.checkpoints)  # by this engine, not by Spark
        lines += [f"  writer: {result.persistence}"] if written else []
    lines += barriers.lines
    if result.savepoint is not None:
        lines.append(f"  savepoint: checkpoint {result.savepoint.id} in {result.savepoint.path}")
    lines += _restarts(result)
    lines += [f"  {result.micro_batches.headline}"] if result.micro_batches is not None else []
    lines += [f"  note: {note}" for note in result.notes]
    lines += [f"  failed {failure}" for failure in result.failures[-3:]]
    lines += [_short(f"  warning: {w}") for w in result.warnings if not isinstance(w, LateRowsWarning)]  # shown above
    if result.restore_report is not None:
        lines += ["  " + line for line in str(result.restore_report).splitlines()]
    return lines


def _restarts(result: RunResult) -> list[str]:
    """Return a line about the restarts, with the last error that was followed by one; none if there were none."""
    if not result.restarts:
        return []
    errors = [attempt.error for attempt in result.attempts if attempt.error is not None]
    last = f"; the last error: {error_line(errors[-1])}" if errors else ""
    return [_short(f"  restarts: {result.restarts:,}{last}")]


def _tables(result: RunResult, barriers: BarrierSummary) -> list[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the headings and rows of each table."""
    batches = result.micro_batches
    phases = [] if batches is None else [(_PHASES, _phases(batches))]
    tables = [(_OPERATORS, _operators(result)), (_TASKS, _tasks(result)), *barriers.tables, *phases]
    return [(heads, [tuple(map(printable, row)) for row in rows]) for heads, rows in tables]


def _phases(batches: MicroBatches) -> list[tuple[str, ...]]:
    return [(name, duration_text(time), _share(time, batches.duration)) for name, time in batches.phases.items()]


def _operators(result: RunResult) -> list[tuple[str, ...]]:
    """Return a row per operator, and one for the time in the engine: queues, checkpoints, polls without rows."""
    total = sum(task.meter.busy for task in result.metrics)
    rest = max(0, total - sum(o.busy for o in result.operators))
    rows = [
        (o.operator, f"{o.rows_in:,}", f"{o.rows_out:,}", duration_text(o.busy), _share(o.busy, total))
        for o in result.operators
    ]
    return [*rows, (_ENGINE, "", "", duration_text(rest), _share(rest, total))]


def _tasks(result: RunResult) -> list[tuple[str, ...]]:
    return [(task, *["-" if time is None else duration_text(time) for time in times]) for task, times in _times(result)]


def _times(result: RunResult) -> Iterator[tuple[str, Sequence[int | None]]]:
    """Yield what each task did, in the order of the columns; None: it is not measured, on Spark."""
    measured = result.events.plan.is_measured
    for task in result.metrics:
        did = task.meter
        waits = (did.waiting, did.blocked, did.back_pressured)
        yield task.task, (did.busy, *waits) if measured else (did.busy, None, None, None)


def _aligned(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the table as lines of text: the first column aligned left, the others right."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in lines
    ]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _html(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    lines += ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _in_all(result: RunResult) -> OperatorMetrics:
    """Return the sums over all operators."""
    return sum(result.operators, OperatorMetrics())


def _counted(result: RunResult, name: str) -> str:
    """Return a metric over all operators as text, and the operators where it is not 0."""
    where = ", ".join(f"{getattr(o, name):,} at {o.operator!r}" for o in result.operators if getattr(o, name))
    return f"{getattr(_in_all(result), name):,} {RULES[name].unit}" + (f" ({where})" if where else "")


def _rate(rows: int, duration: int) -> str:
    return f", {rows * 1_000_000 // duration:,} rows/s" if duration else ""


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _short(line: str) -> str:
    line = line.replace("\n", " ")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 3] + "..."
