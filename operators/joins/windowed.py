"""A join of rows in the same window: the pairs of a window come out once, when the watermark reaches its end plus the
lateness.

Rows wait in slices of time (``dataflow.contracts.windows``). When a window is complete, the rows of its slices are
joined: the keys of the right rows become slots of an index, and the left rows look theirs up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import WindowJoin
from operators.joins.late import SIDES, late_rows_of
from operators.joins.matching import Matching
from operators.joins.result import ResultRows, has_null, taken
from operators.stateful.chunks import CHUNK, emitted
from operators.stateful.complete_windows import complete_windows
from operators.stateful.row_log import KERNELS, NUMBER, RowLog
from operators.stateful.times import edges
from operators.stateful.window_numbers import BySlice

__all__ = ["WindowJoinOperator"]


class WindowJoinOperator(Stateful):
    """Joins rows by window; see the module's text.

    Raises: ValueError for a null event time; OverflowError for one out of range.
    """

    def __init__(self, context: OperatorContext, spec: WindowJoin) -> None:
        self._context = context
        self._spec = spec
        self._result = ResultRows(spec.columns, context.input_schemas, context.output_schema)
        self._numberings = [BySlice(spec.window, time) for time in spec.times]
        keys = self._result.keys
        self._logs = [RowLog(pa.schema([*keys, *rows])) for rows in self._result.rows]
        self._time = Passed()
        self._late = [late_rows_of(port, spec, context, self._time, spec.lateness) for port in (0, 1)]

    @property
    def kernels(self) -> Sequence[str]:
        return *Matching.kernels_for(self._result.keys), *KERNELS

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        batch, entries = self._late[port].split_numbers(batch, self._numberings[port], out)
        if entries is None:
            return
        keys, rows, numbers = self._result.keys_of(port, batch), self._result.rows_of(port, batch), entries.numbers
        null = None if self._spec.outer[port] else has_null(keys)
        if null is not None:  # such rows meet nothing
            (keys, rows), numbers = taken(keys, rows, np.flatnonzero(~null)), numbers[~null]
        if len(numbers):
            log = self._logs[port]
            log.add(pa.RecordBatch.from_arrays([*keys, *rows.columns], schema=log.schema), numbers)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Join the windows that the watermark, less the lateness, completes."""
        before = self._time.less(self._spec.lateness)
        self._time.advance(watermark)
        return self._fire(before, out) if any([log.entries for log in self._logs]) else None

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more."""
        return watermark - self._spec.lateness

    def _fire(self, before: int, out: Out) -> Iterator[None]:
        closed = self._time.less(self._spec.lateness)
        for number in complete_windows(self._spec.window, self._logs, before, closed):
            yield from self._join(number, out)
        for log, numbering in zip(self._logs, self._numberings, strict=True):
            log.drop(numbering.first_open(closed))

    def _join(self, number: int, out: Out) -> Iterator[None]:
        """Emit the pairs of a window, and its rows without a counterpart."""
        first, stop = self._spec.window.covered(number)
        sides = [log.rows(first, stop) for log in self._logs]
        count = len(self._result.keys)
        keys = [side.columns[:count] for side in sides]
        rows = [
            pa.RecordBatch.from_arrays(side.columns[count:], schema=schema) if len(schema) else side.select([])
            for side, schema in zip(sides, self._result.rows, strict=True)
        ]
        constant = self._edges(number)
        matching = Matching(self._result.keys, keys[0], keys[1])
        for left, right in matching.pairs():
            own_keys, own = taken(keys[0], rows[0], left)
            both = own, rows[1].take(to_array(right))
            out.emit(self._result.pairs(own_keys, both, edges=[edge.slice(0, len(left)) for edge in constant]))
            yield
        for port, lonely in enumerate((matching.left_alone, matching.right_alone)):
            if not self._spec.outer[port]:
                continue
            alone = self._result.all_alone(port, keys[port], rows[port], lonely(), edges=constant)
            yield from emitted(alone, out)

    def _edges(self, number: int) -> list[pa.Array]:
        """Return the edges of a window, for a whole batch of the result."""
        kind = self._context.output_schema.field("window_start").type
        window = self._spec.window
        return [edges(np.full(CHUNK, time, np.int64), kind) for time in (window.start(number), window.end(number))]

    # --- state

    def state(self) -> Mapping[str, Piece]:
        keys, closed = len(self._result.keys), self._time.less(self._spec.lateness)
        logs: dict[str, Piece] = {"time": self._time}
        for name, log, numbering in zip(SIDES, self._logs, self._numberings, strict=True):
            logs[name] = Log(log, keys, low=numbering.low(NUMBER, closed))
        return logs
