"""A DataFrame in place of a source, and what is known of its splits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from dataflow.errors import ConfigurationError
from dataflow.runners.spark.session import functions

__all__ = ["SparkSource", "split_name"]


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
        self.splits: Sequence[Sequence[Any]] | None = None if splits is None else [tuple(value) for value in values]
        self._names: Sequence[str] | None = None

    def __repr__(self) -> str:
        return f"SparkSource({self.frame!r}, split_by={self.split_by!r})"

    def split_names(self) -> Sequence[str]:
        """Return the names of ``splits``, as Spark makes them of the columns' values: it is asked once.

        Raises: ConfigurationError for a value that its column cannot have.
        """
        if self._names is None:
            splits = self.splits or ()
            try:
                self._names = self._computed(splits)
            except Exception:  # PySpark has no class for all that it does not make literals of
                for values in splits:
                    self._check(values)
                raise
        return self._names

    def _check(self, values: Sequence[Any]) -> None:
        """Raise ConfigurationError if a split has a value that its column cannot have."""
        try:
            self._computed([values])
        except Exception as error:
            types = [f"{name} {self.frame.schema[name].dataType.simpleString()}" for name in self.split_by]
            raise ConfigurationError(
                f"SparkSource(splits=): expected values of {', '.join(types)}, found {values!r}: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _computed(self, splits: Sequence[Sequence[Any]]) -> Sequence[str]:
        f, types = functions(), [self.frame.schema[name].dataType for name in self.split_by]
        typed = [[_literal(v).cast(dtype) for v, dtype in zip(values, types, strict=True)] for values in splits]
        names = f.array(*map(split_name, typed)).alias("names")
        (row,) = self.frame.sparkSession.range(1).select(names).collect()
        return list(row["names"])


def _literal(value: Any) -> Any:
    """Return a literal. A time without a zone is text, because PySpark would take it for one of this process's zone."""
    without_zone = isinstance(value, datetime) and value.tzinfo is None
    return functions().lit(value.isoformat(" ") if without_zone else value)


def split_name(columns: Iterable[Any]) -> Any:
    """Return the column of the names of splits, given those whose values name them."""
    f = functions()
    return f.to_json(f.array(*(value.cast("string") for value in columns)))
