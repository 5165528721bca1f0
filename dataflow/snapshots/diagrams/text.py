"""Draws a space-time diagram for the terminal: time runs down and every step has a line, like the graph of ``git log``.

A message leaves its sender to the side, runs down beside the lane of its receiver, and enters it where it is accepted.
So each character of a line has one meaning, regardless of the number of messages in transit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dataflow.snapshots.diagrams.layout import Arrow, CutLine, DiagramLayout, Dot, shown
from dataflow.snapshots.diagrams.legend import cut_lines, dotted

__all__ = ["as_text"]

LANE, AFTER_CUT, MESSAGE, MARKER = "┃", "╏", "│", "┊"
EVENT, INSIDE, RECORDS, CROSSES = "●", "◉", "◆", "◇"


@dataclass
class _Row:
    """One line: signs on lanes, arrows that end or start on it, and its note."""

    note: str = ""
    signs: dict[int, str] = field(default_factory=dict)
    ends: list[Arrow] = field(default_factory=list)
    starts: list[Arrow] = field(default_factory=list)
    cut: bool = False


def as_text(layout: DiagramLayout, rows: int | None = None) -> str:
    """Return the picture, with at most ``rows`` lines of the run and a count of the rest. Long notes are clipped."""
    every_row = _rows(layout)
    visible = every_row[:rows]
    lines = _drawn(layout, visible)
    if len(every_row) > len(visible):
        lines.insert(1 + len(visible), f"... {len(every_row) - len(visible)} more lines: print(diagram.text())")
    lines += ["", *_legend(layout)] if layout.cuts else []
    return "\n".join([line.rstrip() for line in lines])


def _rows(layout: DiagramLayout) -> list[_Row]:
    dots = {dot.at.column: dot for dot in layout.dots}
    starts: dict[int, list[Arrow]] = {}
    ends: dict[int, list[Arrow]] = {}
    for arrow in layout.arrows:
        starts.setdefault(arrow.start.column, []).append(arrow)
        if arrow.end is not None:
            ends.setdefault(arrow.end.column, []).append(arrow)
    crossing: dict[int, tuple[CutLine, dict[int, str]]] = {}
    for line in layout.cuts:
        for point in line.crossings:
            sign = CROSSES if line.snapshot is None else RECORDS
            crossing.setdefault(point.column, (line, {}))[1][point.lane] = sign
    rows = []
    for column in range(layout.columns):
        came, went = ends.get(column, []), starts.get(column, [])
        row = _Row(ends=came)
        if column in dots:
            row.signs = {dots[column].at.lane: INSIDE if dots[column].inside else EVENT}
            row.note = _event_note(layout, dots[column], came, went)
        elif column in crossing:
            line, row.signs = crossing[column]
            row.cut = line.snapshot is None
            row.note = _crossed(layout, line, row.signs)
        else:
            row.note = f"{came[0].what} from {shown(came[0].channel.source)}"
        rows.append(row)
        if came and went:
            rows.append(_Row(starts=went))
        else:
            row.starts = went
    return rows


def _event_note(layout: DiagramLayout, dot: Dot, came: Iterable[Arrow], went: Iterable[Arrow]) -> str:
    parts = [f"takes {shown(a.label, 20)} of {shown(a.channel.source, 20)}" for a in came]
    parts += [f"sends {shown(a.what or a.label, 60)} to {shown(a.channel.target, 20)}" for a in went]
    inside = [layout.cuts[i].short for i in dot.inside[:3]] + ["…"] * (len(dot.inside) > 3)
    label = f" [{', '.join(inside)}]" if inside and len(layout.cuts) > 1 else ""
    return dot.name + label + (" " + ", ".join(parts) if parts else "")


def _crossed(layout: DiagramLayout, line: CutLine, signs: Mapping[int, str]) -> str:
    if line.snapshot is None:
        return line.title
    (process,) = [layout.lanes[lane] for lane in signs]
    does = "begins snapshot" if process in line.initiators else "records for snapshot"
    return f"{shown(process, 20)} {does} {line.short}"


def _slots(rows: Sequence[_Row]) -> tuple[dict[int, list[list[int]]], dict[Arrow, tuple[int, int]]]:
    """Return the tracks of each gap between lanes, as the last rows of their arrows; and each arrow's gap and track."""
    at = {arrow: i for i, row in enumerate(rows) for arrow in row.starts}
    until = {arrow: i for i, row in enumerate(rows) for arrow in row.ends}
    tracks: dict[int, list[list[int]]] = {}
    places: dict[Arrow, tuple[int, int]] = {}
    for arrow in at:
        gap = arrow.lane if arrow.start.lane < arrow.lane else arrow.lane + 1
        free = tracks.setdefault(gap, [])
        begin, end = at[arrow], until.get(arrow, len(rows))
        track = next((i for i, taken in enumerate(free) if taken[-1] < begin), len(free))
        if track == len(free):
            free.append([])
        free[track].append(end)
        places[arrow] = gap, track
    return tracks, places


def _drawn(layout: DiagramLayout, rows: Sequence[_Row]) -> list[str]:
    tracks, places = _slots(rows)
    heads = [shown(name, 16) for name in layout.lanes]
    xs: list[int] = []
    for i, head in enumerate(heads):
        side = len(head) // 2
        names = xs[-1] + (len(heads[i - 1]) + 1) // 2 + 2 + side if xs else side
        rails = xs[-1] + 4 + 2 * len(tracks.get(i, ())) if xs else 0
        xs.append(max(names, rails))
    width = (xs[-1] if xs else 0) + 3 + 2 * len(tracks.get(len(xs), ()))
    x_of = {key: (xs[gap - 1] + 2 + 2 * track) for key, (gap, track) in places.items()}

    canvas = [[" "] * width for _ in range(len(rows) + 1)]
    after_cut: set[int] = set()
    for y, row in enumerate(rows):
        for lane, x in enumerate(xs):
            canvas[y][x] = AFTER_CUT if lane in after_cut else LANE
        if len(layout.cuts) == 1:
            after_cut |= {lane for lane, sign in row.signs.items() if sign in (RECORDS, CROSSES)}
    begun = {arrow: y for y, row in enumerate(rows) for arrow in row.starts}
    done = {arrow: y for y, row in enumerate(rows) for arrow in row.ends}
    for arrow in begun:
        for y in range(begun[arrow] + 1, done.get(arrow, len(rows))):
            canvas[y][x_of[arrow]] = MESSAGE if arrow.cut is None else MARKER
        if arrow.end is None:
            canvas[-1][x_of[arrow]] = "▽"
    for y, row in enumerate(rows):
        _across(canvas[y], xs, x_of, row)
    lines = ["".join(_header(heads, xs, width))]
    lines += ["".join(cells) + shown(row.note, 100) for cells, row in zip(canvas, rows, strict=False)]
    return lines + (["".join(canvas[-1]) + "still in the channel"] if "▽" in canvas[-1] else [])


def _header(heads: Sequence[str], xs: Sequence[int], width: int) -> list[str]:
    cells = [" "] * (width + 16)
    for head, x in zip(heads, xs, strict=True):
        start = x - len(head) // 2
        cells[start : start + len(head)] = head
    return cells


def _across(cells: list[str], xs: Sequence[int], x_of: Mapping[Arrow, int], row: _Row) -> None:
    """Draw the horizontal parts of one row."""
    for lanes in [lanes for lanes in zip(range(len(xs)), range(1, len(xs)), strict=False) if row.cut]:
        if all([lane in row.signs for lane in lanes]):
            _line(cells, xs[lanes[0]], xs[lanes[1]], "╌")
    for arrows, corners in ((row.starts, "╮╭"), (row.ends, "╰╯")):
        sides: dict[tuple[int, bool], list[Arrow]] = {}
        for arrow in arrows:
            lane = arrow.start.lane if arrows is row.starts else arrow.lane
            sides.setdefault((xs[lane], x_of[arrow] > xs[lane]), []).append(arrow)
        for (x, is_right), group in sides.items():
            ends = sorted([x_of[arrow] for arrow in group], reverse=is_right)
            _line(cells, x, ends[0], "─" if group[0].cut is None else "┄")
            for end in ends[1:]:
                cells[end] = "┬" if arrows is row.starts else "┴"
            leaves_right = is_right if arrows is row.starts else not is_right
            cells[ends[0]] = corners[0] if leaves_right else corners[1]
            if arrows is row.ends:
                cells[x + 1 if is_right else x - 1] = "◀" if is_right else "▶"
            elif x not in [xs[lane] for lane in row.signs]:
                cells[x] = "┠" if is_right else "┨"
    for lane, sign in row.signs.items():
        cells[xs[lane]] = sign


def _line(cells: list[str], start: int, end: int, sign: str) -> None:
    for x in range(min(start, end) + 1, max(start, end)):
        present = cells[x]
        cells[x] = sign if present == " " else "╂" if present in (LANE, AFTER_CUT) else "┼"


def _legend(layout: DiagramLayout) -> list[str]:
    lines_below = []
    for _, title, lines in cut_lines(layout):
        lines_below += [title, *[f"  {line}" for line in lines]]
    key = [f"{INSIDE} before " + ("the cut" if len(layout.cuts) == 1 else "the cuts in brackets"), f"{EVENT} after"]
    if any([line.snapshot is not None for line in layout.cuts]):
        key += [f"{RECORDS} state recorded", f"{MARKER} {dotted(layout)}"]
    lines_below.append(", ".join(key))
    return [shown(each, 120) for each in lines_below]
