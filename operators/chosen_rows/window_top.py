"""The rows of each key and window with the lowest ranks; they come out once, when the window is complete.

Rows wait by slice of time, or by the end of their window if windows have no slices. A slice that has become large is
cut down to the rows that are among the first ones of their key in it, because no other row of it can be among the first
ones of a window.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.windows import Sliced
from dataflow.planning.chosen_row_specs import EDGES, WindowTop
from dataflow.state.arrays import GREATEST, Numbers
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.chosen_rows.ranking import KERNELS, Ranked, order_words, rank_rows
from operators.chosen_rows.rows import KeyColumns, RowColumns
from operators.stateful.chunks import CHUNK
from operators.stateful.columns import ARRIVAL, START
from operators.stateful.complete_windows import complete_windows
from operators.stateful.late_rows import LateRows
from operators.stateful.row_log import KERNELS as ROW_KERNELS
from operators.stateful.row_log import NUMBER, WindowRows
from operators.stateful.window_numbers import BySlice, ByWindow, Numbered, Numbering

__all__ = ["WindowTopOperator"]

KEY = "barrierflow:key"
"""The prefix of the key columns in the state; the others keep their names."""
_LARGE = 65_536
"""The rows of a slice above which it is cut down, each time it has become twice as large."""


class WindowTopOperator(Stateful):
    """Ranks rows per key and window; see the module's text.

    Raises: ValueError for a null event time; OverflowError for one out of range.
    """

    def __init__(self, context: OperatorContext, spec: WindowTop) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._spec = spec
        self._keys = KeyColumns(schema, spec.keys)
        self._columns = RowColumns(schema, context.output_schema, spec.keys, spec.made, spec.order.by)
        self._by = [(name, down) for name, down in spec.order.pairs if name not in spec.keys]
        self._windows = spec.window if isinstance(spec.window, Sliced) else None
        self._numbering: Numbering = (
            ByWindow(spec.window, spec.time) if self._windows is None else BySlice(self._windows, spec.time)
        )
        own = [field.with_name(f"{KEY}{number}") for number, field in enumerate(self._keys.schema)]
        self._key_schema = pa.schema([*own, *self._numbering.key_fields])
        self._log = WindowRows(pa.schema([*self._key_schema, *self._columns.schema, pa.field(ARRIVAL, pa.int64())]))
        self._room: dict[int, int] = {}  # the rows that each slice takes before it is cut down
        self._arrived = 0
        self._time = Passed()
        self._late = LateRows(context, self._time, spec.lateness, spec.keys)

    @property
    def kernels(self) -> Sequence[str]:
        return *index_kernels(self._key_schema), "operators.kernels.windows", *KERNELS, *ROW_KERNELS

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        if not batch.num_rows:
            return
        batch, entries = self._late.split_numbers(batch, self._numbering, out)
        if entries is None:
            return
        columns = [*self._keys.of(batch), *self._columns.of(batch).columns]
        columns.append(to_array(self._arrived + np.arange(batch.num_rows)))
        self._arrived += batch.num_rows
        if entries.rows is not None:
            index = to_array(entries.rows)
            columns = [column.take(index) for column in columns]
        if entries.starts is not None:
            columns.insert(len(self._keys.schema), to_array(entries.starts))
        rows = pa.RecordBatch.from_arrays(columns, schema=self._log.schema)
        self._log.add(rows, entries.numbers)
        for number, count in _counts(entries):
            self._room[number] = self._room.get(number, _LARGE) - count
            if self._room[number] <= 0:
                self._cut_down(number)

    def _cut_down(self, number: int) -> None:
        """Keep the rows of a slice that are among the first ones of their key."""
        rows = self._log.rows(number, number + 1)
        ranked = self._ranked(rows)
        chosen = np.zeros(rows.num_rows, np.bool_)
        chosen[ranked.rows] = True
        self._log.keep(number, chosen)
        self._room[number] = max(_LARGE - len(ranked.rows), len(ranked.rows))

    def _ranked(self, rows: pa.RecordBatch) -> Ranked:
        """Return the first rows of each key among rows of the log."""
        groups = KeyIndex(self._key_schema).slots(rows.columns[: len(self._key_schema)])
        words = order_words([rows.column(name) for name, _ in self._by], [down for _, down in self._by])
        order = self._spec.order
        if order.ties == "arrival":
            words.append(to_numbers(rows.column(ARRIVAL)))
        return rank_rows(groups, words, order.n, order.ties)

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Emit the windows that the watermark, less the lateness, completes, in order of time."""
        before = self._time.less(self._spec.lateness)
        self._time.advance(watermark)
        return self._fire(before, out) if self._log.entries else None

    def held(self, watermark: int) -> int:
        """Return the watermark below which no result comes any more."""
        return watermark - self._spec.lateness

    def _fire(self, before: int, out: Out) -> Iterator[None]:
        closed, window = self._time.less(self._spec.lateness), self._windows
        first_open = self._numbering.first_open(closed)
        if window is None:
            for number in self._log.numbers(first_open).tolist():
                yield from self._emit(self._log.rows(number, number + 1), None, number, out)
        else:
            for number in complete_windows(window, [self._log], before, closed):
                rows = self._log.rows(*window.covered(number))
                yield from self._emit(rows, window.start(number), window.end(number), out)
        self._log.drop(first_open)
        self._room = {number: rows for number, rows in self._room.items() if number >= first_open}

    def _emit(self, rows: pa.RecordBatch, start: int | None, end: int, out: Out) -> Iterator[None]:
        """Emit the first rows of windows that end at ``end`` and begin at ``start`` (None: the rows say where)."""
        ranked = self._ranked(rows)
        names = self._columns.schema.names
        kind = self._context.output_schema.field(EDGES[0]).type
        for begin in range(0, len(ranked.rows), CHUNK):
            part = rows.take(to_array(ranked.rows[begin : begin + CHUNK]))
            count = part.num_rows
            starts = to_numbers(part.column(START)) if start is None else np.full(count, start, np.int64)
            times = (starts, np.full(count, end, np.int64))
            made: Mapping[str, pa.Array] = {
                "rank": to_array(ranked.ranks[begin : begin + CHUNK]),
                **{name: self._numbering.unit.edges(time, kind) for name, time in zip(EDGES, times, strict=True)},
            }
            out.emit(self._columns.output(part.columns[: len(self._keys.schema)], part.select(names), **made))
            yield

    # --- state

    def state(self) -> Mapping[str, Piece]:
        low = self._numbering.low(NUMBER, self._time.less(self._spec.lateness))
        return {"time": self._time, "rows": Log(self._log, len(self._keys.schema), low=low, counts=[ARRIVAL])}

    def restored(self) -> None:
        for number in self._log.numbers(GREATEST).tolist():
            arrivals: Numbers = to_numbers(self._log.rows(number, number + 1).column(ARRIVAL))
            self._arrived = max(self._arrived, int(arrivals.max()) + 1)
            self._room[number] = _LARGE - len(arrivals)


def _counts(entries: Numbered) -> Iterable[tuple[int, int]]:
    """Return each number with the number of entries that have it."""
    numbers, low, high = entries.numbers, entries.low, entries.high
    if low == high:
        return [(low, len(numbers))]
    if high - low > len(numbers):
        found, counts = np.unique(numbers, return_counts=True)
        return zip(found.tolist(), counts.tolist(), strict=True)
    return [(low + number, count) for number, count in enumerate(np.bincount(numbers - low).tolist()) if count]
