"""A join without windows: each row meets all rows of the other side with its key, those that came and those to come.

A pair comes out when the later one of its rows comes. With ``emit`` "changes" a row of an outer side that has no
counterpart comes out at once, and is taken back when the first one comes; with "final" it comes out at the end.

If an input has signed changes, so has the result: a pair counts as the product of the changes of its rows, so its net
is the join of the nets. A row has a counterpart as long as the changes of the other side's rows of its key add up to
more than zero.

When an input has ended, rows of the other one meet no row that is to come, so they are not kept, unless they decide
which rows of the ended input have a counterpart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Log, Piece, Stateful, Value
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.updates import CHANGE
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.join_specs import UnboundedJoin
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from operators.joins.arrived_rows import ArrivedRows, JoinKeys
from operators.joins.kept_rows import KeptRows, SignedRows
from operators.joins.late import SIDES
from operators.joins.result import ResultRows, has_null, taken
from operators.stateful.chunks import CHUNK, emitted, pieces

__all__ = ["UnboundedJoinOperator"]


class UnboundedJoinOperator(Stateful):
    """Joins without windows and without a time to live; see the module's text."""

    def __init__(self, context: OperatorContext, spec: UnboundedJoin) -> None:
        self._context = context
        self._spec = spec
        self._result = ResultRows(spec.columns, context.input_schemas, context.output_schema)
        self._ended = [False, False]  # inputs of which no row comes any more, not even again after a restore
        self._begin()

    def _begin(self) -> None:
        """Begin with empty state."""
        self._shared = None if any(self._spec.signed_inputs) else JoinKeys(self._result.keys)
        self._sides: tuple[KeptRows, KeptRows] = (self._new_side(0), self._new_side(1))

    def _new_side(self, port: int) -> KeptRows:
        keys, rows = self._result.keys, self._result.rows[port]
        return SignedRows(keys, rows) if self._spec.signed_inputs[port] else ArrivedRows(keys, rows, self._shared)

    @property
    def kernels(self) -> Sequence[str]:
        return [module for side in self._sides for module in side.kernels]

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if not batch.num_rows:
            return None
        return self._join(port, batch, out)

    def _join(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        weights = to_numbers(batch.column(CHANGE)).astype(np.int64) if self._spec.signed_inputs[port] else None
        keys, rows = self._result.keys_of(port, batch), self._result.rows_of(port, batch)
        null = has_null(keys)
        if null is not None:  # a null key meets nothing
            if self._spec.outer[port]:
                yield from self._alone(port, keys, rows, np.flatnonzero(null), weights, out)
            keys, rows = taken(keys, rows, np.flatnonzero(~null))
            weights = None if weights is None else weights[~null]
        if not len(keys[0]):
            return
        other, is_kept = self._sides[1 - port], self._is_kept(port)
        if self._shared is not None and is_kept:
            self._shared.add(keys)
        slots = other.find(keys)
        if self._spec.shows[port]:
            yield from self._alone(port, keys, rows, np.flatnonzero(other.net(slots) <= 0), weights, out)
        if self._spec.shows[1 - port]:
            yield from self._change_others(port, keys, slots, weights, out)
        for at, numbers in other.pairs(slots):
            changes = None
            if self._spec.is_signed:
                changes = other.weights(numbers) * (1 if weights is None else weights[at])
            yield from emitted(self._result.all_pairs(port, keys, rows, at, numbers, other.read, changes), out)
        if is_kept:
            self._keep(port, keys, rows, weights)
        elif self._spec.outer[port] and not self._spec.shows[port]:
            yield from self._alone(port, keys, rows, np.flatnonzero(other.net(slots) <= 0), weights, out)

    def _is_kept(self, port: int) -> bool:
        """Return whether rows of side ``port`` that come now are needed later."""
        return not self._ended[1 - port] or self._spec.outer[1 - port]

    def _keep(self, port: int, keys: list[pa.Array], rows: pa.RecordBatch, weights: Numbers | None) -> None:
        side = self._sides[port]
        match side:
            case SignedRows():
                assert weights is not None, "signed changes have a weight"
                side.add(keys, rows, weights)
            case ArrivedRows():
                side.add(keys, rows)

    # --- rows without a counterpart

    def _alone(
        self, port: int, keys: list[pa.Array], rows: pa.RecordBatch, at: Numbers, weights: Numbers | None, out: Out
    ) -> Iterator[None]:
        """Emit the rows ``at`` as rows without a counterpart."""
        changes = None
        if self._spec.is_signed:
            changes = np.ones(len(at), np.int64) if weights is None else weights[at]
        return emitted(self._result.all_alone(port, keys, rows, at, changes), out)

    def _change_others(
        self, port: int, keys: list[pa.Array], slots: Slots, weights: Numbers | None, out: Out
    ) -> Iterator[None]:
        """Show or take back the other side's rows whose first counterpart comes, or whose last one goes, with these."""
        mine, theirs = self._sides[port], self._sides[1 - port]
        found = np.flatnonzero(slots >= 0)
        touched, first, inverse = np.unique(slots[found], return_index=True, return_inverse=True)
        index = to_array(found[first])
        before = mine.net(mine.find([column.take(index) for column in keys]))
        added = np.zeros(len(touched), np.int64)
        np.add.at(added, inverse, 1 if weights is None else weights[found])
        was, is_ = before > 0, before + added > 0
        yield from self._show(1 - port, theirs, touched[was & ~is_], 1, out)
        yield from self._show(1 - port, theirs, touched[~was & is_], -1, out)

    def _show(self, port: int, side: KeptRows, slots: Slots, change: int, out: Out) -> Iterator[None]:
        """Emit all rows of ``slots`` without a counterpart; ``change``: +1 they are shown, -1 they are taken back."""
        for start, stop in pieces(side.most(slots)):
            _, numbers = side.rows(slots[start:stop])
            yield from self._emit_kept(port, side, numbers, change, out)

    def _emit_kept(self, port: int, side: KeptRows, numbers: Slots, change: int, out: Out) -> Iterator[None]:
        """Emit kept rows of side ``port`` without a counterpart, each as often as it is left there."""
        if self._spec.signed_inputs[port]:
            weights = side.weights(numbers)
            numbers = np.repeat(numbers, np.abs(weights))
            signs = np.repeat(np.sign(weights), np.abs(weights)) * change
        else:
            signs = np.full(len(numbers), change)
        for begin in range(0, len(numbers), CHUNK):
            chosen = numbers[begin : begin + CHUNK]
            changes = signs[begin : begin + CHUNK].astype(np.int8) if self._spec.is_signed else None
            out.emit(self._result.alone(port, side.keys(chosen), side.read(chosen), weights=changes))
            yield

    def ended(self, port: int, out: Out) -> None:
        self._ended[port] = not self._context.repeats

    def finish(self, out: Out) -> Iterator[None] | None:
        return self._emit_lonely(out) if self._spec.emit is Emit.FINAL and any(self._spec.outer) else None

    def _emit_lonely(self, out: Out) -> Iterator[None]:
        """Emit the rows of outer sides that had no counterpart up to the end."""
        for port, side in enumerate(self._sides):
            if not self._spec.outer[port]:
                continue
            other = self._sides[1 - port]
            slots = side.slots
            for begin in range(0, len(slots), CHUNK):
                some = slots[begin : begin + CHUNK]
                lonely = other.net(other.find(side.keys_of(some))) <= 0
                yield from self._show(port, side, some[lonely], 1, out)
        self._begin()

    # --- state

    def state(self) -> Mapping[str, Piece]:
        sides = {name: Log(side.state, len(self._result.keys)) for name, side in zip(SIDES, self._sides, strict=True)}
        return {**sides, "ended": Value(self, "_ended", tuple[bool, bool], "all")}

    def restored(self) -> None:
        self._ended = [end and not self._context.repeats for end in self._ended]
        for side in self._sides:
            side.restored()
