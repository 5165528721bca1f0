"""The process that Spark forks the Python workers of tests from. It has imported the library already.

Each query starts several workers, and each of them would take longer to import the library than to run its few rows.
"""

from __future__ import annotations

import threading
from importlib import import_module

from pyspark.daemon import manager

IMPORTED = (
    "pandas",
    "pyspark.worker",
    "dataflow.runners.spark.keyed_tasks",
    "dataflow.runners.spark.routing",
    "operators.aggregation.aggregate",
    "operators.windows.aggregate",
)

if __name__ == "__main__":
    for name in IMPORTED:
        import_module(name)
    assert threading.active_count() == 1, f"a fork would lose threads: {threading.enumerate()}"
    manager()
