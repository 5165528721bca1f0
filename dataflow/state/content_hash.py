"""Hashes of the content of tables, stable between runs and machines."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import xxhash

from dataflow.arrow_values import to_array

__all__ = ["content_hash"]

_ROWS = 65_536


def content_hash(table: pa.Table, most_bytes: int | None = None) -> str:
    """Return the xxh3 of the rows in Arrow's IPC form, in windows of fixed length: chunks and slices do not matter.

    The order of the rows does. A dictionary counts as its values.

    Args:
        table: the rows.
        most_bytes: of a larger table, only evenly spaced windows of about that many bytes are hashed, the first
            included. This detects other data, but not each changed cell of a huge table. None: all rows are hashed.

    >>> rows = pa.table({"x": [1, 2, 3]})
    >>> content_hash(rows) == content_hash(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]))
    True
    """
    digest = xxhash.xxh3_64(str(table.num_rows).encode())
    if table.num_columns:
        indices = to_array(np.arange(min(_ROWS, table.num_rows)))
        for start in _windows(table, most_bytes):
            window = _undictionaried(table.slice(start, _ROWS))
            # take() copies: a slice would be serialized with all of the buffers it is a slice of
            for batch in window.combine_chunks().take(indices.slice(0, window.num_rows)).to_batches():
                digest.update(batch.serialize())
    return digest.hexdigest()


def _windows(table: pa.Table, most_bytes: int | None) -> Iterator[int]:
    stride = 1 if most_bytes is None else 1 + table.nbytes // most_bytes
    yield from range(0, table.num_rows, stride * _ROWS)


def _undictionaried(table: pa.Table) -> pa.Table:
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = field.with_type(field.type.value_type)
            table = table.set_column(i, plain, table.column(i).cast(plain.type))
    return table
