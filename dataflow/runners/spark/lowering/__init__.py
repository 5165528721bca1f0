"""Operators of a batch as operators of Spark's: the expressions and aggregates of a graph become a plan of DataFrames.

``lower`` makes the DataFrame of an operator from those of its inputs. ``reason_against`` says why it cannot. The types
of the columns are those of ``spark_schema``, which hold every value of the operator's own types.
"""

from dataflow.runners.spark.lowering.rules import lower, reason_against

__all__ = ["lower", "reason_against"]
