"""A process function by itself: what the engine gives it, and what it emits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.process import declared_states
from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.contracts.windows import EventTime
from dataflow.planning.operator_table import make_operator
from dataflow.planning.process_specs import ProcessBatches, ProcessKeys
from tests.operators.operating import Emitted, context_of, drained, made, stored

__all__ = ["EPOCH", "ROWS", "US", "Driver", "moment"]

EPOCH = datetime(1970, 1, 1)
US = pa.timestamp("us")
ROWS = pa.schema({"k": pa.string(), "at": US, "x": pa.int64()})
RULES = pa.schema({"name": pa.string(), "limit": pa.int64()})


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


class Driver:
    """Drives the operator of a process function, of rows ``k, at, x``; it emits rows ``k, x``."""

    def __init__(
        self,
        function: Any,
        *,
        keys: Sequence[str] = ("k",),
        time: str | None = "at",
        on_error: str = "fail",
        sides: Mapping[str, pa.Schema] | None = None,
        restored: Snapshot | None = None,
        schema: pa.Schema = ROWS,
        output: pa.Schema | None = None,
    ) -> None:
        kind = function if isinstance(function, type) else type(function())
        spec = ProcessKeys if kind.calls == "key" else ProcessBatches
        policy = OnError(on_error)
        tagged = dict(sides or {}) | ({ERRORS: errors_schema()} if policy is OnError.SIDE else {})
        states = tuple(declared_states(kind).items())
        event_time = None if time is None else EventTime(time)
        spec_of = spec(function, kind.__name__, tuple(keys), event_time, states, tuple(tagged.items()), policy)
        self.clock = ManualClock()
        self.due: list[int] = []
        self.schema = schema
        output = pa.schema({"k": pa.string(), "x": pa.int64()}) if output is None else output
        context = context_of(schema, output, restored=restored, clock=self.clock, due=self.due)
        self.context = replace(context, input_schemas=(schema, RULES))
        self.operator: Any = made(make_operator(spec_of, self.context), self.context)
        self.out = Emitted()
        self.operator.open()

    def rows(self, *rows: tuple[Any, ...]) -> None:
        """Give rows, as tuples of the columns."""
        columns = [list(column) for column in zip(*rows, strict=True)]
        arrays = [
            pa.array([moment(value) if pa.types.is_timestamp(f.type) else value for value in column], f.type)
            for column, f in zip(columns, self.schema, strict=True)
        ]
        drained(self.operator.process(0, pa.RecordBatch.from_arrays(arrays, schema=self.schema), self.out))
        self._check()

    def rules(self, *rows: tuple[str, int]) -> None:
        """Give rows of the broadcast stream."""
        batch = pa.RecordBatch.from_pylist([dict(zip(RULES.names, row, strict=True)) for row in rows], RULES)
        drained(self.operator.process(1, batch, self.out))

    def advance(self, watermark: int) -> None:
        drained(self.operator.advance(watermark, self.out))
        self._check()

    def end(self) -> None:
        self.advance(2**63 - 1)

    def finish(self) -> None:
        drained(self.operator.finish(self.out))

    def ring(self) -> None:
        """Call the timers that were asked for and are due by the clock."""
        ready = [due for due in self.due if due <= self.clock.now()]
        self.due[:] = [due for due in self.due if due > self.clock.now()]
        for due in ready:
            drained(self.operator.timer(due, self.out))
        self._check()

    def take(self, tag: str | None = None) -> list[tuple[object, ...]]:
        return self.out.take(tag)

    def snapshot(self) -> Snapshot:
        """The state, as it comes back from a disk."""
        return stored(self.operator.snapshot())

    @property
    def live(self) -> int:
        """The number of keys with a value or a timer."""
        state = self.operator._states.main
        state.enter([pa.array([], f.type) for f in state._index.schema])
        return int(state.live)

    def _check(self) -> None:
        for state in [piece.state for piece in self.operator._states.pieces().values()]:
            state.validate()
