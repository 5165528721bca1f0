"""Where a batch of signed changes may be cut: an operator that emits a change puts both rows into one batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from dataflow.arrow_values import to_numbers
from dataflow.contracts.updates import CHANGE

__all__ = ["end_of_change"]


def end_of_change(batch: Any, rows: int) -> int:
    """Return the first place, from ``rows`` on, at which a batch of signed changes may be cut.

    The rows that a change takes back come before those that replace them. So a new change begins at a row that is taken
    back after one that was added. Rows that were only added so far may be cut anywhere.

    Args:
        batch: a RecordBatch with the column ``change``, of more than ``rows`` rows.
        rows: at least 1.

    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"n": [1, 1, 2, 5, 6], "change": pa.array([1, -1, 1, -1, 1], pa.int8())})
    >>> [end_of_change(batch, rows) for rows in (1, 2, 3, 4)]
    [1, 3, 3, 5]
    """
    # A cut between the row that is taken back and the one that replaces it would let a barrier between them: in this
    # checkpoint the state downstream would lack the row, and a predicate would see a sum without it. Operators emit the
    # old row directly before the new one, so from the first row that is taken back on, only a place between a +1 and
    # a -1 is safe. It is found without the key columns, which would have to be compared row by row.
    added = to_numbers(batch.column(CHANGE)) > 0
    if added[:rows].all():
        return rows
    begins = np.flatnonzero(added[rows - 1 : -1] & ~added[rows:])
    return rows + int(begins[0]) if len(begins) else len(added)
