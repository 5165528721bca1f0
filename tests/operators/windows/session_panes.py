"""Sessions in panes by themselves, through checkpoints with deltas, and a model of them that goes row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes, Trigger
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.triggered_specs import TriggeredSessionAggregate
from operators.windows.triggered_sessions import TriggeredSessionOperator
from tests.operators.operating import Emitted, context_of, drained, made
from tests.operators.windows.sessioned import Sessioned
from tests.operators.windows.windowed import END, SCHEMA, Result, Row

__all__ = ["MERGED", "UNMERGED", "PanedSessions", "SessionPanel"]

MERGED = (
    count().alias("n"),
    col("x").sum().alias("sum"),
    col("x").min().alias("min"),
    col("x").last(by="t").alias("last"),
)
UNMERGED = (*MERGED, col("x").to_list().alias("list"))


class PanedSessions(Sessioned):
    """A TriggeredSessionAggregate with what an engine gives it."""

    def __init__(
        self,
        gap: int,
        early: Trigger | None = None,
        late: Trigger | None = None,
        *,
        lateness: int = 0,
        keyed: bool = True,
        aggregations: Sequence[Aggregation] = MERGED,
        groups: range = range(128),
        restored: Snapshot | None = None,
    ) -> None:
        self.due, self.clock = list[int](), ManualClock()
        self.early, self.late_trigger = early, late
        super().__init__(
            gap,
            lateness=lateness,
            emit=Emit.UPDATES,
            keyed=keyed,
            aggregations=aggregations,
            groups=groups,
            restored=restored,
        )

    def _begin(self, restored: Snapshot | None) -> None:
        whole = self.spec
        self.shown_as = TriggeredSessionAggregate(
            whole.keys,
            EventTime("t"),
            Session(whole.window.gap),
            whole.lateness,
            whole.aggregations,
            Emit.UPDATES,
            early=self.early,
            late=self.late_trigger,
        )
        labels = [pa.field("pane", pa.string()), pa.field("pane_index", pa.int64())] if self.early else []
        at = len(whole.keys) + 2
        output = pa.schema([*list(self.output)[:at], *labels, *list(self.output)[at:]])
        self.out, self.due[:] = Emitted(), []
        self.context = context_of(SCHEMA, output, restored=restored, groups=self.groups, clock=self.clock, due=self.due)
        operator = TriggeredSessionOperator(self.context, *self.shown_as.arguments())
        self.operator: TriggeredSessionOperator = made(operator, self.context)
        self.operator.open()

    def wait(self, length: int) -> list[Result]:
        """Let the clock go on, and call the timers that are due then."""
        self.clock.advance(length)
        now = self.clock.now()
        due = [time for time in self.due if time <= now]
        self.due[:] = [time for time in self.due if time > now]
        for time in sorted(due):
            drained(self.operator.timer(time, self.out))
        return self.check()


@dataclass
class _Open:
    """A session: all rows and those that were not shown, as (time, arrival, value)."""

    key: str
    rows: list[tuple[int, int, int]]
    new: list[tuple[int, int, int]]
    panes: int = 0
    since: int = END
    done: int = -END  # the end at which it came out


@dataclass
class SessionPanel:
    """The rules; every call returns the panes that must come out, in any order."""

    gap: int
    early: Trigger | None
    late_trigger: Trigger | None
    lateness: int = 0
    keyed: bool = True
    lists: bool = False
    open: list[_Open] = field(default_factory=list)
    taken: list[tuple[str, int, int]] = field(default_factory=list)
    watermark: int = -(2**62)
    begun: bool = False
    now: int = 0
    late: int = 0

    def feed(self, *rows: Row) -> list[Result]:
        touched: list[_Open] = []
        for key, x, time in rows:
            if time + self.gap + self.lateness < self.watermark:
                self.late += 1
                continue
            key = key if self.keyed else ""
            row = (time, len(self.taken), x)
            self.taken.append((key, time, x))
            met = [s for s in self.open if s.key == key and self._start(s) <= time + self.gap and time <= self.end(s)]
            merged = _Open(
                key,
                [row, *[each for s in met for each in s.rows]],
                [row, *[each for s in met for each in s.new]],
                sum(s.panes for s in met),
                min([self.now, *[s.since for s in met]]),
                max([-END, *[s.done for s in met]]),
            )
            self.open = [*[s for s in self.open if s not in met], merged]
            touched = [*[s for s in touched if s not in met], merged]
        for session in touched:
            if self.end(session) < self.watermark:
                session.done = self.end(session)

        def enough(trigger: Trigger | None, session: _Open) -> bool:
            return isinstance(trigger, AfterRows) and len(session.new) >= trigger.rows

        return self._show(enough, touched)

    def wait(self, length: int) -> list[Result]:
        self.now += length
        return self._show(lambda t, session: isinstance(t, AfterTime) and session.since + t.length <= self.now)

    def advance(self, watermark: int) -> list[Result]:
        before, self.watermark = self.watermark if self.begun else None, watermark
        self.begun = True
        ending = [s for s in self.open if s.done < self.end(s) < watermark]
        for session in ending:
            session.done = self.end(session)
        shown = [self._pane(s, "on_time") for s in ending]
        over = [s for s in self.open if self.end(s) + self.gap + self.lateness < watermark]
        shown += [self._pane(s, "late") for s in over if s.new]
        self.open = [s for s in self.open if s not in over]
        return shown + self._show(lambda t, _: isinstance(t, AtTimes) and t.passes(before, watermark))

    def sums(self) -> list[tuple[Any, ...]]:
        """Return key, start, end, count and sum of each session of a batch job."""
        sessions: list[list[Any]] = []
        for key, time, x in sorted(self.taken):
            if sessions and sessions[-1][0] == key and time <= sessions[-1][2]:
                sessions[-1][2:] = [time + self.gap, sessions[-1][3] + 1, sessions[-1][4] + x]
            else:
                sessions.append([key, time, time + self.gap, 1, x])
        return [tuple(session) for session in sessions]

    def end(self, session: _Open) -> int:
        return max(session.rows)[0] + self.gap

    def _start(self, session: _Open) -> int:
        return min(session.rows)[0]

    def _show(self, judge: Callable[[Trigger | None, _Open], bool], among: list[_Open] | None = None) -> list[Result]:
        shown = []
        for session in self.open if among is None else among:
            early = self.end(session) >= self.watermark
            trigger = self.early if early else self.late_trigger or AfterRows(1)
            if session.new and judge(trigger, session):
                shown.append(self._pane(session, "early" if early else "late"))
        return shown

    def _pane(self, session: _Open, pane: str) -> Result:
        rows = sorted(session.new)
        values: list[Any] = [x for _, _, x in rows]
        last = [x for t, _, x in rows if t == rows[-1][0]][-1] if rows else None
        aggregates = (sum(values), min(values), last) if rows else (None, None, None)
        lists = [values or None] if self.lists else []
        panes = [pane, session.panes] if self.early else []
        labels = (*([session.key] if self.keyed else []), self._start(session), self.end(session), *panes)
        session.new, session.since, session.panes = [], END, session.panes + 1
        return (*labels, len(values), *aggregates, *lists)
