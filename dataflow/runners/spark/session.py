"""The only door to pyspark: it is imported here, inside functions, and a missing one is explained."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dataflow.errors import ConfigurationError
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.spark.quiet_logs import hushed

__all__ = [
    "active_session",
    "check_installed",
    "check_settings",
    "functions",
    "missing",
    "parallelism_of",
    "pyspark",
    "python_for_workers",
    "session_for",
]


def pyspark(module: str = "pyspark") -> Any:
    """A module of pyspark, untyped as pyspark's columns are here.

    Raises: ConfigurationError where pyspark is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise ConfigurationError(
            "the Spark runner needs pyspark 4.3 or newer, and Java 17 or newer: pip install 'barrierflow[spark]'"
        ) from error


def functions() -> Any:
    """The module ``pyspark.sql.functions``."""
    return pyspark("pyspark.sql.functions")


def check_settings() -> None:
    """Refuse a session in which integer overflow would wrap: the lowering relies on Spark's ANSI arithmetic.

    Every other setting, the session's time zone included, may be what it likes.

    Raises: ConfigurationError where no session is active, or ANSI mode is off.
    """
    session = pyspark("pyspark.sql").SparkSession.getActiveSession()
    if session is None:
        raise ConfigurationError(
            "expected an active SparkSession, found none: SparkSession.builder.getOrCreate() first"
        )
    if str(session.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        raise ConfigurationError(
            "expected spark.sql.ansi.enabled=true (Spark's default), found false: integers would wrap silently; "
            "session.conf.set('spark.sql.ansi.enabled', True)"
        )


_LONG: Final = 0.1
"""Seconds between two looks at signals."""
_STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_ROCKS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SPARK, _JAVA = (4, 3), 17
_INSTALL: Final = "apt-get install openjdk-17-jre-headless"

_MASTER: Final = "local[*]"
_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?")
_OURS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.worker.reuse": "true",
    _STATE_STORE: _ROCKS,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _FORMAT: "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""Settings of a session that we start, each of which can be overridden: state that does not fit into memory, written as
what changed in a micro-batch, in files whose names no other attempt at it takes; no micro-batches without rows; no
servers but on this machine."""


def missing() -> str | None:
    """What to install before Spark runs here; None: nothing."""
    for module in ("pyspark", "pandas", "google.protobuf"):  # pyspark asks for these when it runs, and brings neither
        if not _is_there(module):
            return f"{module} is missing: pip install 'barrierflow[spark]'"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java" if home is None else str(Path(home, "bin", "java")))
    if java is None and home is not None:
        return f"JAVA_HOME={home} has no bin/java: unset it, or set it to a Java {_JAVA} or newer"
    if java is None:
        return f"Java is missing, Spark needs {_JAVA} or newer: {_INSTALL}"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', told)
    if found is None or int(found[1]) < _JAVA:
        was = (told.splitlines() or ["nothing"])[0]
        return f"Java {_JAVA} or newer is missing (found {was} at {java}): {_INSTALL}"
    return None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def check_installed() -> None:
    """Raises: ConfigurationError where Spark cannot run here, with what to install."""
    if (problem := missing()) is not None:
        raise ConfigurationError(f"the Spark runner cannot start: {problem}")


def active_session() -> Any:
    """Return the session that is active in this process, or None. Imports no pyspark, and starts no JVM."""
    sql = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def parallelism_of(conf: Mapping[str, str]) -> int:
    """Return the parallelism of a session that a run would start with ``conf``; of a cluster it is not known.

    >>> parallelism_of({"spark.master": "local[3, 2]"}), parallelism_of({"spark.default.parallelism": "5"})
    (3, 5)
    >>> parallelism_of({}) == (os.cpu_count() or 1)
    True
    """
    if (given := str(conf.get("spark.default.parallelism", ""))).isdecimal():
        return int(given)
    local = _LOCAL.fullmatch(conf.get("spark.master", _MASTER))
    return int(local[1] or 1) if local and local[1] != "*" else os.cpu_count() or 1


def session_for(given: Any, conf: Mapping[str, str]) -> Any:
    """The session that a job runs in: the one ``given``, else the active one, else a new one on this machine.

    One that is there is used as it is. Raises: ConfigurationError where it cannot run our jobs, with what to change;
    where Spark cannot run at all, with what to install.
    """
    check_installed()
    sql = pyspark("pyspark.sql")
    session = given or sql.SparkSession.getActiveSession()
    if session is not None and conf:
        raise ConfigurationError("SparkRunner(conf=) is for a session that it starts, and there is one: set it there")
    session = session or _started(sql.SparkSession, conf)
    _check_kind(session)
    version = tuple(int(part) for part in session.version.split(".")[:2])
    if version < _SPARK:
        raise ConfigurationError(
            f"expected Spark {_SPARK[0]}.{_SPARK[1]} or newer, found {session.version}: upgrade it"
        )
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigurationError(
            "expected a session without speculation, found spark.speculation=true: of two attempts at reading the same "
            "rows one would be thrown away; start it with spark.speculation=false"
        )
    if session.conf.get(_STATE_STORE, "") != _ROCKS:
        raise ConfigurationError(
            "expected a session that keeps state in RocksDB, which transformWithState needs: "
            f'session.conf.set("{_STATE_STORE}", "{_ROCKS}")'
        )
    return session


def _call_apart(start: Callable[[], Any]) -> None:
    """Call ``start``, quietly, on a thread of its own, so that Ctrl-C need not wait for it.

    In the main thread PySpark would also put a handler of SIGINT in place, which calls the JVM wherever it strikes.
    """
    done = Future[None]()

    def call() -> None:
        try:
            start()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    with CtrlC() as pressed, hushed():
        threading.Thread(target=call, name="spark-session", daemon=True).start()
        while not wait([done], _LONG).done:
            if pressed.count:
                raise KeyboardInterrupt
    done.result()


def _check_kind(session: Any) -> None:
    """Refuse what is no session of a Spark that this process drives."""
    kind = type(session)
    if kind.__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "expected a classic SparkSession, found one of Spark Connect: sinks and commits need a driver in this "
            "process; unset SPARK_REMOTE, and build the session with .master(...)"
        )
    if not isinstance(session, pyspark("pyspark.sql").SparkSession):
        raise ConfigurationError(f"SparkRunner(session) takes a SparkSession, got {kind.__name__}: {session!r}")
    java = session.sparkContext._jsc
    if java is None or java.sc().isStopped():
        raise ConfigurationError(
            "expected a SparkSession that runs, found one that was stopped: build a new one, or give SparkRunner none"
        )


def _started(session: Any, conf: Mapping[str, str]) -> Any:
    builder = session.builder.appName("barrierflow")
    settings = {"spark.master": _MASTER, **_OURS, **conf}
    for key, value in settings.items():
        builder = builder.config(key, value)
    with python_for_workers(settings["spark.master"]):
        _call_apart(builder.getOrCreate)
    made = builder.getOrCreate()  # the same one, now also the active one of this thread
    if "spark.sql.shuffle.partitions" not in conf:
        made.conf.set("spark.sql.shuffle.partitions", str(made.sparkContext.defaultParallelism))
    return made


# INTERPRETER
"""The Python that Spark's workers run: the one of this process, which finds pyspark where its bytecode is.

Spark puts an archive, ``pyspark.zip``, in front of everything that its Python processes import. An archive keeps no
bytecode, so each of them compiles what it imports of pyspark anew, which takes 0.9 s of processor time; a query on
Python sources and state starts a handful of processes, one more for every operator with state. On this machine they can
do without: the installed package next to the archive is the same, and is compiled once.
"""
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
