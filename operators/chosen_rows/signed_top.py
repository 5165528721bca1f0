"""The rows of each key with the lowest ranks, of signed changes: what is left when rows are taken back.

All distinct rows that are left are kept, each with the sum of its changes and the number of its first change. They are
in a tree for each key, in the order of their ranks, so a change costs the logarithm of the rows of its key. A row with
the sum n has n ranks; one whose sum is not above zero has none, because its addition may still come. The trees are not
in checkpoints: a restore makes them of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Piece, Stateful
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.updates import CHANGE
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.chosen_row_specs import SignedTop
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from operators.chosen_rows.ranked_trees import RankedTrees, Tops
from operators.chosen_rows.rows import KeyColumns, RowColumns
from operators.stateful.chunks import CHUNK, emitted, pieces

__all__ = ["SignedTopOperator"]

_WEIGHT, _ARRIVAL = 1, 2
"""Words of the record of a row: the sum of its changes, and the number of its first change."""


class SignedTopOperator(Stateful):
    """Ranks the rows that are left; see the module's text."""

    def __init__(self, context: OperatorContext, spec: SignedTop) -> None:
        (schema,) = context.input_schemas
        self._context = context
        self._spec = spec
        self._keys = KeyColumns(schema, spec.keys)
        self._columns = RowColumns(schema, context.output_schema, spec.keys, {*spec.made, CHANGE}, spec.order.by)
        by = [(name, down) for name, down in spec.order.pairs if name not in spec.keys]
        self._by = [self._columns.schema.names.index(name) for name, _ in by]
        self._descending = [down for _, down in by]
        self._begin()

    def _begin(self) -> None:
        """Begin with empty state."""
        keys = [field.with_name(f"barrierflow:key{n}") for n, field in enumerate(self._keys.schema)]
        rows = pa.schema([*keys, *self._columns.schema])
        self._state = KeyedState(rows, pa.schema([]), words=2, grouped_by=len(keys))
        types = [self._columns.schema.types[at] for at in self._by]
        self._trees = RankedTrees(pa.schema(keys), types, self._descending)
        self._arrived = 0

    @property
    def kernels(self) -> Sequence[str]:
        return *self._state.kernels, *self._trees.kernels

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        weights = to_numbers(batch.column(CHANGE)).astype(np.int64)
        keys, columns = self._keys.of(batch), self._columns.of(batch).columns
        slots, fresh = self._state.insert([*keys, *columns])
        rows, first, inverse = np.unique(slots, return_index=True, return_inverse=True)
        sums = np.zeros(len(rows), np.int64)
        np.add.at(sums, inverse, weights)
        records = self._state.records
        is_new = fresh[first]
        records[rows[is_new], _ARRIVAL] = self._arrived + first[is_new]
        self._arrived += batch.num_rows
        records[rows, _WEIGHT] += sums
        at = to_array(first)
        groups = self._trees.groups([key.take(at) for key in keys])
        touched = np.unique(groups)
        shows = self._spec.emit is Emit.CHANGES
        before = self._tops(touched) if shows else None
        orders = [columns[n].take(at) for n in self._by]
        self._trees.add(groups, orders, records[rows, _ARRIVAL], rows, sums, is_new, records[rows, _WEIGHT] == 0)
        changes: Iterator[pa.RecordBatch] = iter(())
        if before is not None:
            changes = iter([*self._changes(before, self._tops(touched))])
        self._trees.drop_empty(touched)
        self._state.delete(rows[records[rows, _WEIGHT] == 0])
        return emitted(changes, out)

    def _tops(self, groups: Slots) -> Tops:
        return self._trees.tops(groups, self._spec.order.n, self._spec.order.ties)

    def _changes(self, before: Tops, after: Tops) -> Iterator[pa.RecordBatch]:
        """Yield what is shown less and more now: ranks of rows, of groups in their order."""
        entries = np.concatenate([before.entries, after.entries])
        weights = np.repeat(np.array([-1, 1]), [len(before.entries), len(after.entries)])
        order = np.lexsort(entries.T[::-1])
        entries, weights = entries[order], weights[order]
        begins = np.ones(len(entries), np.bool_)
        begins[1:] = (entries[1:] != entries[:-1]).any(axis=1)
        starts = np.flatnonzero(begins)
        sums = np.add.reduceat(weights, starts) if len(starts) else weights
        entries = np.repeat(entries[starts], np.abs(sums), axis=0)
        signs = np.repeat(np.sign(sums), np.abs(sums))
        order = np.lexsort([signs, entries[:, 1], entries[:, 0]])
        return self._output(entries[order], signs[order].astype(np.int8))

    def _output(
        self, entries: Numbers, signs: np.ndarray[Any, np.dtype[np.int8]] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the output for rows by their slots and ranks."""
        count = len(self._keys.schema)
        for begin in range(0, len(entries), CHUNK):
            part = entries[begin : begin + CHUNK]
            columns = self._state.keys(part[:, 2].astype(np.int32))
            rows = pa.RecordBatch.from_arrays(columns[count:], schema=self._columns.schema)
            made = {"rank": to_array(part[:, 1].copy())}
            if signs is not None:
                made[CHANGE] = to_array(signs[begin : begin + CHUNK])
            yield self._columns.output(columns[:count], rows, **made)

    def finish(self, out: Out) -> Iterator[None] | None:
        return self._emit_all(out) if self._spec.emit is Emit.FINAL else None

    def _emit_all(self, out: Out) -> Iterator[None]:
        """Emit the first rows of each key, and drop the state."""
        groups = self._trees.all_groups
        for start, stop in pieces(self._trees.sizes(groups)):
            yield from emitted(self._output(self._tops(groups[start:stop]).entries), out)
        self._begin()

    # --- state

    def state(self) -> Mapping[str, Piece]:
        return {"rows": Log(self._state, len(self._keys.schema))}

    def restored(self) -> None:
        slots, count = self._state.slots, len(self._keys.schema)
        for begin in range(0, len(slots), CHUNK):
            some = slots[begin : begin + CHUNK]
            columns, records = self._state.keys(some), self._state.records
            arrivals, sums = records[some, _ARRIVAL], records[some, _WEIGHT]
            orders = [columns[count + n] for n in self._by]
            all_new, none_gone = np.ones(len(some), np.bool_), np.zeros(len(some), np.bool_)
            groups = self._trees.groups(columns[:count])
            self._trees.add(groups, orders, arrivals, some, sums, all_new, none_gone)
            self._arrived = max(self._arrived, int(arrivals.max()) + 1)
