"""Rows whose event time is null: they fail the job, are left out, or are set aside."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.contracts.operator import Out
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.row_errors import ERRORS, RowErrors

__all__ = ["without_null_times"]


def without_null_times(batch: pa.RecordBatch, column: str, errors: RowErrors, name: str, out: Out) -> pa.RecordBatch:
    """Return the rows of ``batch`` that have a time in ``column``, and reject the others as ``errors`` says.

    Args:
        name: the operator's name, for messages.
        out: takes the rows that are set aside.

    Raises: ValueError for a null, unless ``errors`` leaves such rows out.
    """
    known = pc.is_valid(batch.column(column))
    nulls = np.flatnonzero(~to_numbers(known))
    for row in render_rows(batch.take(to_array(nulls))):
        error = ValueError(
            f"the event time {column!r} is null; filter such rows out before, or give "
            "with_watermark(on_error='skip') or 'side'"
        )
        errors.reject(name, row, error)
    aside = errors.take()
    if aside is not None:
        out.emit(aside, ERRORS)
    return batch.filter(known)
