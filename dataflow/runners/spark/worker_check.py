"""A check, before a job starts, that Spark's workers run this Python and have this package.

Without it a job would fail in its first micro-batch, after ten seconds, with a message that names neither of them.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from dataflow.errors import ConfigurationError
from dataflow.runners.spark.placement import Placement, SparkPlan
from dataflow.runners.spark.session import runs_this_python
from dataflow.runners.spark.session_kinds import SPREAD_ROWS, is_connect
from dataflow.runners.spark.user_errors import spark_failure

__all__ = ["check_workers"]

Found = tuple[str, str, str]
"""The version of Python, the version of the package ("" if it is missing), and the path of Python."""
_PACKAGE: Final = __name__.partition(".")[0]
_OTHER: Final = re.compile(r"\[PYTHON_VERSION_MISMATCH\] Python in worker has different version: ([\d.]+)")
_checked: Final = set[str]()
"""The Spark applications whose workers were found to be right."""


def check_workers(session: Any, spark_plan: SparkPlan) -> None:
    """Ask every core once what it runs, unless no part of ``spark_plan`` runs in workers. Once for each application.

    Raises: ConfigurationError, with what was found and what to set.
    """
    in_workers = any(place is not Placement.DRIVER for place in spark_plan.placements.values())
    remote = is_connect(session)
    application = session.session_id if remote else session.sparkContext.applicationId
    if not in_workers or application in _checked or (not remote and runs_this_python(session.sparkContext)):
        return
    program = "the server's Python" if remote else session.sparkContext.pythonExec
    try:
        runs = _ask_by_frame(session) if remote else _ask_by_rdd(session.sparkContext)
    except Exception as error:
        failure = spark_failure(error)
        other = _OTHER.search(str(failure))
        first = str(failure).partition("\n")[0]
        found = f"Python {other[1]}" if other else f"no answer from {program} ({first})"
        raise ConfigurationError(_problem(found)) from failure
    others = [each for each in sorted(runs) if each[:2] != _this()]
    if others:
        version, package, program = others[0]
        has = f"barrierflow {package}" if package else "without barrierflow"
        raise ConfigurationError(_problem(f"Python {version}, {has}, at {program}"))
    _checked.add(application)


def _ask_by_rdd(context: Any) -> set[Found]:
    cores = max(1, context.defaultParallelism)
    return {*context.parallelize(range(cores), cores).map(_probe()).collect()}


def _ask_by_frame(session: Any) -> set[Found]:
    import pyarrow as pa

    probe = _probe()

    def asked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            version, package, program = probe(0)
            yield pa.record_batch({"version": [version], "package": [package], "program": [program]})

    asked.__module__ = "__main__"  # pickled by value
    rows = session.range(SPREAD_ROWS).mapInArrow(asked, "version string, package string, program string").toArrow()
    return {tuple(row.values()) for row in rows.to_pylist()}


def _this() -> tuple[str, str]:
    return ".".join(platform.python_version_tuple()[:2]), sys.modules[_PACKAGE].__version__


def _probe() -> Any:
    """Return a function that is pickled by value, since workers may lack this module."""

    name = _PACKAGE

    def probe(_: int) -> tuple[str, str, str]:
        import importlib
        import platform
        import sys

        try:
            package = importlib.import_module(name).__version__
        except ImportError:
            package = ""
        return ".".join(platform.python_version_tuple()[:2]), package, sys.executable

    return probe


def _problem(found: str) -> str:
    version, package = _this()
    return (
        f"expected workers of Spark that run Python {version} with barrierflow {package}, as this process does, found "
        f"{found}: before the session is built, set the environment variable PYSPARK_PYTHON (spark-submit: --conf "
        f"spark.pyspark.python) to a Python that has the package on every node; here that is {sys.executable}"
    )
