"""One Spark session for all tests, and its answers in a form that compares exactly with the local engine's."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import types

from dataflow.expressions import Expr
from dataflow.runners.spark import carrier, spark_schema, to_column, translated
from dataflow.runners.spark.session import python_for_workers

__all__ = ["failure", "frame", "on_spark", "plain", "session"]

ROOT = Path(__file__).parents[3]
ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true"


def session(directory: Path) -> Any:
    """A quiet local session without network or UI, in a time zone with a summer time that no expression may notice."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_START,
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.python.daemon.module": "tests.runners.spark.warm_daemon",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": ROCKS,
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    interrupts = signal.getsignal(signal.SIGINT)
    with python_for_workers("local[2]"):
        made = builder.getOrCreate()
    signal.signal(signal.SIGINT, interrupts)  # Spark puts its own in place, which other tests must not meet
    made.sparkContext.setLogLevel("OFF")
    return made


def frame(spark: Any, table: pa.Table) -> Any:
    """The DataFrame that carries ``table``, in one partition, so that rows keep their order."""
    carried = pa.table([column.cast(carrier(column.type)) for column in table.columns], table.schema.names)
    return spark.createDataFrame(carried, schema=spark_schema(table.schema)).coalesce(1)


def on_spark(spark: Any, table: pa.Table, exprs: Sequence[Expr]) -> list[pa.Array]:
    """The values of each expression over ``table``, all in one job, back in the types the local engine gives them."""
    columns = [to_column(expr, table.schema).alias(f"c{i}") for i, expr in enumerate(exprs)]
    answer = frame(spark, table).select(*columns).toArrow()
    made = [answer.column(i).combine_chunks() for i in range(len(exprs))]
    wanted = [expr.dtype(table.schema) for expr in exprs]
    odd = [(expr, m.type) for expr, m, w in zip(exprs, made, wanted, strict=True) if not carries(m.type, w)]
    assert not odd, f"types that are not those of spark_type: {odd}"
    return [array.cast(dtype) for array, dtype in zip(made, wanted, strict=True)]


def failure(spark: Any, table: pa.Table, expr: Expr) -> Exception | None:
    """What the local engine would raise in the place of what Spark raises."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        on_spark(spark, table, [expr])
    return translated(caught.value)


def carries(found: pa.DataType, dtype: pa.DataType) -> bool:
    expected = carrier(dtype)
    if types.is_list(expected):
        return types.is_list(found) and carries(found.value_type, expected.value_type)
    if types.is_timestamp(expected) and expected.tz is not None:
        return types.is_timestamp(found) and found.unit == "us" and found.tz is not None
    return found == expected


def plain(values: pa.Array) -> list[str]:
    """The values so that equal texts mean equal to the last bit, NaN and the sign of zero included."""
    if types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if types.is_temporal(values.type):
        values = values.cast(pa.int32() if types.is_date32(values.type) else pa.int64())
    return [repr(value) for value in values.to_pylist()]
