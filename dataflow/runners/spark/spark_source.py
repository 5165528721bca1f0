"""A DataFrame in place of a source, and what is known of its splits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dataflow.errors import ConfigurationError

__all__ = ["SparkSource", "split_text"]


class SparkSource:
    """A streaming DataFrame in place of a source, whose rows have a watermark for each split.

    A split is what has its rows in order of time, or nearly: a partition of a topic, a device. Rows with equal values
    in the columns ``split_by`` are of one split. The watermark of the source is the least of those of its splits.
    Without ``split_by`` all rows are of one, whose watermark is the latest time less ``delay``.

    Args:
        frame: the DataFrame.
        split_by: the columns that name the split of a row; they need not be columns of the pipeline's source.
        splits: the values of ``split_by`` (tuples, if it has several columns) that hold time back until their first
            row. None: a split counts from its first row on, so the rows of a split that appears later may be late,
            which a warning says.

    Raises: ConfigurationError for ``splits`` without ``split_by``, or values of another number of columns.

    >>> def orders(spark):
    ...     frame = spark.readStream.format("kafka").option("subscribe", "orders").load()
    ...     return SparkSource(frame, split_by=("topic", "partition"), splits=[("orders", n) for n in range(12)])
    >>> SparkSource(None, splits=[1])
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: SparkSource(splits=) needs split_by=, the columns whose values they are
    """

    def __init__(self, frame: Any, *, split_by: str | Sequence[str] = (), splits: Sequence[Any] | None = None) -> None:
        self.frame = frame
        self.split_by = (split_by,) if isinstance(split_by, str) else tuple(split_by)
        if splits is not None and not self.split_by:
            raise ConfigurationError("SparkSource(splits=) needs split_by=, the columns whose values they are")
        values = [value if isinstance(value, tuple | list) else (value,) for value in splits or ()]
        if wrong := [value for value in values if len(value) != len(self.split_by)]:
            raise ConfigurationError(
                f"SparkSource(splits=): expected values of {', '.join(self.split_by)}, found {wrong[0]!r}; write a "
                "tuple with a value for each column"
            )
        self.splits = None if splits is None else [split_text(value) for value in values]

    def __repr__(self) -> str:
        return f"SparkSource({self.frame!r}, split_by={self.split_by!r})"


def split_text(values: Sequence[Any]) -> str:
    """Return the name of a split, as Spark makes it of the columns.

    >>> split_text(("orders", 3))
    '["orders","3"]'
    """
    return json.dumps([str(value) for value in values], separators=(",", ":"), ensure_ascii=False)
