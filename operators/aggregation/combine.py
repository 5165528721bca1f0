"""Combine: fold rows per key before the shuffle, so that fewer rows move.

If the aggregate emits final results only, records are kept back and take the rows of many batches, until the engine
asks for them (``RowKeeper``) or there are many. Otherwise the records of a batch leave with it. Nothing is kept over a
barrier, so there is nothing to checkpoint. If folding does not pay, because a batch is small or records have few rows,
rows pass unchanged; the aggregate downstream takes both. What pays is decided by a rule of the runner
(``dataflow.contracts.folding``).

When records leave depends on time, and an error must not. So rows are folded only if their sums cannot overflow before
those of the aggregate downstream do: numbers of both signs only if they are small enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.folding import PAYS, SMALL
from dataflow.contracts.kept_rows import RowKeeper
from dataflow.contracts.operator import OperatorContext, Out, Snapshot
from dataflow.contracts.tuning import Choice
from dataflow.planning.aggregate_specs import Emit, Grouped, WindowAggregate
from dataflow.state.arrays import Numbers
from dataflow.state.dictionaries import key_schema, wide_schema
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.aggregation.partials import folded_columns, numbering_of, partial_schema
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.sums import overflow_of
from operators.stateful.columns import RECORD, key_columns, state_keys
from operators.stateful.window_numbers import Numbered

__all__ = ["CombineOperator"]

_PROBE = 8
"""Part of a batch whose keys are found first if no key is known: often enough to see that folding will not pay."""
_PAUSE, _LONGEST_PAUSE = 8, 64
"""After an attempt that did not pay, so many times its rows pass unchanged until the next one: at first, and at most,
because the pause is doubled after each attempt in vain."""
_TRIAL = 1 << 16
"""Rows in whose two halves keys are counted, to see whether it pays to keep records back: of the first batch that has
so many, before it is folded, or of smaller ones together."""
_MOST_MEMORY = 1 << 25
"""Limit for the bytes of records: those kept back, or remembered keys times windows of a batch."""
_MOST_KEYS = 1 << 20
"""Limit for the keys remembered from batch to batch, which saves hashing them again."""
_MOST_TEXT = 1 << 30
"""Limit for the bytes of a batch's keys: with those remembered, they fit into one column."""
_MOST_SUM = (1 << 63) - 1

_FOLDED = "; folded {folded:,} of {batches:,} batches"
_NOTHING = "no rows came"
_SMALL_BATCHES = "batches: {batches:,}, each with fewer than {small:,} rows"
_REFUSED = "batches: {batches:,}, which the rule of the runner does not fold"
_MEASURED = "{last_rows:,} rows gave {last_records:,} records, folding pays from {pays} rows a record on" + _FOLDED
_WINDOWS = "keys times windows were {last_records:,} for {last_rows:,} rows" + _FOLDED
_NULL_TIMES = "times were null" + _FOLDED
_LARGE = "sums or keys were too large to be put together" + _FOLDED


class CombineOperator(RowKeeper):
    """Emits batches of partial records (see ``operators.aggregation.partials``), or rows unchanged.

    Invariant: while records are kept back no row passes unchanged, so the rows of a key stay in order.
    """

    stateless = True

    def __init__(self, context: OperatorContext, spec: Grouped) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._spec = spec
        self._key_schema = state_keys(key_schema(schema, spec.keys))
        self._numbering = numbering_of(spec, schema) if isinstance(spec, WindowAggregate) else None
        self._schema = wide_schema(partial_schema(spec, schema))
        self._most_records = _MOST_MEMORY // self._schema.field(RECORD).type.byte_width
        self._rows = folded_columns(schema, spec.keys, spec.aggregations)
        self._left = 0  # rows that still pass unchanged
        self._pause = _PAUSE
        self._kept = 0  # rows in the records that are kept back
        self._widest = 0  # a bound on the absolute values in their sums
        self._reason = _NOTHING
        self._batches = self._folded = self._last_rows = self._last_records = 0
        self._pays = True  # the last answer of the rule
        context.tally.report(self._choice)
        self._start()

    def _start(self) -> None:
        self._index = KeyIndex(self._key_schema)
        self._records = Records(self._spec.aggregations, self._rows, self._context.name)
        self._counts = np.zeros(0, np.int64)
        self._repeats = False  # the keys were found to repeat
        self._half: tuple[int, int] | None = None  # rows and records of the first half of a trial with small batches

    @property
    def kernels(self) -> Sequence[str]:
        windows = ["operators.kernels.windows"] if isinstance(self._spec, WindowAggregate) else []
        merging = "operators.kernels.merging"  # also for the aggregate downstream, which only merges records from here
        return *index_kernels(self._key_schema), *self._records.kernels, merging, *windows

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._batches += 1
        rows = batch.num_rows
        if self._left > 0:
            self._left -= rows
        elif not self.folding.tries(rows, keeps=self._keeps):
            self.emit_kept(out)
        elif isinstance(self._spec, WindowAggregate):
            folded = self._folded_windows(self._spec, batch)
            if folded is not None:
                self._folded += 1
                out.emit(folded)
                return
        elif self._fold(batch, out):
            self._folded += 1
            if not (self._keeps and self._has_room and self.keep.goes_on(len(self._records.touched))):
                self.emit_kept(out)
            return
        assert not self._kept, f"rows pass {self._kept} that are kept back"
        if self._reason == _NOTHING:
            self._reason = _SMALL_BATCHES if rows < SMALL else _REFUSED
        out.emit(batch)

    @property
    def _keeps(self) -> bool:
        """Whether records may be kept back: not updates, which must not wait, nor windows, which watermarks end."""
        final = self._spec.emit is Emit.FINAL and not self._spec.windowed
        return final and self.keep.keeps

    @property
    def _has_room(self) -> bool:
        """Whether there is memory for more records and keys."""
        return len(self._records.touched) < self._most_records and not self._has_many_keys

    @property
    def _has_many_keys(self) -> bool:
        return len(self._index) > _MOST_KEYS or self._index.text_bytes > _MOST_MEMORY

    def emit_kept(self, out: Out) -> None:
        if not self._kept:
            return
        rows, touched = self._kept, self._records.touched
        self._kept = self._widest = 0
        self._half = None
        self._measure(rows, len(touched))
        folded = pa.RecordBatch.from_arrays(
            [*self._user_keys(touched), self._records.partials(touched)], schema=self._schema
        )
        self._records.clear()
        self._pause_if_vain(rows)
        if self._has_many_keys:
            self._start()
        out.emit(folded)

    def snapshot(self) -> Snapshot:
        assert not self._kept, f"{self._kept} rows are kept back while a snapshot is taken"
        return super().snapshot()

    def _fold(self, batch: pa.RecordBatch, out: Out) -> bool:
        """Fold a batch into the records; return False if it must pass unchanged. Then no records are kept back."""
        rows = batch.select(self._rows.names)
        keys = key_columns(rows, self._spec.keys)
        if self._try_keys(keys, batch.num_rows):
            self.emit_kept(out)
            self._skip(batch.num_rows)
            return False
        arguments = self._records.arguments(rows)
        widest = self._records.widest(arguments)
        if not self._fits(keys, max(widest, self._widest), self._kept + rows.num_rows):
            self.emit_kept(out)
            if self._left > 0:
                return False
            if not self._fits(keys, widest, rows.num_rows):
                self._reason = _LARGE
                return False
        self._fold_into(self._index.slots(keys), arguments, 1)
        self._kept += rows.num_rows
        self._widest = max(widest, self._widest)
        self._measure(self._kept, len(self._records.touched))
        if self._keeps and not self._repeats and self._kept >= _TRIAL // 2:
            self._try_small_batches(out)
        return True

    def _try_small_batches(self, out: Out) -> None:
        """Let the records that are kept back leave if the last half of their rows had too many new keys."""
        records = len(self._records.touched)
        if self._half is None:
            self._half = self._kept, records
        elif self._kept >= _TRIAL:
            rows, known = self._half
            self._repeats = self._paying(self._kept - rows, records - known, keeps=True)
            if not self._repeats:
                self.emit_kept(out)

    def _fits(self, keys: Sequence[pa.Array], widest: int, rows: int) -> bool:
        """Return whether sums over ``rows`` with values up to ``widest`` cannot overflow, nor the columns of keys."""
        return widest * rows <= _MOST_SUM and sum([key.nbytes for key in keys]) <= _MOST_TEXT

    def _measure(self, rows: int, records: int, reason: str = _MEASURED) -> None:
        self._last_rows, self._last_records, self._reason = rows, records, reason

    def _try_keys(self, keys: Sequence[pa.Array], rows: int) -> bool:
        """Find the keys of a part of the first large batch; return whether there are too many."""
        if not self._keeps:
            return not len(self._index) and not self._paying(rows, self._probed(keys, rows // _PROBE), keeps=False)
        if self._repeats or rows < _TRIAL:
            return False
        half = self._probed(keys, _TRIAL // 2)
        self._repeats = self._paying(_TRIAL // 2, self._probed(keys, _TRIAL) - half, keeps=True)
        return not self._repeats

    def _probed(self, keys: Sequence[pa.Array], rows: int) -> int:
        """Return how many keys are known, now that those of the first ``rows`` are."""
        self._index.slots([key.slice(0, rows) for key in keys])
        self._measure(rows, len(self._index))
        return len(self._index)

    def _folded_windows(self, spec: WindowAggregate, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the records of a batch; None if there would be too many, or a time is null."""
        rows = batch.select(self._rows.names)
        if self._has_many_keys:
            self._start()
        keys = key_columns(rows, spec.keys)
        if self._try_keys(keys, batch.num_rows):
            self._skip(batch.num_rows)
            return None
        arguments = self._records.arguments(rows)
        if not self._fits(keys, self._records.widest(arguments), batch.num_rows):
            self._reason = _LARGE
            return None
        slots = self._index.slots(keys)
        places = self._windows(spec, batch)
        if places is None:
            self._skip(batch.num_rows)
            return None
        columns = self._fold_windows(slots, arguments, places)
        self._measure(batch.num_rows, len(self._records.touched))
        self._pause_if_vain(batch.num_rows)
        self._records.clear()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _pause_if_vain(self, rows: int) -> None:
        """Pause if the last records had too few rows each."""
        if self._paying(rows, self._last_records, keeps=False):
            self._pause = _PAUSE
        else:
            self._skip(rows)

    def _paying(self, rows: int, records: int, *, keeps: bool) -> bool:
        """Return whether folding pays, by the rule of the runner."""
        self._pays = self.folding.pays(rows, records, keeps=keeps)
        return self._pays

    def _skip(self, rows: int) -> None:
        """Let the next rows pass unchanged, after an attempt in vain with ``rows``, and free the memory meanwhile."""
        self._start()
        self._left = self._pause * rows
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _choice(self) -> Choice:
        """Return whether rows are folded now, with the last measurement."""
        counts = {
            "batches": self._batches,
            "folded": self._folded,
            "last_rows": self._last_rows,
            "last_records": self._last_records,
        }
        pays, off = self._kept > 0 or self._pays, "paused" if self._folded else "off"
        chosen = "on" if self._left <= 0 and self._reason == _MEASURED and pays else off
        return Choice("folding", chosen, self._reason, counts, {"pays": PAYS, "small": SMALL})

    def _windows(self, spec: WindowAggregate, batch: pa.RecordBatch) -> _Places | None:
        """Return the window of each row; None if there are too many windows, or a time is null."""
        if batch.column(spec.time.column).null_count:
            self._reason = _NULL_TIMES
            return None
        assert self._numbering is not None, f"{spec} has windows"
        numbered = self._numbering.of(batch)
        if numbered is None:  # no row is in a window
            return None
        assert numbered.rows is None, f"{spec.window} gives a row several windows"
        if numbered.starts is None:
            windows = _Places(numbered.numbers, numbered.low, numbered.high - numbered.low + 1)
        else:
            windows = _by_value(numbered, numbered.starts)
        places = windows.count * len(self._index)
        if places > self._most_records:
            self._measure(batch.num_rows, places, _WINDOWS)
            return None
        return windows

    def _user_keys(self, slots: Slots) -> list[pa.Array]:
        """Return the key columns of ``slots`` that the rows have."""
        return self._index.keys(slots)[: len(self._spec.keys)]

    def _fold_windows(self, slots: Slots, arguments: Sequence[pa.Array], windows: _Places) -> list[pa.Array]:
        """Return a record for each key and window; the record of slot s out of n in window w is at w * n + s.

        Rows are mostly in order of time, so the records in use at a time are adjacent.
        """
        from operators.kernels.windows import count_places, find_places

        known, places = len(self._index), np.empty(len(slots), np.int32)
        find_places(slots, windows.of_rows, windows.first, known, places)
        self._fold_into(places, arguments, windows.count)
        touched = self._records.touched
        counts = self._records.rows(touched)
        if counts is None:
            if len(self._counts) < known * windows.count:
                self._counts = np.zeros(2 * known * windows.count, np.int64)
            counts = np.empty(len(touched), np.int64)
            count_places(places, touched, self._counts, counts)
        return [
            *self._user_keys(touched % known),
            *windows.columns(touched // known),
            to_array(counts),
            self._records.partials(touched),
        ]

    def _fold_into(self, places: Slots, arguments: Sequence[pa.Array], spread: int) -> None:
        try:
            self._records.fold_arguments(arguments, places, len(self._index) * spread)
        except SumOverflow as error:
            slot = places[error.row : error.row + 1] % len(self._index)
            raise overflow_of(self._context.name, error, self._index.keys(slot), self._key_schema) from error


@dataclass(frozen=True, slots=True)
class _Places:
    """The windows of a batch: row i is in window ``of_rows[i] - first``, below ``count``.

    ``numbers`` are the columns that number the windows in records, with an entry for each window; None: one column,
    from ``first`` on.
    """

    of_rows: Numbers
    first: int
    count: int
    numbers: tuple[Numbers, ...] | None = None

    def columns(self, windows: Slots) -> list[pa.Array]:
        """Return the columns that number ``windows`` in records."""
        if self.numbers is None:
            return [to_array(self.first + windows.astype(np.int64))]
        return [to_array(column[windows]) for column in self.numbers]


def _by_value(numbered: Numbered, starts: Numbers) -> _Places:
    """Return the distinct windows, by start and end. Neighbours mostly have the same window."""
    changes = np.flatnonzero((np.diff(numbered.numbers) != 0) | (np.diff(starts) != 0)) + 1
    runs = np.concatenate([[0], changes])
    windows, of_runs = np.unique(np.stack([starts[runs], numbered.numbers[runs]], 1), axis=0, return_inverse=True)
    of_rows = np.repeat(of_runs.reshape(-1), np.diff(np.append(runs, len(starts))))
    first, last = (np.ascontiguousarray(windows[:, i]) for i in (0, 1))
    return _Places(of_rows, 0, len(windows), (first, last))
