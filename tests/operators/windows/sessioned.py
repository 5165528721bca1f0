"""Sessions by themselves, through checkpoints with deltas, and a model of their rules that goes row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Snapshot
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit, SessionAggregate
from operators.windows.sessions import SessionAggregateOperator
from tests.operators.operating import Emitted, context_of, drained, made
from tests.operators.windows.windowed import MERGED, SCHEMA, Result, Row

__all__ = ["SessionModel", "Sessioned", "drawn_rows"]


def drawn_rows(draw: Random, now: int, gap: int) -> list[Row]:
    """Return rows near and far from ``now``, in any order, some of them exactly a gap apart."""
    spread = draw.choice([2, gap, 5 * gap, 200])
    rows = [
        (draw.choice("aab"), draw.randrange(-9, 9), now + draw.randrange(-spread, spread + 1))
        for _ in range(draw.randrange(1, 6))
    ]
    return rows + [(key, 1, time + draw.choice([-gap, gap])) for key, _, time in rows if draw.random() < 0.3]


class Sessioned:
    """A SessionAggregate with what an engine gives it, and its checkpoints: a base and deltas.

    Gap, lateness and watermarks are in microseconds, the times of rows and results in ``unit``.
    """

    def __init__(
        self,
        gap: int,
        *,
        lateness: int = 0,
        emit: Emit = Emit.FINAL,
        keyed: bool = True,
        aggregations: Sequence[Aggregation] = MERGED,
        groups: range = range(128),
        unit: str = "us",
        restored: Snapshot | None = None,
    ) -> None:
        self.schema = SCHEMA.set(2, pa.field("t", pa.timestamp(unit)))
        self.keyed, self.groups = keyed, groups
        keys = ("k",) if keyed else ()
        self.spec = SessionAggregate(keys, EventTime("t"), Session(gap), lateness, tuple(aggregations), emit)
        edges = [pa.field(name, pa.timestamp(unit)) for name in ("window_start", "window_end")]
        results = [pa.field(a.name, a.dtype(self.schema)) for a in aggregations]
        change = [pa.field("change", pa.int8())] if emit is Emit.CHANGES else []
        self.output = pa.schema([*[SCHEMA.field(key) for key in keys], *edges, *results, *change])
        self.late = self.split = 0
        self._parts: dict[str, list[dict[str, pa.Table]]] = {}
        self._checkpoint = 0
        self._begin(restored)

    def _begin(self, restored: Snapshot | None) -> None:
        self.out = Emitted()
        self.context = context_of(self.schema, self.output, restored=restored, groups=self.groups)
        self.operator = made(SessionAggregateOperator(self.context, *self.spec.arguments()), self.context)

    def feed(self, *rows: Row) -> list[Result]:
        columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), self.schema.types, strict=True)]
        drained(self.operator.process(0, pa.record_batch(columns, schema=self.schema), self.out))
        return self.check()

    def advance(self, watermark: int) -> list[Result]:
        drained(self.operator.advance(watermark, self.out))
        return self.check()

    def check(self) -> list[Result]:
        """Return the results since the last call. Check the state."""
        self.operator._cells.state.validate()
        self.out.batches.pop(LATE, None)
        batches = self.out.batches.pop(None, [])
        return [row for batch in batches for row in zip(*map(_plain, batch.columns), strict=True)]

    def checkpoint(self) -> Snapshot:
        """Return what a restore finds: the parts of all logs since the last base."""
        return self.begin_checkpoint()()

    def begin_checkpoint(self) -> Callable[[], Snapshot]:
        """Take a checkpoint of this moment; return the function that writes it, which may be called later."""
        snapshot = self.operator.snapshot()
        since, self._checkpoint = self._checkpoint or None, self._checkpoint + 1
        checkpoint = self._checkpoint
        readers = {name: log.freeze(checkpoint, since) for name, log in snapshot.logs.items()}

        def write() -> Snapshot:
            for name, tables in readers.items():
                part = {table: reader.read_all() for table, reader in tables.items()}
                self._parts.setdefault(name, []).append(part)
                snapshot.logs[name].durable(checkpoint)
            return replace(snapshot, logs={name: list(parts) for name, parts in self._parts.items()})

        return write

    def restore(self) -> None:
        """Begin again from a checkpoint of this moment."""
        snapshot = self.checkpoint()
        self._note_tally()
        self._begin(snapshot)

    def _note_tally(self) -> None:
        self.late += self.context.tally.late
        self.split += self.context.tally.split_sessions

    def counts(self) -> tuple[int, int]:
        """Return how many rows were late, and how many sessions were split."""
        self._note_tally()
        self.context.tally.late = self.context.tally.split_sessions = 0
        return self.late, self.split


def _plain(column: pa.Array) -> list[Any]:
    """Return the values of a column, times as numbers of its unit."""
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


@dataclass
class _Open:
    """A session: its rows as (time, arrival, value), and the row that is shown of it."""

    rows: list[tuple[int, int, int]]
    shown: Result | None = None

    def meets(self, time: int, gap: int) -> bool:
        times = [row[0] for row in self.rows]
        return min(times) - gap <= time <= max(times) + gap


@dataclass
class SessionModel:
    """The rules; every call returns what must come out, in any order."""

    gap: int
    lateness: int = 0
    emit: Emit = Emit.FINAL
    keyed: bool = True
    distinct: bool = False
    open: dict[str, list[_Open]] = field(default_factory=dict)
    past: dict[str, list[_Open]] = field(default_factory=dict)
    late: int = 0
    split: int = 0
    watermark: int = -(2**80)
    arrival: int = 0

    def feed(self, *rows: Row) -> list[Result]:
        taken: list[Result] = []
        for key, x, time in rows:
            if time + self.gap + self.lateness < self.watermark:
                self.late += 1
                continue
            self.arrival += 1
            key = key if self.keyed else ""
            sessions = self.open.setdefault(key, [])
            met = [s for s in sessions if s.meets(time, self.gap)]
            taken += [s.shown for s in met if s.shown is not None]
            merged = _Open([row for s in met for row in s.rows] + [(time, self.arrival, x)])
            self.open[key] = [*[s for s in sessions if s not in met], merged]
            past = self.past.get(key, [])
            split = [s for s in past if s.meets(time, self.gap)]
            self.split += len(split)
            self.past[key] = [s for s in past if s not in split]
        return self._with_changes(taken, self._complete())

    def advance(self, watermark: int) -> list[Result]:
        self.watermark = watermark
        added = self._complete()
        kept = 0 if self.emit is Emit.FINAL else self.gap + self.lateness
        for key, sessions in self.open.items():
            over = [s for s in sessions if s.shown is not None and self._end(s) + kept < watermark]
            self.open[key] = [s for s in sessions if s not in over]
            if self.emit is Emit.FINAL and not self.lateness:
                self.past.setdefault(key, []).extend(over)
        return self._with_changes([], added)

    def _end(self, session: _Open) -> int:
        return max(session.rows)[0] + self.gap

    def _complete(self) -> list[Result]:
        wait = self.gap + self.lateness if self.emit is Emit.FINAL and self.lateness else 0
        added = []
        for key, sessions in self.open.items():
            for session in sessions:
                if session.shown is None and self._end(session) + wait < self.watermark:
                    session.shown = self._result(key, session)
                    added.append(session.shown)
        return added

    def _with_changes(self, taken: list[Result], added: list[Result]) -> list[Result]:
        if self.emit is Emit.FINAL:
            return added
        for row in [row for row in taken if row in added]:
            taken.remove(row)
            added.remove(row)
        return [*[(*row, -1) for row in taken], *[(*row, 1) for row in added]]

    def _result(self, key: str, session: _Open) -> Result:
        rows = sorted(session.rows)
        values = [x for _, _, x in rows]
        last = [x for t, _, x in rows if t == rows[-1][0]][-1]
        merged = (len(rows), sum(values), min(values), max(values), sum(values) / len(values), values[0], last)
        edges = (rows[0][0], self._end(session))
        return (*([key] if self.keyed else []), *edges, *merged, *([len(set(values))] if self.distinct else []))
