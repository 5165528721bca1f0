"""Whether what a user wrote can go to Spark's workers: asked operator by operator, before anything starts."""

from __future__ import annotations

from typing import Any

from dataflow.errors import UnsupportedOnRunner
from dataflow.runners.spark.placement import Stages
from dataflow.runners.spark.session import pyspark

__all__ = ["check_shippable"]


def check_shippable(stages: Stages) -> None:
    """Raise UnsupportedOnRunner where an operator cannot be pickled; sources, which may hold tables, are not tried."""
    pickle: Any = pyspark("pyspark.cloudpickle")
    for node in stages.for_workers(with_sources=False).plan.graph:
        try:
            pickle.dumps(node.spec)
        except Exception as error:
            raise UnsupportedOnRunner(
                f"operator {node.name!r}",
                "spark",
                f"it cannot be sent to other processes ({error})",
                "make locks, files and connections inside of its functions, or in open() of an operator",
            ) from error
