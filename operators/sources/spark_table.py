"""A source whose rows only Spark has: a DataFrame takes its place."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dataflow.contracts.source import Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import ConfigurationError

__all__ = ["SparkTableSource", "spark_table"]


class SparkTableSource(Source):
    """The source that ``spark_table`` makes."""

    only_on = "spark"

    def __init__(self, schema: pa.Schema, *, bounded: bool) -> None:
        self._schema = schema
        self.bounded = bounded

    def __repr__(self) -> str:
        return f"spark_table({', '.join(self._schema.names)})"

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def splits(self) -> Sequence[Split]:
        raise ConfigurationError(
            f"{self!r}: expected a DataFrame with its rows, found none: give one with SparkRunner(sources={{NAME: "
            "frame}}), NAME being the name of the source in the pipeline"
        )

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        raise AssertionError(f"{self!r} has no splits")


def spark_table(schema: pa.Schema, *, bounded: bool = True) -> SparkTableSource:
    """Declare rows that exist on Spark only: in a table, in Kafka, in a database, or as any other DataFrame.

    ``SparkRunner(sources={NAME: frame})`` gives the DataFrame, NAME being the name of this source in the pipeline. The
    columns of the DataFrame may be of any types that hold the values of ``schema``.

    Args:
        schema: the columns that the pipeline sees.
        bounded: True: a stream ends with the input that exists when it starts, and a later run in the same directory
            reads what came since. False: it waits for more until it is stopped, for example to read Kafka for ever.

    Returns: a source that other runners refuse before anything starts.

    Raises: TypeError if ``schema`` is no Arrow schema.

    >>> import dataflow as flow, operators as op
    >>> with flow.Pipeline("orders") as p:
    ...     orders = p.source(spark_table(pa.schema({"shop": pa.string(), "price": pa.int64()})), name="orders")
    ...     totals = orders.key_by("shop").agg(total=flow.col("price").sum())
    ...     totals.sink(op.write_parquet("totals"), name="totals")
    >>> def run(spark):
    ...     runner = flow.SparkRunner(spark, sources={"orders": spark.read.table("orders")})
    ...     return p.run(runner, execution="batch")
    >>> p.run()
    Traceback (most recent call last):
    dataflow.errors.UnsupportedOnRunner: source 'orders', spark_table(shop, price): not on the local runner: ...
    """
    if not isinstance(schema, pa.Schema):
        raise TypeError(f"spark_table(schema) takes a pyarrow.Schema, got {type(schema).__name__}: {schema!r}")
    return SparkTableSource(schema, bounded=bounded)
