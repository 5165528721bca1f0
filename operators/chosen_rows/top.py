"""The rows of each key with the lowest ranks, of rows that are never taken back.

The state has these rows and no others, so it has about n rows for each key. A row is compared with the last of them
first (``LastRows``): most rows are not among the first ones, which costs no more than that. The other rows of a batch
are ranked together with those that are kept. With ``emit`` "changes", a row whose rank changes is taken back with its
old rank and added with the new one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.declared_state import Log, Passed, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.chosen_row_specs import Top
from dataflow.state.arrays import GREATEST, LEAST, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_rows import TIME
from dataflow.state.keyed_state import KeyedState
from operators.chosen_rows.last_rows import Distinct, LastRows
from operators.chosen_rows.ranking import KERNELS, order_words, rank_rows
from operators.chosen_rows.rows import KeyColumns, RowColumns
from operators.stateful.chunks import CHUNK, emitted, pieces
from operators.stateful.expiry import KeyExpiry
from operators.stateful.lives import Lives
from operators.stateful.nested_columns import NestedColumns

__all__ = ["TopOperator"]


class TopOperator(Stateful):
    """Ranks rows per key; see the module's text. The time of a row in the state is its number by arrival.

    Raises: ValueError for a null event time, if keys expire by it.
    """

    def __init__(self, context: OperatorContext, spec: Top) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._spec = spec
        self._keys = KeyColumns(schema, spec.keys)
        self._columns = RowColumns(schema, context.output_schema, spec.keys, spec.made, spec.order.by)
        self._nested = NestedColumns(self._columns.schema)
        self._by = [(name, down) for name, down in spec.order.pairs if name not in spec.keys]
        self._expiry = None if spec.ttl is None else KeyExpiry(spec.ttl, spec.time, context, Passed())
        self._lives = Lives()
        self._begin()

    def _begin(self) -> None:
        """Begin with empty state."""
        ttl = None if self._expiry is None else self._expiry.ttl
        self._state = KeyedState(self._keys.schema, pa.schema([]), rows=self._nested.kept, ttl=ttl)
        self._last, self._distinct = LastRows(), Distinct()
        self._arrived = 0

    @property
    def kernels(self) -> Sequence[str]:
        return (*self._state.kernels, *KERNELS, *(self._lives.kernels if self._expiry is not None else ()))

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        batch, slots = self._lasting(batch)
        rows = self._columns.of(batch)
        better, equal = self._candidates(rows, slots)
        changes = chain(self._rank(rows, slots, better), self._add_equal(rows, slots, equal))
        self._arrived += batch.num_rows
        if self._expiry is not None:
            self._expiry.sweep(self._state, batch.num_rows)
        return emitted(changes, out) if self._spec.emit is Emit.CHANGES else None

    def _candidates(self, rows: pa.RecordBatch, slots: Slots) -> tuple[Numbers, Numbers]:
        """Return the rows of a batch that may change ranks, and those that share the last rank of their key.

        The former are all rows of a key that has no last row yet, or of which some row comes before it.
        """
        lasts = self._last.rows[slots]
        known = np.flatnonzero(lasts >= 0)
        every = np.ones(len(slots), np.bool_)
        if not len(known):
            return np.flatnonzero(every), known
        distinct, places = self._distinct.of(lasts[known])
        own = rows if len(known) == len(slots) else rows.take(to_array(known))
        words = self._words(distinct, own)
        sign = np.zeros(len(known), np.int8)
        for word in words:
            last, new = word[: len(distinct)][places], word[len(distinct) :]
            sign = np.where(sign == 0, (new > last).astype(np.int8) - (new < last), sign)
        if self._spec.order.ties == "arrival":
            every[known[sign >= 0]] = False
            return np.flatnonzero(every), known[:0]
        moved = np.zeros(len(distinct), np.bool_)
        moved[places[sign < 0]] = True
        every[known[(sign > 0) | ~moved[places]]] = False
        return np.flatnonzero(every), known[(sign == 0) & ~moved[places]]

    def _add_equal(self, rows: pa.RecordBatch, slots: Slots, at: Numbers) -> Iterator[pa.RecordBatch]:
        """Add the rows ``at``, which share the last rank of their key; return an iterator over what comes out."""
        if not len(at):
            return iter(())
        self._append(rows, slots, at)
        touched, groups = self._distinct.of(slots[at])
        ranks = self._last.ranks[slots[at]]
        return self._output(self._state.keys(touched), groups, rows, at, ranks, np.ones(len(at), np.int8))

    def _append(self, rows: pa.RecordBatch, slots: Slots, at: Numbers) -> Slots:
        """Add the rows ``at`` of a batch to the state; return their numbers."""
        chosen = rows if len(at) == rows.num_rows else rows.take(to_array(at))
        return self._state.append(slots[at], self._arrived + at, self._nested.encode(chosen))

    def _rank(self, rows: pa.RecordBatch, slots: Slots, at: Numbers) -> Iterator[pa.RecordBatch]:
        """Rank the rows ``at`` with those that are kept of their keys; return an iterator over the changes."""
        changes: Iterator[pa.RecordBatch] = iter(())
        if not len(at):
            return changes
        order = self._spec.order
        touched, groups = self._distinct.of(slots[at])
        old_groups, numbers = self._kept(touched)
        kept, groups = len(numbers), np.concatenate([old_groups, groups])
        words = self._words(numbers, rows if len(at) == rows.num_rows else rows.take(to_array(at)))
        ranked = rank_rows(groups, words, order.n, order.ties)
        ranks = np.zeros(len(groups), np.int64)
        ranks[ranked.rows] = ranked.ranks
        if self._spec.emit is Emit.CHANGES:
            old = rank_rows(old_groups, [word[:kept] for word in words], order.n, order.ties)
            before = np.zeros(len(groups), np.int64)
            before[old.rows] = old.ranks
            changes = self._changes(touched, groups, before, ranks, numbers, rows.take(to_array(at)))
        mine = np.flatnonzero(ranks[kept:])
        after = np.full(len(groups), -1, np.int32)
        after[:kept] = numbers
        after[kept + mine] = self._append(rows, slots, at[mine])
        self._state.drop_rows(numbers[ranks[:kept] == 0])
        self._last.set(touched, groups[ranked.rows], after[ranked.rows], ranked.ranks, order.n)
        return changes

    def _lasting(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Slots]:
        """Return the rows of a batch, without those whose key expires before a later row of it, and their slots."""
        keys = self._keys.of(batch)
        if self._expiry is None:
            slots, fresh = self._state.add_keys(keys)
            self._last.forget(slots[fresh], len(self._state.records))
            return batch, slots.copy()
        slots, fresh = self._expiry.insert(self._state, keys, batch)
        slots = slots.copy()
        self._last.forget(slots[fresh], len(self._state.records))
        lasting = self._lives.lasting(slots, fresh, len(self._state.records))
        return (batch, slots) if lasting is None else (batch.filter(to_array(lasting)), slots[lasting])

    def _kept(self, slots: Slots) -> tuple[Numbers, Slots]:
        """Return the rows kept of slots in order of arrival: the place of the slot of each row, and its number."""
        offsets, numbers = self._state.rows_between(slots, LEAST, GREATEST)
        return np.repeat(np.arange(len(slots)), np.diff(offsets)), numbers

    def _words(self, numbers: Slots, rows: pa.RecordBatch | None = None) -> list[Numbers]:
        """Return the order of the rows kept under ``numbers``, and then of ``rows``."""
        names = [name for name, _ in self._by]
        if not names:
            return []
        kept = self._state.read_rows(numbers, *names)
        columns = [
            kept.column(name) if rows is None else pa.concat_arrays([kept.column(name), rows.column(name)])
            for name in names
        ]
        return order_words(columns, [down for _, down in self._by])

    def _changes(
        self,
        slots: Slots,
        groups: Numbers,
        before: Numbers,
        after: Numbers,
        numbers: Slots,
        rows: pa.RecordBatch,
    ) -> Iterator[pa.RecordBatch]:
        """Return an iterator over the changes of ranks; kept rows are read now.

        Args:
            slots: the slots of the groups.
            groups: the group of each row: those kept, then the new ones.
            before: the old rank of each row; 0: none.
            after: the new rank of each row.
            numbers: the numbers of the rows kept.
            rows: the new rows.
        """
        changed = before != after
        minus, plus = np.flatnonzero(changed & (before > 0)), np.flatnonzero(changed & (after > 0))
        at = np.concatenate([minus, plus])
        ranks = np.concatenate([before[minus], after[plus]])
        weights = np.repeat(np.array([-1, 1], np.int8), [len(minus), len(plus)])
        order = np.lexsort([weights, ranks, groups[at]])
        at, ranks, weights = at[order], ranks[order], weights[order]
        needed, places = np.unique(at, return_inverse=True)
        kept = int(np.searchsorted(needed, len(numbers)))
        both = pa.concat_batches(
            [
                self._nested.decode(self._state.read_rows(numbers[needed[:kept]])),
                rows.take(to_array(needed[kept:] - len(numbers))),
            ]
        )
        keys = self._state.keys(slots)
        return self._output(keys, groups[at], both, places, ranks, weights)

    def _output(
        self,
        keys: Sequence[pa.Array],
        groups: Numbers,
        rows: pa.RecordBatch,
        places: Numbers | Slots,
        ranks: Numbers,
        weights: np.ndarray[Any, np.dtype[np.int8]] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the output for the rows ``places`` of ``rows``, whose keys are the rows ``groups`` of ``keys``."""
        for begin in range(0, len(places), CHUNK):
            part = slice(begin, begin + CHUNK)
            made = {"rank": to_array(ranks[part])}
            if weights is not None:
                made["change"] = to_array(weights[part])
            own = to_array(groups[part])
            yield self._columns.output([key.take(own) for key in keys], rows.take(to_array(places[part])), **made)

    def advance(self, watermark: int, out: Out) -> None:
        if self._expiry is not None:
            self._expiry.advance(watermark, self._state)

    def finish(self, out: Out) -> Iterator[None] | None:
        return self._emit_all(out) if self._spec.emit is Emit.FINAL else None

    def _emit_all(self, out: Out) -> Iterator[None]:
        """Emit the rows kept, key by key, and drop the state."""
        slots = self._state.slots
        for start, stop in pieces(self._state.count_rows(slots)):
            some = slots[start:stop]
            groups, numbers = self._kept(some)
            ranked = rank_rows(groups, self._words(numbers), self._spec.order.n, self._spec.order.ties)
            rows = self._nested.decode(self._state.read_rows(numbers))
            keys = self._state.keys(some)
            yield from emitted(self._output(keys, groups[ranked.rows], rows, ranked.rows, ranked.ranks), out)
        self._begin()

    # --- state

    def state(self) -> Mapping[str, Piece]:
        times = {} if self._expiry is None else self._expiry.state()
        return {**times, "state": Log(self._state, len(self._keys.schema))}

    def restored(self) -> None:
        numbers = self._state.all_rows
        for begin in range(0, len(numbers), CHUNK):
            self._nested.check(self._state.read_rows(numbers[begin : begin + CHUNK]), "rows")
        if len(numbers):
            self._arrived = int(self._state.row_records[numbers, TIME].max()) + 1
        self._last.forget(self._state.slots[:0], len(self._state.records))
