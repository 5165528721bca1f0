"""The Python that Spark's workers run: the one of this process, which finds pyspark where its bytecode is.

Spark puts an archive, ``pyspark.zip``, in front of everything that its Python processes import. An archive keeps no
bytecode, so each of them compiles what it imports of pyspark anew, which takes 0.9 s of processor time; a query on
Python sources and state starts a handful of processes, one more for every operator with state. On this machine they can
do without: the installed package next to the archive is the same, and is compiled once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Final

__all__ = ["python_for_workers"]

_CHOICE: Final = "PYSPARK_PYTHON"
_SCRIPT: Final = Path(__file__).with_name("worker_python")


@contextmanager
def python_for_workers(master: str) -> Iterator[None]:
    """A session started inside, on ``master``, has workers of this Python, unless the environment says which."""
    if _CHOICE in os.environ:
        yield
        return
    chosen = _chosen(master)
    os.environ.update(chosen)
    try:
        yield
    finally:
        for name in chosen:
            del os.environ[name]


def _chosen(master: str) -> Mapping[str, str]:
    """The script in front of it takes the archives off the path: only of workers on this machine, of our own Spark."""
    ours = os.name == "posix" and master.startswith("local") and "SPARK_HOME" not in os.environ
    if ours and os.access(_SCRIPT, os.X_OK) and not _jvm_runs():
        return {_CHOICE: str(_SCRIPT), "BARRIERFLOW_WORKER_PYTHON": sys.executable}
    return {_CHOICE: sys.executable}


def _jvm_runs() -> bool:
    """Whether there is a JVM already, ours or that of ``spark-submit``: its environment stays what it was."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or import_module("pyspark").SparkContext._gateway is not None
