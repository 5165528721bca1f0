"""Format the report on a restore as text: a headline, then one short section per subject.

A section has a summary, which counts everything, and lines, of which the first few are shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow.clock import duration_text

if TYPE_CHECKING:
    from dataflow.contracts.source import Json
    from dataflow.runtime.restore.report import RestoreReport

__all__ = ["SHOWN", "Section", "sections", "text"]

SHOWN = 10
"""Lines of a section that are shown; the rest is counted."""
_LONGEST = 200
_LONGEST_TEXT = 100
"""Limit for the characters of an offset, and of each text in it."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section: its ``summary`` counts everything; ``lines`` are rows of cells, and ``more`` lines are left out."""

    title: str
    summary: str
    lines: Sequence[Sequence[str]] = ()
    more: int = 0

    @staticmethod
    def of(title: str, summary: str, lines: Sequence[Sequence[str]]) -> Section:
        """Return a section with the first ``SHOWN`` of ``lines``, or one more, because counting it takes a line, too.

        >>> [Section.of("t", "s", [("x",)] * n).more for n in (10, 11, 12)]
        [0, 0, 2]
        """
        shown = lines if len(lines) <= SHOWN + 1 else lines[:SHOWN]
        return Section(title, summary, shown, len(lines) - len(shown))


def text(report: RestoreReport) -> str:
    """Return the report as text. Lists are cut; Arrow tables of ``report`` have all entries."""
    headline = f"restored checkpoint {report.checkpoint} from {report.location}, mode {report.mode}"
    lines = [headline]
    for section in sections(report):
        lines.append(f"  {section.title:<12} {section.summary}")
        lines += [f"    {line}" for line in _aligned(section.lines)]
        if section.more:
            lines.append(f"    ... and {section.more:,} more")
    return "\n".join(lines)


def sections(report: RestoreReport) -> Iterator[Section]:
    """Yield the sections, in order; empty ones are left out, except for duplicates and rows in flight."""
    if report.passed_over:
        skipped = [(f"{s.checkpoint}:", s.reason) for s in report.passed_over]
        yield Section.of("passed over", _count(len(skipped), "newer checkpoint"), skipped)
    if report.finished:
        yield Section("finished", "the job had finished: no input is left to read")
    if report.offsets:
        yield _offsets(report)
    elif not report.finished:
        yield Section("read again", "nothing: all input had been read")
    if report.not_read:
        summary = f"{_count(len(report.not_read), 'split')} new since the job started"
        yield Section.of("not read", summary, [(split,) for split in report.not_read])
    if report.evolved:
        yield Section.of(
            "evolved", _count(len(report.evolved), "change"), [(str(change),) for change in report.evolved]
        )
    if report.rescaled:
        pairs = [(name, f"from {_count(old, 'subtask')} to {new:,}") for name, (old, new) in report.rescaled.items()]
        yield Section.of("rescaled", _count(len(pairs), "operator"), pairs)
    if report.earlier_targets:
        lines = [(sink, str(left)) for sink, targets in report.earlier_targets.items() for left in targets]
        yield Section.of("other output", f"earlier rows of {_some(list(report.earlier_targets))} are elsewhere", lines)
    yield _in_flight(report)
    yield _duplicates(report)
    if report.repeated:
        yield Section("earlier", "a restore before this checkpoint delivered rows again, so the state is at least once")
    if report.too_low:
        summary = f"rows that operators kept: duplicates may be too low at {_some(report.too_low)}"
        yield Section("not counted", summary)
    if report.state_bytes is not None:
        yield Section("state", _count(report.state_bytes, "byte"))
    if report.duration is not None:
        yield Section("took", duration_text(report.duration))


def _offsets(report: RestoreReport) -> Section:
    counted = len(report.replayed)
    summary = f"{_count(len(report.offsets), 'split')}, at least {_count(report.rows_replayed, 'row')} a second time"
    if counted < len(report.offsets):
        summary += f" (not counted for {_count(len(report.offsets) - counted, 'split')})"
    lines = []
    for split, offset in report.offsets.items():
        start = "from the beginning" if offset is None else f"from {_short(json.dumps(_brief(offset)))}"
        rows = report.replayed.get(split)
        lines.append((split, start, "rows not counted" if rows is None else _count(rows, "row")))
    return Section.of("read again", summary, lines)


def _brief(offset: Json) -> Json:
    """Return an offset with long texts cut. The offset of a watched directory has one text with a hash of each file."""
    match offset:
        case str() if len(offset) > _LONGEST_TEXT:
            return f"{offset[:16]}... ({_count(len(offset), 'character')})"
        case list():
            return [_brief(value) for value in offset]
        case dict():
            return {key: _brief(value) for key, value in offset.items()}
    return offset


def _short(offset: str) -> str:
    """Return the text of an offset, cut to a maximal length."""
    return offset if len(offset) <= _LONGEST else f"{offset[:_LONGEST]}..."


def _in_flight(report: RestoreReport) -> Section:
    if not report.in_flight:
        return Section("in flight", "nothing")
    states = sorted(report.in_flight, key=lambda state: -state.rows)
    rows, size = _count(report.in_flight_rows, "row"), _count(report.in_flight_bytes, "byte")
    lines = [(s.channel, _count(s.rows, "row"), _count(s.bytes, "byte")) for s in states]
    return Section.of("in flight", f"{rows}, {size} on {_count(len(lines), 'channel')} re-injected", lines)


def _duplicates(report: RestoreReport) -> Section:
    counts = sorted(report.duplicated_by_operator.items(), key=lambda entry: -entry[1])
    if not counts:
        return Section("duplicates", "none counted" if report.too_low else "no row is delivered again")
    lines = []
    for d in sorted(report.duplicates, key=lambda d: -d.rows):
        stored = "all stored" if d.table.num_rows == d.rows else f"{d.table.num_rows:,} stored"
        precision = report.precision[d.operator].value if d.operator in report.precision else ""
        lines.append((d.operator, f"on {d.channel}", _count(d.rows, "row"), stored, precision))
    named = [f"{operator} {_count(rows, 'row')}" for operator, rows in counts]
    return Section.of("duplicates", "delivered again: " + _some(named), lines)


def _some(operators: Sequence[str]) -> str:
    """Return the first three operators, and the number of others.

    >>> _some(["a", "b"]), _some("abcde")
    ('a, b', 'a, b, c, 2 more operators')
    """
    others = [f"{len(operators) - 3:,} more operators"] if len(operators) > 3 else []
    return ", ".join([*operators[:3], *others])


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _count(number: int, what: str) -> str:
    """Return a number with its noun, in the plural if needed.

    >>> _count(1, "row"), _count(1234, "row")
    ('1 row', '1,234 rows')
    """
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
