"""Sessions in panes that add up: each pane of a session has the aggregates of the rows that no pane has shown.

Nothing is taken back. A session that merges with others, or that more rows make longer, has panes of its earlier
extents, and the next pane has its extent at that time with the rows since. So the panes whose extents lie within a
session of a batch job add up to its result, where no row is late.

Let W be the watermark, and E the end of a session. A session has

- ``early`` panes by its trigger, until W is above E;
- an ``on_time`` pane, perhaps of no rows, when W passes E. If rows that are not late make the session longer, so that W
  is no longer above its end, it has another one when W passes that;
- ``late`` panes by their trigger after that, and one when W is above E + gap + lateness if rows were not shown.

A session of which the first row comes when W is above its end has late panes only.

State: the cells of ``operators.windows.pane_cells``, which are kept until W is above E + gap + lateness. A batch costs
time by the cells of the sessions that its rows belong to: of a session as long as the lateness, by lateness / gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.panes import PANE, PANE_INDEX, AfterRows, AfterTime, AtTimes, Trigger
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.arrays import Mask
from dataflow.state.index import Slots
from operators.stateful.clock_timer import ClockTimer
from operators.stateful.columns import key_columns
from operators.windows.pane_cells import NEVER, PaneCells, make_pane_cells
from operators.windows.session_chains import Sessions
from operators.windows.sessions import CHUNK, SessionAggregateOperator
from operators.windows.triggered import EARLY, LATE, ON_TIME

__all__ = ["TriggeredSessionOperator"]


class TriggeredSessionOperator(SessionAggregateOperator):
    """Discarding panes of sessions; see the module's text, and ``WindowedStream.agg`` for the output.

    Raises: what ``SessionAggregateOperator`` raises.
    """

    _new_cells: ClassVar[Callable[..., PaneCells]] = staticmethod(make_pane_cells)
    _cells: PaneCells

    def __init__(
        self,
        context: OperatorContext,
        keys: Sequence[str],
        time: EventTime,
        window: Session,
        lateness: int,
        aggregations: Sequence[Aggregation],
        early: Trigger | None,
        late: Trigger | None,
    ) -> None:
        self._has_panes = early is not None
        self._triggers = {EARLY: early, LATE: late or AfterRows(1)}
        self._goes_by_clock = any(isinstance(trigger, AfterTime) for trigger in self._triggers.values())
        self._timer = ClockTimer(context)
        super().__init__(context, keys, time, window, lateness, aggregations, Emit.UPDATES)

    def open(self) -> None:
        """Let restored rows that were not shown wait on, if the clock shows them."""
        if self._goes_by_clock:
            self._wait_for_clock(self._cells.all_sessions(shown=True))

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:  # type: ignore[override]
        batch, times = self._in_time(batch, out)
        if not len(times):
            return None
        cells = self._cells
        slots, _ = cells.enter(key_columns(batch, self._keys), times)
        touched = cells.fold(batch.select(self._rows.names), times, slots, self._overflow)
        self._set_dues(touched)
        sessions = cells.sessions(np.unique(cells.ends(touched)))
        phases = self._phases(sessions)
        cells.set_done(sessions.ends[phases[LATE]])
        if self._goes_by_clock:
            cells.begin_waiting(touched, self._timer.now())
            self._wait_for_clock(sessions)
        rows, due = cells.new_rows(sessions), {}
        for phase, trigger in self._triggers.items():
            if isinstance(trigger, AfterRows):
                due[phase] = sessions.ends[phases[phase] & (rows >= trigger.rows)]
        return self._show_all(due, out) if any(len(ends) for ends in due.values()) else None

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the panes that come at the watermark, and drop the sessions that no row can meet."""
        before = self._passed.advance(watermark)
        return self._advance(before, watermark, out) if len(self._cells) else None

    def timer(self, due: int, out: Out) -> Iterator[None]:
        """Emit the panes of sessions whose rows have waited long enough."""
        self._timer.fired()
        now, cells = self._timer.now(), self._cells
        while len(slots := cells.waiting.take(now, CHUNK)):
            sessions = cells.sessions(np.unique(cells.ends(slots)))
            phases, since, over = self._phases(sessions), cells.since(sessions), {}
            for phase, trigger in self._triggers.items():
                if isinstance(trigger, AfterTime):
                    over[phase] = sessions.ends[phases[phase] & (since <= now - trigger.length)]
            yield from self._show_all(over, out)
            self._wait_for_clock(cells.sessions(sessions.ends))
        self._timer.request(cells.waiting.first)

    # --- sessions

    def _phases(self, sessions: Sessions) -> dict[str, Mask]:
        """Return whether each session is before its end, or complete, by the pane that would show it."""
        complete = self._is_complete(self._cells.lasts(sessions.ends), self._passed.reached)
        return {EARLY: ~complete, LATE: complete}

    def _wait_for_clock(self, sessions: Sessions) -> None:
        """Let the sessions with rows that were not shown be looked at when these have waited long enough."""
        since, phases = self._cells.since(sessions), self._phases(sessions)
        for phase, trigger in self._triggers.items():
            if isinstance(trigger, AfterTime):
                chosen = phases[phase] & (since != NEVER)
                self._cells.waiting.set(sessions.ends[chosen], since[chosen] + trigger.length)
        self._timer.request(self._cells.waiting.first)

    # --- panes

    def _advance(self, before: int | None, watermark: int, out: Out) -> Iterator[None]:
        cells = self._cells
        while len(slots := cells.dues.take(watermark, CHUNK)):
            lasts, joined = cells.look(slots)
            complete = slots[self._is_complete(lasts, watermark) & ~joined]
            ends = complete[~cells.is_done(complete)]
            cells.set_done(ends)
            yield from self._show(ends, ON_TIME, out)
            closed = self._is_complete(lasts, watermark - self._keep)
            ends = slots[closed & ~joined]
            yield from self._show(ends[cells.new_rows(cells.sessions(ends)) > 0], LATE, out)
            cells.delete(cells.sessions(ends).cells)
            self._set_dues(slots[~closed])
            cells.absorb(cells.existing(slots[closed & joined]), self._overflow)
            yield
        passing = [t for t in self._triggers.values() if isinstance(t, AtTimes) and t.passes(before, watermark)]
        if passing:
            sessions = cells.all_sessions(shown=True)
            rows, phases = cells.new_rows(sessions), self._phases(sessions)
            chosen = [phase for phase, trigger in self._triggers.items() if trigger in passing]
            yield from self._show_all({phase: sessions.ends[phases[phase] & (rows > 0)] for phase in chosen}, out)

    def _show_all(self, ends: dict[str, Slots], out: Out) -> Iterator[None]:
        for pane, part in ends.items():
            yield from self._show(part, pane, out)

    def _show(self, ends: Slots, pane: str, out: Out) -> Iterator[None]:
        """Emit a pane of each session, which has the last cell ``ends``, and take note that its rows are shown."""
        cells = self._cells
        for start in range(0, len(ends), CHUNK):
            sessions = cells.sessions(ends[start : start + CHUNK])
            self._emit_rows(self._pane_columns(sessions, pane), out)
            cells.set_shown(sessions)
            others, closed = sessions.before_ends, self._passed.less(self._keep)
            cells.absorb_shown(others[self._is_complete(cells.lasts(others), closed)])
            yield

    def _pane_columns(self, sessions: Sessions, pane: str) -> list[pa.Array]:
        columns, labels = self._columns(sessions), len(self._keys) + 2
        panes = []
        if self._has_panes:
            panes = [
                pa.repeat(pa.scalar(pane, pa.string()), len(sessions)),
                to_array(self._cells.panes(sessions)),
            ]
        return [*columns[:labels], *panes, *columns[labels:]]

    @staticmethod
    def _hidden(spec: Any) -> Sequence[str]:
        return (PANE, PANE_INDEX) if spec.early is not None else ()
