"""The earliest time of a column, from the statistics in a Parquet footer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

import pyarrow.parquet as pq

from operators.sources.parquet_file import leaf_places

__all__ = ["earliest_time"]

_PER_SECOND: Final = {"milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}


def earliest_time(metadata: pq.FileMetaData, column: str, groups: Iterable[int]) -> int | None:
    """Return the earliest time (microseconds, rounded down) in ``column``, of some row groups.

    Return None if the column is not of timestamps, or if a row group has no statistics for it.
    """
    places = leaf_places(metadata, column)
    if len(places) != 1:  # the path of a struct's field may read the same
        return None
    place = places[0]
    logical = json.loads(metadata.schema.column(place).logical_type.to_json())
    per_second = _PER_SECOND.get(logical.get("timeUnit", ""))
    if logical["Type"] != "Timestamp" or per_second is None:
        return None
    times = []
    for group in groups:
        statistics = metadata.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            return None
        times.append(int(statistics.min_raw) * 1_000_000 // per_second)
    return min(times, default=None)
