"""Pipelines on Spark: the runner, which users have as ``dataflow.SparkRunner``, and all that is behind it.

From here come expressions, lowered to ``pyspark.sql.Column`` with the local engine's semantics: what Spark cannot
compute exactly as ``dataflow.expressions`` defines it is refused with ``UnsupportedOnRunner`` before anything runs.
pyspark is an optional extra, imported where it is first needed: ``pip install 'barrierflow[spark]'``.
"""

from dataflow.runners.spark.expressions.columns import to_column
from dataflow.runners.spark.expressions.run_time_errors import translated
from dataflow.runners.spark.expressions.spark_types import carrier, spark_schema, spark_type

__all__ = ["carrier", "spark_schema", "spark_type", "to_column", "translated"]
