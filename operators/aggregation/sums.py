"""The error of a sum that overflows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.contracts.render_rows import render_rows
from operators.aggregation.records import SumOverflow
from operators.stateful.columns import ALL

__all__ = ["overflow_of"]


def overflow_of(name: str, error: SumOverflow, key: Sequence[pa.Array], schema: pa.Schema) -> OverflowError:
    """Return the error for the user, with the operator's ``name`` and the sum's key (one row)."""
    (named,) = render_rows(pa.Table.from_arrays(list(key), schema=schema))
    over = "over all rows" if schema.names == [ALL] else f"of key {named}"
    return OverflowError(
        f"{name}: the sum {error.column!r} {over} does not fit into {error.room}: cast its argument to float64"
    )
