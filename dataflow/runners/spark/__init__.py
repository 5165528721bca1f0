"""Pipelines on Spark: the runner, which users import as ``dataflow.SparkRunner``, and expressions as Spark columns.

Expressions are lowered to ``pyspark.sql.Column`` with the local engine's semantics. An expression that Spark cannot
compute exactly as ``dataflow.expressions`` defines it raises ``UnsupportedOnRunner`` before anything runs. pyspark is
an optional extra, imported where it is first needed: ``pip install 'barrierflow[spark]'``.
"""

from dataflow.runners.spark.expressions.columns import to_column
from dataflow.runners.spark.expressions.run_time_errors import translated
from dataflow.runners.spark.expressions.spark_types import carrier, spark_schema, spark_type

__all__ = ["carrier", "spark_schema", "spark_type", "to_column", "translated"]
