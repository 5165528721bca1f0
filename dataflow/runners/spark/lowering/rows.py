"""Rows as Spark's: files read, rows chosen, columns computed, streams put together."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from dataflow.contracts.execution import ORDER
from dataflow.contracts.row_errors import OnError
from dataflow.planning.batch_specs import NumberRows
from dataflow.planning.specs import EventTimes, Filter, Project, Read
from dataflow.runners.spark.expressions.columns import column_of
from dataflow.runners.spark.expressions.run_time_errors import fail
from dataflow.runners.spark.expressions.spark_types import carrier, nullable, spark_schema
from dataflow.runners.spark.lowering.inputs import Inputs, NotLowered
from dataflow.runners.spark.session import column, functions

__all__ = ["event_times", "filtered", "numbered", "projected", "read", "union"]

_SPECIAL: Final = frozenset("{}[]*?\\:")
"""Characters that Spark takes for a pattern, or for the end of a scheme."""
_SOURCE: Final = 55
"""The bits of the place of a row in its source: Spark numbers rows with 33, and partitions with those above."""
_OPTIONS: Final = {
    "recursiveFileLookup": "true",  # else a folder such as year=2013 gives the rows a column
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "mergeSchema": "false",
    "datetimeRebaseMode": "CORRECTED",
    "pathGlobFilter": "*",
}
"""Options by which Spark reads the files as they are, whatever the settings of the session."""


def read(inputs: Inputs) -> Any:
    """Lower a source of Parquet files, whose columns have exactly Spark's types."""
    assert isinstance(inputs.node.spec, Read), inputs.where
    files, schema = inputs.node.spec.source.parquet_files(), inputs.node.schema
    if isinstance(files, str):
        raise NotLowered(files)
    for field in schema:
        if not _is_exact(field.type):
            raise NotLowered(f"Spark would read column {field.name!r}, {field.type}, as another type")
    if len({name.lower() for name in files.names}) < len(files.names):
        raise NotLowered("the files have columns whose names differ only in case")
    for path in files.paths:
        name = path.rpartition("/")[2]
        if name[0] in "_." or _SPECIAL & set(path):
            raise NotLowered(f"Spark would not read a file with the name {path!r}")
    if not files.paths:
        return inputs.session.range(0).select(*(functions().lit(None).alias(name) for name in schema.names))
    reader = inputs.session.read.schema(spark_schema(nullable(schema))).options(**_OPTIONS)
    return reader.parquet(*(f"file:{path}" for path in files.paths))


def numbered(inputs: Inputs) -> Any:
    """Lower the numbers of the rows of a DataFrame: in the order of its partitions, after those of earlier sources."""
    spec, f = inputs.node.spec, functions()
    assert isinstance(spec, NumberRows), inputs.where
    place = f.lit(spec.source << _SOURCE).cast("bigint") + f.monotonically_increasing_id()
    return inputs.frames[0].select("*", place.alias(ORDER))


def _is_exact(dtype: pa.DataType) -> bool:
    """Return whether Spark reads a column of this type, as pyarrow writes it, with the values that pyarrow reads."""
    if types.is_dictionary(dtype):
        return bool(types.is_string(dtype.value_type) or types.is_large_string(dtype.value_type))
    if types.is_timestamp(dtype):
        return dtype.unit in ("us", "ms")
    if types.is_large_string(dtype) or types.is_large_binary(dtype):
        return True
    return carrier(dtype) == dtype and not (types.is_nested(dtype) or types.is_null(dtype) or types.is_duration(dtype))


def filtered(inputs: Inputs) -> Any:
    """Lower a filter."""
    assert isinstance(inputs.node.spec, Filter), inputs.where
    return inputs.frames[0].where(column_of(inputs.node.spec.predicate, inputs.schemas[0], inputs.where))


def projected(inputs: Inputs) -> Any:
    """Lower expressions, each of which gives a column."""
    assert isinstance(inputs.node.spec, Project), inputs.where
    columns = [
        column_of(expression, inputs.schemas[0], inputs.where).alias(expression.name)
        for expression in inputs.node.spec.columns
    ]
    return inputs.frames[0].select(*columns)


def event_times(inputs: Inputs) -> Any:
    """Lower the check of event times, if a row without a time is an error."""
    spec = inputs.node.spec
    assert isinstance(spec, EventTimes), inputs.where
    if spec.on_error is not OnError.FAIL:
        raise NotLowered("it sets aside the rows that have no event time")
    reason = (
        f"the event time {spec.column!r} is null; filter such rows out before, or give with_watermark(on_error='skip') "
        f"or 'side' (in operator {inputs.where!r})"
    )
    known = column(spec.column).isNotNull()
    return inputs.frames[0].where(known | fail(ValueError, reason).cast("boolean"))


def union(inputs: Inputs) -> Any:
    """Lower a union, whose rows have the columns of the output in its order."""
    names = inputs.node.schema.names
    for schema in inputs.schemas:
        for field in inputs.node.schema:
            if carrier(schema.field(field.name).type) != carrier(field.type):
                raise NotLowered(f"column {field.name!r} has another type in one of the inputs")
    parts = [frame.select(*map(column, names)) for frame in inputs.frames]
    return reduce(lambda one, other: one.unionAll(other), parts)
