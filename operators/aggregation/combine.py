"""Combine: fold the rows of a batch per key before the shuffle, so that fewer rows move.

The output for a batch depends on that batch alone: there is no state, no flush and nothing to checkpoint. If folding
does not pay, because the batch is small or most rows of the last batch had distinct keys, rows pass unchanged; the
aggregate downstream takes both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.tuning import Choice
from dataflow.planning.specs import Grouped, WindowAggregate
from dataflow.state.dictionaries import key_schema, wide_schema
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.aggregation.partials import RECORD, folded_columns, partial_schema
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.sums import overflow_of
from operators.aggregation.window_times import Numbers, window_numbers

__all__ = ["CombineOperator"]

_PROBE = 8
"""Part of a batch whose keys are found first if no key is known: often enough to see that folding will not pay."""
_SMALL = 4_096
"""Rows of a batch below which folding costs more than it saves."""
_PAYS = 24
"""Rows that a record must hold on average for folding to pay: a record costs as much as that many rows, because it is
written, sent and merged. Measured in batches of 524,288 rows: 14 ns a row instead of 19 with 52 rows a record, 25
instead of 20 with 17."""
_PAUSE, _LONGEST_PAUSE = 8, 64
"""Batches of the same size that pass unchanged after a batch for which folding did not pay, until the next attempt: at
first, and at most, because the pause is doubled after each attempt in vain."""
_MOST_MEMORY = 1 << 25
"""Limit for the bytes of records: remembered keys times windows of a batch."""
_MOST_KEYS = 1 << 20
"""Limit for the keys remembered from batch to batch, which saves hashing them again."""


class CombineOperator(Operator):
    """Emits batches of partial records (see ``operators.aggregation.partials``), or rows unchanged."""

    stateless = True

    def __init__(self, context: OperatorContext, spec: Grouped) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._spec = spec
        self._key_schema = key_schema(schema, spec.keys)
        self._schema = wide_schema(partial_schema(spec, schema))
        self._rows = folded_columns(schema, spec.keys, spec.aggregations)
        self._left = 0  # rows that still pass unchanged
        self._pause = _PAUSE
        self._batches = self._folded = self._last_rows = self._last_records = 0
        context.tally.report(self._choice)
        self._start()

    def _start(self) -> None:
        self._index = KeyIndex(self._key_schema)
        self._records = Records(self._spec.aggregations, self._rows, self._context.name)
        self._counts = np.zeros(0, np.int64)

    @property
    def kernels(self) -> Sequence[str]:
        windows = ["operators.kernels.windows"] if isinstance(self._spec, WindowAggregate) else []
        merging = "operators.kernels.merging"  # also for the aggregate downstream, which only merges records from here
        return *index_kernels(self._key_schema), *self._records.kernels, merging, *windows

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._batches += 1
        if self._left > 0:
            self._left -= batch.num_rows
        elif batch.num_rows >= _SMALL:
            folded = self._fold(batch)
            if folded is not None:
                self._folded += 1
                out.emit(folded)
                return
        out.emit(batch)

    def _fold(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the records of a batch; None if there would be too many, or a time is null."""
        spec, rows = self._spec, batch.select(self._rows.names)
        if len(self._index) > _MOST_KEYS:
            self._start()
        keys = [rows.column(key) for key in spec.keys]
        if not len(self._index):
            probed = batch.num_rows // _PROBE
            self._index.slots([key.slice(0, probed) for key in keys])
            if len(self._index) * _PAYS > batch.num_rows:
                self._last_rows, self._last_records = probed, len(self._index)
                self._start()
                self._skip(batch.num_rows)
                return None
        slots = self._index.slots(keys)
        if not isinstance(spec, WindowAggregate):
            self._fold_into(slots, rows, 1)
            touched = self._records.touched
            columns = [*self._index.keys(touched), self._records.partials(touched)]
        else:
            windows = self._windows(spec, batch.column(spec.time.column))
            if windows is None:
                self._skip(batch.num_rows)
                return None
            columns = self._fold_windows(slots, rows, *windows)
        self._last_rows, self._last_records = batch.num_rows, len(self._records.touched)
        if self._last_records * _PAYS > batch.num_rows:
            self._skip(batch.num_rows)
        else:
            self._pause = _PAUSE
        self._records.clear()
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _skip(self, rows: int) -> None:
        """Let the next rows pass unchanged, after an attempt in vain with a batch of ``rows``."""
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
        if not self._folded and not self._left:
            chosen, reason = "off", "batches: {batches:,}, each with fewer than {small:,} rows"
        else:
            chosen = "off" if self._left > 0 else "on"
            reason = (
                "{last_rows:,} rows gave {last_records:,} records, {pays} rows a record pay; folded {folded:,} of "
                "{batches:,} batches"
            )
        return Choice("folding", chosen, reason, counts, {"pays": _PAYS, "small": _SMALL})

    def _windows(self, spec: WindowAggregate, times: pa.Array) -> tuple[Numbers, int, int] | None:
        """Return each row's window, the first, and their number; None if too many, or a time is null."""
        if times.null_count:
            return None
        numbers, low, high = window_numbers(times, spec.window, spec.time.back)
        spread = high - low + 1
        room = _MOST_MEMORY // self._schema.field(RECORD).type.byte_width
        return (numbers, low, spread) if spread * len(self._index) <= room else None

    def _fold_windows(
        self, slots: Slots, rows: pa.RecordBatch, numbers: Numbers, low: int, spread: int
    ) -> list[pa.Array]:
        """Return a record for each key and window; the record of slot s out of n in window low + w is at w * n + s.

        Rows are mostly in order of time, so the records in use at a time are adjacent.
        """
        from operators.kernels.windows import count_places, find_places

        known, places = len(self._index), np.empty(len(slots), np.int32)
        find_places(slots, numbers, low, known, places)
        self._fold_into(places, rows, spread)
        touched = self._records.touched
        counts = self._records.rows(touched)
        if counts is None:
            if len(self._counts) < known * spread:
                self._counts = np.zeros(2 * known * spread, np.int64)
            counts = np.empty(len(touched), np.int64)
            count_places(places, touched, self._counts, counts)
        windows = low + (touched // known).astype(np.int64)
        return [
            *self._index.keys(touched % known),
            to_array(windows),
            to_array(counts),
            self._records.partials(touched),
        ]

    def _fold_into(self, places: Slots, rows: pa.RecordBatch, spread: int) -> None:
        try:
            self._records.fold(rows, places, len(self._index) * spread)
        except SumOverflow as error:
            slot = places[error.row : error.row + 1] % len(self._index)
            raise overflow_of(self._context.name, error, self._index.keys(slot), self._key_schema) from error
