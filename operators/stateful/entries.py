"""The entries of a batch in windows of event time: a row of the state for each row and each of its numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from operators.stateful.columns import RECORD, ROWS, START, WINDOW, is_partial, key_columns
from operators.stateful.times import time_column
from operators.stateful.window_numbers import ByWindow, Numbered, Numbering

__all__ = ["entry_rows", "number_records", "number_rows", "weights_of"]


def number_rows(batch: pa.RecordBatch, numbering: Numbering, where: str) -> Numbered | None:
    """Return the numbers of a batch of rows; None if no row is in a window.

    Raises: ValueError for a null event time; OverflowError for times out of range.
    """
    column = numbering.time.column
    time_column(batch, column, where)
    try:
        return numbering.of(batch)
    except OverflowError as error:
        raise OverflowError(
            f"{where}: event times in {column!r} are out of range for window edges of {numbering.window}: {error}; "
            "filter such rows out"
        ) from error


def number_records(batch: pa.RecordBatch, numbering: Numbering) -> Numbered:
    """Return the windows of a batch of records, which may be numbered by slice if the state is not."""
    numbers = to_numbers(batch.column(WINDOW))
    if isinstance(numbering, ByWindow) and START not in batch.schema.names:
        return numbering.of_slices(numbers)
    starts = [to_numbers(batch.column(field.name)) for field in numbering.key_fields]
    return Numbered(numbers, int(numbers.min()), int(numbers.max()), *starts)


def entry_rows(
    batch: pa.RecordBatch, entries: Numbered, keys: Sequence[str], columns: Sequence[str], state_keys: pa.Schema
) -> pa.RecordBatch:
    """Return a row for each entry: the columns to fold, with the key columns of the state but for the numbers.

    Args:
        batch: rows, or records of rows.
        entries: their numbers.
        keys: the columns of the user's key.
        columns: the columns of rows that are folded, with ``keys``.
        state_keys: the key columns of the state: the user's, and the start of the window if it is one of them.
    """
    rows = batch.select([*keys, RECORD] if is_partial(batch.schema) else columns)
    if entries.rows is not None:
        rows = rows.take(to_array(entries.rows))
    if not keys:
        rows = rows.append_column(state_keys.field(0), key_columns(rows, ())[0])
    if entries.starts is not None:
        rows = rows.append_column(state_keys.field(len(state_keys) - 1), to_array(entries.starts))
    return rows


def weights_of(batch: pa.RecordBatch, entries: Numbered) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of rows of each entry."""
    if is_partial(batch.schema):
        weights = to_numbers(batch.column(ROWS))
        return weights if entries.rows is None else weights[entries.rows]
    return np.ones(len(entries.numbers), np.int64)
