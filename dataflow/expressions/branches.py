"""``when ... then ... otherwise`` on the local engine: whole columns, or only the rows of a branch if that raises.

A branch is computed over the whole batch first, which costs less than selecting its rows. Only if that raises, and some
rows do not take the branch, it is computed again over those that do; then an error is due to one of these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers, to_scalar

__all__ = ["choose", "places"]

Value = Any  # pa.Array | pa.Scalar; pyarrow has no types
Lowered = Callable[[pa.RecordBatch], Value]
Rows = Any  # pa.BooleanArray without nulls: true for the rows concerned; None: all rows


def choose(predicates: Sequence[Lowered], values: Sequence[Lowered], fallback: Lowered, dtype: pa.DataType) -> Lowered:
    """Return a function that takes each row's value from the first branch whose predicate is true, as ``dtype``.

    It may copy rows of all columns of a batch, so pass it only the columns that branches need.
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
        complete = rest is not None and not rest.true_count
        result = to_scalar(None, dtype) if complete else _over(fallback, batch, rest)
        for taken, made in reversed(chosen):
            result = made if taken is None else pc.if_else(taken, made, result)
        return result

    return evaluate


def _taken(condition: Value, rest: Rows) -> Rows:
    """Return the rows of ``rest`` where ``condition`` is true."""
    if isinstance(condition, pa.Scalar):
        return rest if condition.as_py() else to_array([], pa.bool_())
    sure = condition.fill_null(to_scalar(value=False)) if condition.null_count else condition
    return sure if rest is None else pc.and_(sure, rest)


def _without(rest: Rows, taken: Rows) -> Rows:
    if taken is None:
        return to_array([], pa.bool_())
    if not taken.true_count:
        return rest
    return pc.invert(taken) if rest is None else pc.and_not(rest, taken)


def _over(lowered: Lowered, batch: pa.RecordBatch, rows: Rows) -> Value:
    """Return the values for ``rows``; those of other rows are arbitrary."""
    if rows is None:
        return lowered(batch)
    try:
        return lowered(batch)
    except (OverflowError, ValueError):
        if rows.true_count == len(rows):
            raise
    values = lowered(batch.filter(rows))
    return values if isinstance(values, pa.Scalar) else values.take(places(rows))


def places(rows: pa.BooleanArray) -> pa.Array:
    """Return each true row's position among the true rows; null for the others."""
    taken = to_numbers(rows)
    return to_array(np.cumsum(taken) - 1, pa.int64(), mask=~taken)
