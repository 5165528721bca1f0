"""Computes the positions of everything in a space-time diagram: processes are lanes, steps of the run are columns.

Lanes and columns are numbers from 0; ``text`` and ``svg`` decide their sizes and signs. A column holds one step, in the
order of the run:

- an event;
- a recording of a state, with the marker that caused it and the markers that the process sends;
- the arrival of another marker, or of a report at its observer;
- a place where a cut of ``diagram(cuts=)`` crosses lanes.

A report starts where its process recorded, or where it received the message that it copies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from dataflow.errors import GraphError, did_you_mean
from dataflow.snapshots.cuts import channel_states, is_consistent
from dataflow.snapshots.processes import Channel
from dataflow.snapshots.traces import (
    Event,
    MarkerReceived,
    MarkerSent,
    MessageId,
    Recorded,
    ReportReceived,
    ReportSent,
    Trace,
)

__all__ = ["Arrow", "CutLine", "Dot", "DiagramLayout", "GridPoint", "lay_out", "shown"]


@dataclass(frozen=True, slots=True, order=True)
class GridPoint:
    """A position on the lane of a process."""

    column: int
    lane: int


@dataclass(frozen=True, slots=True)
class Dot:
    """An event. ``inside`` are the positions, in the layout, of the cuts that it lies before."""

    at: GridPoint
    event: Event
    name: str
    inside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message, or a marker or report of the cut at position ``cut``. Without an ``end`` it is still in its channel.

    ``kind`` is "message", "marker" or "report"; ``what`` describes a marker or a report in full.
    """

    channel: Channel
    label: str
    start: GridPoint
    end: GridPoint | None
    lane: int
    cut: int | None = None
    kind: str = "message"
    what: str = ""


@dataclass(frozen=True, slots=True)
class CutLine:
    """The cut of a snapshot, or a further cut: its crossings of lanes, and the states of channels.

    ``channels`` is None if the snapshot is not complete or the cut is not consistent. ``backwards`` are the positions
    of the arrows that start after the cut and end before it.
    """

    title: str
    short: str
    snapshot: int | None
    crossings: tuple[GridPoint, ...]
    initiators: tuple[str, ...]
    missing: tuple[str, ...]
    channels: Mapping[Channel, tuple[Any, ...]] | None
    backwards: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DiagramLayout:
    """Everything to draw, in the order of the run."""

    lanes: tuple[str, ...]
    columns: int
    dots: tuple[Dot, ...]
    arrows: tuple[Arrow, ...]
    cuts: tuple[CutLine, ...]


def shown(value: Any, limit: int = 60) -> str:
    """Return a message, a name or a state as one printable line of at most ``limit`` characters, without addresses.

    >>> shown("m1"), shown(["a", 2]), shown("two" + chr(10) + "lines"), shown("x" * 99, 6)
    ('m1', "['a', 2]", 'two\\\\nlines', 'xxxxx…')
    """
    text = re.sub(r" at 0x[0-9a-f]+>", ">", value if isinstance(value, str) else repr(value))
    clean = "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def lay_out(
    trace: Trace,
    names: Mapping[str, Sequence[str]] | None = None,
    cuts: Mapping[str, Mapping[str, int]] | None = None,
) -> DiagramLayout:
    """Return the layout of ``trace``; see ``diagram`` for arguments and errors."""
    named, further = dict(names or {}), dict(cuts or {})
    _check(trace, named)
    steps = _steps(trace)
    gaps = [_gaps(trace, steps, cut) for cut in further.values()]
    moved = _Columns(steps, gaps)
    lane = {process: number for number, process in enumerate(trace.processes)}
    snapshots = {each.snapshot: None for each in trace.happenings if isinstance(each, Recorded)}
    position = {snapshot: number for number, snapshot in enumerate(snapshots)}

    at: dict[int, GridPoint] = {}
    for i, each in enumerate(trace.happenings):
        match each:
            case Event(process) | Recorded(process):
                at[i] = GridPoint(moved.step(steps[i]), lane[process])
            case MarkerSent(channel) | ReportSent(channel):
                at[i] = GridPoint(moved.step(steps[i]), lane[channel.source])
            case MarkerReceived(channel) | ReportReceived(channel):
                at[i] = GridPoint(moved.step(steps[i]), lane[channel.target])

    arrows = [
        *_messages(trace, at, lane),
        *_markers(trace, at, lane, position),
        *_reports(trace, at, lane, position),
    ]
    arrows.sort(key=lambda arrow: (arrow.start, arrow.lane))
    lines = [_of_snapshot(trace, at, snapshot) for snapshot in snapshots]
    for number, (title, cut) in enumerate(further.items()):
        crossings = tuple(GridPoint(moved.gap(gap, number), i) for i, gap in enumerate(gaps[number]))
        lines.append(_of_cut(trace, title, cut, crossings))
    lines = [_judged(line, arrows) for line in lines]
    dots = tuple(
        Dot(at[i], each, _name(each, named), _inside(at[i], lines))
        for i, each in enumerate(trace.happenings)
        if isinstance(each, Event)
    )
    return DiagramLayout(tuple(trace.processes), moved.count, dots, tuple(arrows), tuple(lines))


def _check(trace: Trace, names: Mapping[str, Sequence[str]]) -> None:
    for process in names:
        if process not in trace.processes:
            known = list(trace.processes)
            raise GraphError(
                f"names=: there is no process {process!r}{did_you_mean(process, known)}; there are {known}"
            )


def _steps(trace: Trace) -> list[int]:
    """Return the step of each happening, from 0."""
    step_of: list[int] = []
    recorded: dict[tuple[str, int], int] = {}
    last: object = None
    step = -1
    for each in trace.happenings:
        match each:
            case Event() | MarkerReceived() | ReportReceived():
                step += 1
                step_of.append(step)
            case Recorded(process, snapshot):
                by_marker = isinstance(last, MarkerReceived) and (last.channel.target, last.snapshot) == (
                    process,
                    snapshot,
                )
                step += not by_marker
                recorded[process, snapshot] = step
                step_of.append(step)
            case MarkerSent(channel, snapshot):
                step_of.append(recorded[channel.source, snapshot])
            case ReportSent():
                step_of.append(step)  # in the step of the happening before it
        last = each
    return step_of


def _gaps(trace: Trace, steps: Sequence[int], cut: Mapping[str, int]) -> list[int]:
    """Return the step before which a cut crosses each lane; the same step for all lanes if possible."""
    is_consistent(trace, cut)  # raises if it is not a cut of this run
    after = dict.fromkeys(trace.processes, 0)
    before = {process: max(steps, default=-1) + 1 for process in trace.processes}
    for step, each in zip(steps, trace.happenings, strict=True):
        if isinstance(each, Event) and each.number == cut[each.process]:
            after[each.process] = step + 1
        if isinstance(each, Event) and each.number == cut[each.process] + 1:
            before[each.process] = step
    straight = max(after.values())
    return [min(straight, before[process]) for process in trace.processes]


class _Columns:
    """The columns of steps, and those inserted before steps where cuts cross; no two cuts share a column."""

    def __init__(self, steps: Sequence[int], gaps: Sequence[Sequence[int]]) -> None:
        count = max(steps, default=-1) + 1
        self._taken = sorted({(gap, number) for number, each in enumerate(gaps) for gap in each})
        opened = [0] * (count + 1)
        for gap, _ in self._taken:
            opened[gap] += 1
        self._shift = list(accumulate(opened))
        self.count = count + len(self._taken)

    def step(self, step: int) -> int:
        """Return the column of a step."""
        return step + self._shift[step]

    def gap(self, gap: int, number: int) -> int:
        """Return the column of cut ``number`` before step ``gap``."""
        return gap + self._taken.index((gap, number))


def _messages(trace: Trace, at: Mapping[int, GridPoint], lane: Mapping[str, int]) -> list[Arrow]:
    ends: dict[MessageId, GridPoint] = {}
    for i, each in enumerate(trace.happenings):
        if isinstance(each, Event):
            ends |= {identity: at[i] for identity, _ in each.accepted}
    return [
        Arrow(identity.channel, shown(value), at[i], ends.get(identity), lane[identity.channel.target])
        for i, each in enumerate(trace.happenings)
        if isinstance(each, Event)
        for identity, value in each.sent
    ]


def _markers(
    trace: Trace, at: Mapping[int, GridPoint], lane: Mapping[str, int], position: Mapping[int, int]
) -> list[Arrow]:
    came = {(each.channel, each.snapshot): at[i] for i, each in enumerate(trace.happenings)
            if isinstance(each, MarkerReceived)}  # fmt: skip
    return [
        Arrow(each.channel, str(each.snapshot), at[i], came.get((each.channel, each.snapshot)),
              lane[each.channel.target], position[each.snapshot], "marker", f"marker of snapshot {each.snapshot}")
        for i, each in enumerate(trace.happenings)
        if isinstance(each, MarkerSent)
    ]  # fmt: skip


def _reports(
    trace: Trace, at: Mapping[int, GridPoint], lane: Mapping[str, int], position: Mapping[int, int]
) -> list[Arrow]:
    came = {(each.channel, each.number): at[i] for i, each in enumerate(trace.happenings)
            if isinstance(each, ReportReceived)}  # fmt: skip
    return [
        Arrow(each.channel, str(each.snapshot), at[i], came.get((each.channel, each.number)),
              lane[each.channel.target], position[each.snapshot], "report", _what(trace, each))
        for i, each in enumerate(trace.happenings)
        if isinstance(each, ReportSent)
    ]  # fmt: skip


def _what(trace: Trace, report: ReportSent) -> str:
    kind = "state"
    if report.message is not None:
        _, value = trace.sent(report.message.channel)[report.message.number - 1]
        kind = f"copy of {shown(value, 20)}"
    return f"{kind} for snapshot {report.snapshot}"


def _of_snapshot(trace: Trace, at: Mapping[int, GridPoint], snapshot: int) -> CutLine:
    recorded = {each.process: (i, each) for i, each in enumerate(trace.happenings)
             if isinstance(each, Recorded) and each.snapshot == snapshot}  # fmt: skip
    missing = tuple(process for process in trace.processes if process not in recorded)
    markers = {each.channel: None for each in trace.happenings
               if isinstance(each, MarkerSent) and each.snapshot == snapshot}  # fmt: skip
    for each in trace.happenings:
        if isinstance(each, MarkerReceived) and each.snapshot == snapshot:
            del markers[each.channel]
    begun = tuple(process for process, (_, each) in recorded.items() if each.spontaneous)
    cut = {process: each.number for process, (_, each) in recorded.items()}
    under_way = bool(missing or markers) or _awaits_reports(trace, snapshot, cut)
    known = not under_way and bool(is_consistent(trace, cut))
    return CutLine(
        f"snapshot {snapshot}, begun by {', '.join(begun)}" + (", under way" if under_way else ""),
        str(snapshot),
        snapshot,
        tuple(sorted([at[i] for i, _ in recorded.values()], key=lambda point: point.lane)),
        begun,
        missing,
        channel_states(trace, cut) if known else None,
        (),
    )


def _awaits_reports(trace: Trace, snapshot: int, cut: Mapping[str, int]) -> bool:
    """Return whether reports are missing at the observer of a snapshot for which all processes have recorded."""
    sent = sum([isinstance(each, ReportSent) and each.snapshot == snapshot for each in trace.happenings])
    received = sum([isinstance(each, ReportReceived) and each.snapshot == snapshot for each in trace.happenings])
    if not sent or not is_consistent(trace, cut):
        return sent != received
    held = {channel: len(messages) for channel, messages in channel_states(trace, cut).items()}
    late = {channel: [e for e in trace.accepted(channel) if e.number > cut[channel.target]] for channel in held}
    return sent != received or any([len(late[channel]) < count for channel, count in held.items()])


def _of_cut(trace: Trace, title: str, cut: Mapping[str, int], crossings: tuple[GridPoint, ...]) -> CutLine:
    known = channel_states(trace, cut) if is_consistent(trace, cut) else None
    return CutLine(f"cut {title}", title, None, crossings, (), (), known, ())


def _judged(line: CutLine, arrows: Sequence[Arrow]) -> CutLine:
    """Return the line with the messages that cross it backwards."""
    crossed = {point.lane: point.column for point in line.crossings}
    wrong = tuple(
        i
        for i, arrow in enumerate(arrows)
        if arrow.cut is None and arrow.end is not None and arrow.start.lane in crossed and arrow.lane in crossed
        if arrow.start.column > crossed[arrow.start.lane] and arrow.end.column < crossed[arrow.lane]
    )
    return replace(line, backwards=wrong)


def _name(event: Event, names: Mapping[str, Sequence[str]]) -> str:
    given = names.get(event.process, ())
    return shown(given[event.number - 1] if event.number <= len(given) else event.action, 16)


def _inside(at: GridPoint, lines: Sequence[CutLine]) -> tuple[int, ...]:
    return tuple(i for i, line in enumerate(lines) if any([at.lane == p.lane and at < p for p in line.crossings]))
