"""The columns that operators add to rows and keys, by name, and the key columns of rows as the state has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Mask
from dataflow.state.dictionaries import decoded
from dataflow.state.index import Slots

__all__ = [
    "ALL",
    "ARRIVAL",
    "RECORD",
    "ROWS",
    "START",
    "WINDOW",
    "has_null",
    "is_partial",
    "key_columns",
    "state_keys",
    "typed",
    "without_null",
]

ALL: Final = "barrierflow:all"
"""The key column of the state of an aggregate over all rows."""

RECORD: Final = "barrierflow:record"
"""The column of records: bytes of words that only equal aggregates in the same order can read.

Word 0 has a bit for each aggregate that has a value, the others are as ``RecordLayout`` assigns them. The state of an
aggregate has columns with names in a checkpoint; records in flight keep this form there.
"""
WINDOW: Final = "barrierflow:window"
"""The column of window numbers (``window_numbers``)."""
ROWS: Final = "barrierflow:rows"
"""The column with the number of rows that a record holds."""
START: Final = "barrierflow:start"
"""The column of the start of a window, if it is part of the key of the state."""
ARRIVAL: Final = "barrierflow:arrival"
"""The column that numbers rows in the order in which they arrived."""


def is_partial(schema: pa.Schema) -> bool:
    """Return whether batches of ``schema`` hold records."""
    return RECORD in schema.names


def state_keys(keys: pa.Schema) -> pa.Schema:
    """Return the key columns of the state of an aggregate that is keyed by ``keys``."""
    return keys if len(keys) else pa.schema([pa.field(ALL, pa.int8())])


def key_columns(batch: pa.RecordBatch, keys: Sequence[str]) -> list[pa.Array]:
    """Return the key columns of the rows of ``batch`` for the state."""
    return [batch.column(key) for key in keys] or [to_array(np.zeros(batch.num_rows, np.int8))]


def typed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Return a column with ``type_``: of a dictionary the values, of a view its text."""
    column = decoded(column)
    return column if column.type == type_ else column.cast(type_)


def has_null(keys: Sequence[pa.Array]) -> Mask | None:
    """Return which rows have a null key; None: none."""
    found: Mask | None = None
    for column in keys:
        if column.null_count:
            null = to_numbers(column.is_null())
            found = null if found is None else found | null
    return found


def without_null(slots: Slots, keys: Sequence[pa.Array]) -> Slots:
    """Return ``slots``, which may be overwritten, with -1 for the rows with a null key: null equals nothing."""
    null = has_null(keys)
    if null is not None:
        slots[null] = -1
    return slots
