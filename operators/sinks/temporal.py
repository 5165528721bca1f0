"""Dates and times as text: ISO 8601, zones as UTC, and only the years that readers support."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.errors import SchemaMismatch

__all__ = ["utc", "within_text"]

_YEAR: Final = re.compile(r"(?!0000)\d{4}-")


def utc(array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the same instants in UTC if ``array`` has a zone, so that their text ends in Z.

    >>> str(utc(pa.array([0], pa.timestamp("s", "Asia/Tokyo"))).type)
    'timestamp[s, tz=UTC]'
    """
    if types.is_timestamp(array.type) and array.type.tz is not None:
        return array.cast(pa.timestamp(array.type.unit, "UTC"))
    return array


def within_text(array: pa.Array | pa.ChunkedArray, column: str) -> None:
    """Raise SchemaMismatch, naming ``column``, for a date beyond the years 0001 to 9999.

    Arrow has no text for some of them, and few readers support the others.
    """
    if not (types.is_timestamp(array.type) or types.is_date(array.type)):
        return
    ends = pc.min_max(utc(array))
    for end in ("min", "max"):
        if ends[end].is_valid and not _YEAR.match(text := ends[end].cast(pa.string()).as_py()):
            raise SchemaMismatch(
                f"column {column!r} of type {array.type} has {text}, and text files hold the years 0001 to 9999: "
                "cast it to int64, make such values null, or write Parquet"
            )
