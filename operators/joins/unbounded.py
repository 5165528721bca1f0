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
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.declared_state import Piece, Value
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.updates import CHANGE
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.join_specs import UnboundedJoin
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from operators.joins.arrived_rows import ArrivedRows, KeyNumbers
from operators.joins.base import JoinOperator
from operators.joins.kept_rows import KeptRows, SignedRows
from operators.joins.result import JoinRows
from operators.stateful.chunks import CHUNK, pieces

__all__ = ["UnboundedJoinOperator"]


class UnboundedJoinOperator(JoinOperator[UnboundedJoin]):
    """Joins without windows and without a time to live; see the module's text."""

    def __init__(self, context: OperatorContext, spec: UnboundedJoin) -> None:
        super().__init__(context, spec)
        self._ended = [False, False]  # inputs of which no row comes any more, not even again after a restore
        self._begin()

    def _begin(self) -> None:
        """Begin with empty state."""
        self._shared = None if any(self._spec.signed_inputs) else KeyNumbers(self._result.keys)
        self._sides: tuple[KeptRows, KeptRows] = (self._new_side(0), self._new_side(1))

    def _new_side(self, port: int) -> KeptRows:
        keys, rows = self._result.keys, self._result.rows[port]
        return SignedRows(keys, rows) if self._spec.signed_inputs[port] else ArrivedRows(keys, rows, self._shared)

    @property
    def kernels(self) -> Sequence[str]:
        return [module for side in self._sides for module in side.kernels]

    def _take(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        signed = self._spec.signed_inputs[port]
        weights = to_numbers(batch.column(CHANGE)).astype(np.int64) if signed else np.ones(batch.num_rows, np.int64)
        rows = self._rows(port, batch, weights)
        rows = yield from self._without_null(port, rows, out)
        if not len(rows):
            return
        other, is_kept = self._sides[1 - port], self._is_kept(port)
        if self._shared is not None and is_kept:
            self._shared.add(rows.keys)
        slots = other.find(rows.keys)
        if self._spec.shows[port]:
            yield from self._emit_alone(port, rows, np.flatnonzero(other.net(slots) <= 0), out)
        if self._spec.shows[1 - port]:
            yield from self._change_others(port, rows, slots, out)

        def weigh(at: Numbers | Slots, numbers: Slots) -> Numbers:
            theirs = other.weights(numbers)
            return theirs * rows.numbers[at] if signed else theirs

        weigh_pairs = weigh if self._spec.is_signed else None
        yield from self._emit_pairs(port, rows, other.pairs(slots), other.read, out, weigh=weigh_pairs)
        if is_kept:
            self._sides[port].add(rows)
        elif self._spec.outer[port] and not self._spec.shows[port]:
            yield from self._emit_alone(port, rows, np.flatnonzero(other.net(slots) <= 0), out)

    def _is_kept(self, port: int) -> bool:
        """Return whether rows of side ``port`` that come now are needed later."""
        return not self._ended[1 - port] or self._spec.outer[1 - port]

    # --- rows without a counterpart

    def _emit_alone(self, port: int, rows: JoinRows, at: Numbers, out: Out, **_: Any) -> Iterator[None]:
        """Emit the rows ``at`` without a counterpart, as often as their numbers say."""
        return super()._emit_alone(port, rows, at, out, weights=rows.numbers[at])

    def _change_others(self, port: int, rows: JoinRows, slots: Slots, out: Out) -> Iterator[None]:
        """Show or take back the other side's rows whose first counterpart comes, or whose last one goes, with these."""
        mine, theirs = self._sides[port], self._sides[1 - port]
        found = np.flatnonzero(slots >= 0)
        touched, first, inverse = np.unique(slots[found], return_index=True, return_inverse=True)
        index = to_array(found[first])
        before = mine.net(mine.find([column.take(index) for column in rows.keys]))
        added = np.zeros(len(touched), np.int64)
        np.add.at(added, inverse, rows.numbers[found])
        was, is_ = before > 0, before + added > 0
        yield from self._show(1 - port, theirs, touched[was & ~is_], 1, out)
        yield from self._show(1 - port, theirs, touched[~was & is_], -1, out)

    def _show(self, port: int, side: KeptRows, slots: Slots, change: int, out: Out) -> Iterator[None]:
        """Emit all rows of ``slots`` without a counterpart; ``change``: +1 they are shown, -1 they are taken back."""
        for start, stop in pieces(side.most(slots)):
            _, found = side.rows(slots[start:stop])
            for begin in range(0, len(found), CHUNK):
                numbers = found[begin : begin + CHUNK]
                rows = JoinRows(side.keys(numbers), side.read(numbers), side.weights(numbers) * change)
                yield from self._emit_alone(port, rows, np.arange(len(rows)), out)

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
        logs = self._logs([side.state for side in self._sides])
        return {**logs, "ended": Value(self, "_ended", tuple[bool, bool], "all")}

    def restored(self) -> None:
        self._ended = [end and not self._context.repeats for end in self._ended]
        for side in self._sides:
            side.restored()
