"""``when ... then ... otherwise`` on the local engine: whole columns where that goes well, else the rows it is about.

A branch is computed over the whole batch first, which costs less than picking out its rows. Only where that raises, and
other rows would not take the branch, it is computed again over those that do; then an error is their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["choose", "places"]

Value = Any  # pa.Array | pa.Scalar; pyarrow has no types
Lowered = Callable[[pa.RecordBatch], Value]
Rows = Any  # pa.BooleanArray | None: the rows something is about, none of it null; None for all of them


def choose(predicates: Sequence[Lowered], values: Sequence[Lowered], fallback: Lowered, dtype: pa.DataType) -> Lowered:
    """The value of the first branch whose predicate is true, row by row; all values are of ``dtype``.

    Rows are picked out of the whole batch: give it no column that no branch needs.
    """

    def evaluate(batch: pa.RecordBatch) -> Value:
        chosen: list[tuple[Rows, Value]] = []
        rest: Rows = None
        for predicate, value in zip(predicates, values, strict=True):
            taken = _taken(_over(predicate, batch, rest), rest)
            if taken is None or taken.true_count:
                chosen.append((taken, _over(value, batch, taken)))
            rest = _without(rest, taken)
            if rest is not None and not rest.true_count:
                break
        nobody = rest is not None and not rest.true_count
        result = pa.scalar(None, dtype) if nobody else _over(fallback, batch, rest)
        for taken, made in reversed(chosen):
            result = made if taken is None else pc.if_else(taken, made, result)
        return result

    return evaluate


def _taken(condition: Value, rest: Rows) -> Rows:
    """The rows of ``rest`` where ``condition`` is true."""
    if isinstance(condition, pa.Scalar):
        return rest if condition.as_py() else pa.array([], pa.bool_())
    sure = condition.fill_null(fill_value=False) if condition.null_count else condition
    return sure if rest is None else pc.and_(sure, rest)


def _without(rest: Rows, taken: Rows) -> Rows:
    if taken is None:
        return pa.array([], pa.bool_())
    if not taken.true_count:
        return rest
    return pc.invert(taken) if rest is None else pc.and_not(rest, taken)


def _over(lowered: Lowered, batch: pa.RecordBatch, rows: Rows) -> Value:
    """The values for ``rows``; those of other rows have no meaning."""
    if rows is None:
        return lowered(batch)
    try:
        return lowered(batch)
    except (OverflowError, ValueError):
        if rows.true_count == len(rows):
            raise
    made = lowered(batch.filter(rows))
    return made if isinstance(made, pa.Scalar) else made.take(places(rows))


def places(rows: pa.BooleanArray) -> pa.Array:
    """Where the value of each row stands among those of the true rows alone; null for the others."""
    taken = rows.to_numpy(zero_copy_only=False)
    return pa.array(np.cumsum(taken) - 1, pa.int64(), mask=~taken)
