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
from dataflow.contracts.declared_state import Passed, Piece
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.join_specs import WindowJoin
from operators.joins.base import JoinOperator
from operators.joins.late import late_rows_of
from operators.joins.matching import Matching
from operators.stateful.chunks import CHUNK
from operators.stateful.complete_windows import complete_windows
from operators.stateful.row_log import KERNELS, NUMBER, WindowRows
from operators.stateful.times import edges
from operators.stateful.window_numbers import BySlice

__all__ = ["WindowJoinOperator"]


class WindowJoinOperator(JoinOperator[WindowJoin]):
    """Joins rows by window; see the module's text.

    Raises: ValueError for a null event time; OverflowError for one out of range.
    """

    def __init__(self, context: OperatorContext, spec: WindowJoin) -> None:
        super().__init__(context, spec)
        self._numberings = [BySlice(spec.window, time) for time in spec.times]
        self._sides = [WindowRows(self._result.logged(port)) for port in (0, 1)]
        self._time = Passed()
        self._late = [late_rows_of(port, spec, context, self._time, spec.lateness) for port in (0, 1)]

    @property
    def kernels(self) -> Sequence[str]:
        return *Matching.kernels_for(self._result.keys), *KERNELS

    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        batch, entries = self._late[port].split_numbers(batch, self._numberings[port], out)
        if entries is not None:
            self._rows(port, batch, entries.numbers).add_to(self._sides[port])

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Join the windows that the watermark, less the lateness, completes."""
        before = self._time.less(self._spec.lateness)
        self._time.advance(watermark)
        return self._fire(before, out) if any([log.entries for log in self._sides]) else None

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more."""
        return watermark - self._spec.lateness

    def _fire(self, before: int, out: Out) -> Iterator[None]:
        closed = self._time.less(self._spec.lateness)
        for number in complete_windows(self._spec.window, self._sides, before, closed):
            yield from self._join(number, out)
        for log, numbering in zip(self._sides, self._numberings, strict=True):
            log.drop(numbering.first_open(closed))

    def _join(self, number: int, out: Out) -> Iterator[None]:
        """Emit the pairs of a window, and its rows without a counterpart."""
        logged = [log.rows(*self._spec.window.covered(number)) for log in self._sides]
        left, right = (
            self._result.of_log(port, rows, np.broadcast_to(np.int64(number), rows.num_rows))
            for port, rows in enumerate(logged)
        )
        constant = self._edges(number)
        matching = Matching(self._result.keys, left.keys, right.keys)
        yield from self._emit_pairs(
            0, left, matching.pairs(), lambda at: right.rows.take(to_array(at)), out, edges=constant
        )
        if self._spec.outer[0]:
            yield from self._emit_alone(0, left, matching.left_alone(), out, edges=constant)
        if self._spec.outer[1]:
            yield from self._emit_alone(1, right, matching.right_alone(), out, edges=constant)

    def _edges(self, number: int) -> list[pa.Array]:
        """Return the edges of a window, for a whole batch of the result."""
        kind = self._context.output_schema.field("window_start").type
        window = self._spec.window
        return [edges(np.full(CHUNK, time, np.int64), kind) for time in (window.start(number), window.end(number))]

    # --- state

    def state(self) -> Mapping[str, Piece]:
        closed = self._time.less(self._spec.lateness)
        lows = [numbering.low(NUMBER, closed) for numbering in self._numberings]
        return {"time": self._time, **self._logs(self._sides, lows=lows)}
