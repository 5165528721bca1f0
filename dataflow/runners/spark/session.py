"""Spark sessions, and the import of pyspark: found or started, checked, and quiet.

Only this module imports pyspark, inside of functions, and explains what to install if it is missing.

The workers of a session that we start run this process's Python, without Spark's archive ``pyspark.zip``. Spark puts
the archive first on the path of its Python processes. An archive has no bytecode, so each process would compile
pyspark again, which takes 0.9 s of CPU; a query on Python sources and state starts a handful of processes, one more
for each operator with state. On this machine the installed package beside the archive is the same, and compiled once.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dataflow.errors import ConfigurationError
from dataflow.runners.interrupts import CtrlC
from dataflow.runners.spark.quiet_logs import suppress_noise
from dataflow.runners.spark.session_kinds import is_connect, is_stopped

__all__ = [
    "active_session",
    "check_installed",
    "check_kind",
    "check_settings",
    "column",
    "functions",
    "map_in_arrow",
    "missing",
    "parallelism_of",
    "partitions_of",
    "pyspark",
    "python_for_workers",
    "session_for",
    "without_spark",
]


_in_its_place: ContextVar[Any] = ContextVar("in place of pyspark", default=None)


@contextmanager
def without_spark(stand_in: Any) -> Iterator[None]:
    """Give ``stand_in`` for each module of pyspark, in this thread, so that columns can be made without a session."""
    token = _in_its_place.set(stand_in)
    try:
        yield
    finally:
        _in_its_place.reset(token)


def pyspark(module: str = "pyspark") -> Any:
    """Return a module of pyspark, untyped. Raises: ConfigurationError if pyspark is not installed."""
    if (stand_in := _in_its_place.get()) is not None:
        return stand_in
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise ConfigurationError(
            "the Spark runner needs pyspark 4.3 or newer, and Java 17 or newer: pip install 'barrierflow[spark]'"
        ) from error


def functions() -> Any:
    """Return the module ``pyspark.sql.functions``."""
    return pyspark("pyspark.sql.functions")


def column(name: str) -> Any:
    """Return the column with this name, whatever characters it has."""
    return functions().col("`" + name.replace("`", "``") + "`")


def map_in_arrow(frame: Any, function: Callable[[Iterable[Any]], Iterator[Any]], schema: str | Any) -> Any:
    """Return ``frame.mapInArrow(function, schema)``, whatever characters the names of its columns have.

    PySpark looks up the columns by name, and takes a dot for a field of a struct. So they are numbered on the way.
    """
    names = frame.columns

    def named(batches: Iterable[Any]) -> Iterator[Any]:
        return function(batch.rename_columns(names) for batch in batches)

    return frame.toDF(*[f"c{number}" for number in range(len(names))]).mapInArrow(named, schema)


def check_settings(given: Any = None) -> None:
    """Check the setting that expressions rely on: Spark's ANSI mode, without which integer overflow wraps.

    Values depend on no other setting, such as the session's time zone. ``given``: the session; None: the active one.

    Raises: ConfigurationError if no session is active, or ANSI mode is off.
    """
    session = given or pyspark("pyspark.sql").SparkSession.getActiveSession()
    if session is None:
        raise ConfigurationError(
            "expected an active SparkSession, found none: call SparkSession.builder.getOrCreate() first"
        )
    if str(session.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        raise ConfigurationError(
            "expected spark.sql.ansi.enabled=true (Spark's default), found false: integers would wrap silently; "
            "call session.conf.set('spark.sql.ansi.enabled', True)"
        )


_LONG: Final = 0.1
"""Seconds between two checks for signals."""
_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_ROCKS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_SPARK, _JAVA = (4, 3), 17
_WORKER_PYTHON: Final = "PYSPARK_PYTHON"
_SCRIPT: Final = Path(__file__).with_name("worker_python")
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
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    _STATE_STORE: _ROCKS,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    _FORMAT: "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""Settings of a session that we start, each of which can be overridden. State may exceed memory; each micro-batch
writes the changes of state, in files whose names differ from other attempts at it. There are no micro-batches without
rows, and servers listen on this machine only. Spark has Python processes for each set of environment variables, and a
simplified traceback is one of these, which tasks of sources and keyed tasks differ in; without it they share theirs."""


def missing() -> str | None:
    """Return what to install before Spark runs here; None: nothing is missing."""
    for module in ("pyspark", "pandas", "google.protobuf"):  # pyspark asks for these when it runs, and brings neither
        if not _is_there(module):
            return f"{module} is missing: pip install 'barrierflow[spark]'"
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which("java" if java_home is None else str(Path(java_home, "bin", "java")))
    if java is None and java_home is not None:
        return f"JAVA_HOME={java_home} has no bin/java: unset it, or set it to a Java {_JAVA} or newer"
    if java is None:
        return f"Java is missing, Spark needs {_JAVA} or newer: {_INSTALL}"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < _JAVA:
        was = (output.splitlines() or ["nothing"])[0]
        return f"Java {_JAVA} or newer is missing (found {was} at {java}): {_INSTALL}"
    return None


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False


def check_installed() -> None:
    """Raise ConfigurationError, which names what to install, if Spark cannot run here."""
    if (problem := missing()) is not None:
        raise ConfigurationError(f"the Spark runner cannot start: {problem}")


def runs_this_python(context: Any) -> bool:
    """Return whether the workers of a SparkContext are known to run this Python: they are started on this machine."""
    here = context.pythonExec in (sys.executable, str(_SCRIPT))
    return here and _LOCAL.match(context.master) is not None and not context.master.startswith("local-cluster")


def active_session() -> Any:
    """Return the session that is active in this process, or None. Neither imports pyspark nor starts a JVM."""
    sql = sys.modules.get("pyspark.sql")
    return None if sql is None else sql.SparkSession.getActiveSession()


def parallelism_of(conf: Mapping[str, str]) -> int:
    """Return the parallelism of the session that a run would start with ``conf``. For a cluster it is a guess.

    >>> parallelism_of({"spark.master": "local[3, 2]"}), parallelism_of({"spark.default.parallelism": "5"})
    (3, 5)
    >>> parallelism_of({}) == (os.cpu_count() or 1)
    True
    """
    if (given := str(conf.get("spark.default.parallelism", ""))).isdecimal():
        return int(given)
    local = _LOCAL.fullmatch(conf.get("spark.master", _MASTER))
    return int(local[1] or 1) if local and local[1] != "*" else os.cpu_count() or 1


def partitions_of(session: Any, conf: Mapping[str, str]) -> int:
    """Return the partitions of a shuffle in ``session``; None: in the one that a run would start with ``conf``.

    >>> partitions_of(None, {"spark.sql.shuffle.partitions": "7"}), partitions_of(None, {"spark.master": "local[3]"})
    (7, 3)
    """
    given = conf.get(_PARTITIONS) if session is None else session.conf.get(_PARTITIONS)
    return parallelism_of(conf) if given is None else int(given)


def session_for(given: Any, conf: Mapping[str, str], *, streams: bool = True) -> Any:
    """Return the session for a job: ``given``, else the active one, else a new one on this machine.

    An existing session is used as it is. ``streams``: whether the job is a stream, whose state Spark stores. A batch
    may also run in a session of Spark Connect.

    Raises: ConfigurationError if the session cannot run our jobs, with the setting to change; if Spark cannot run at
        all, with what to install.
    """
    if given is None or not is_connect(given):
        check_installed()
    sql = pyspark("pyspark.sql")
    session = given or sql.SparkSession.getActiveSession()
    if session is not None and conf:
        raise ConfigurationError(
            "SparkRunner(conf=) applies to a session that it starts, but a session exists: set conf there"
        )
    session = session or _started(sql.SparkSession, conf)
    check_kind(session, streams=streams)
    version = tuple(int(part) for part in session.version.split(".")[:2])
    if version < _SPARK:
        raise ConfigurationError(
            f"expected Spark {_SPARK[0]}.{_SPARK[1]} or newer, found {session.version}: upgrade it"
        )
    if str(session.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigurationError(
            "expected a session without speculation, found spark.speculation=true: two attempts would read the same "
            "rows at once; start the session with spark.speculation=false"
        )
    if streams and session.conf.get(_STATE_STORE, "") != _ROCKS:
        raise ConfigurationError(
            "expected a session that stores state in RocksDB, which transformWithState needs: call "
            f'session.conf.set("{_STATE_STORE}", "{_ROCKS}")'
        )
    return session


def _call_apart(start: Callable[[], Any]) -> None:
    """Call ``start``, without noise, on a thread of its own, so that Ctrl-C does not wait for it.

    In the main thread PySpark would also install a handler of SIGINT, which calls the JVM from wherever it interrupts.
    """
    done = Future[None]()

    def call() -> None:
        try:
            start()
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    with CtrlC() as pressed, suppress_noise():
        threading.Thread(target=call, name="spark-session", daemon=True).start()
        while not wait([done], _LONG).done:
            if pressed.count:
                raise KeyboardInterrupt
    done.result()


def check_kind(session: Any, *, streams: bool) -> None:
    """Raise ConfigurationError unless ``session`` is a running session; for a stream its driver is this process."""
    if streams and is_connect(session):
        raise ConfigurationError(
            "expected a classic SparkSession, found one of Spark Connect: the sinks and commits of a stream need a "
            "driver in this process; unset SPARK_REMOTE, and build the session with .master(...), or use "
            "run(execution='batch')"
        )
    if not is_connect(session) and not isinstance(session, pyspark("pyspark.sql").SparkSession):
        kind = type(session).__name__
        raise ConfigurationError(f"SparkRunner(session) takes a SparkSession, got {kind}: {session!r}")
    if is_stopped(session):
        raise ConfigurationError(
            "expected a running SparkSession, found one that was stopped: build a new one, or give SparkRunner none"
        )


def _started(session: Any, conf: Mapping[str, str]) -> Any:
    builder = session.builder.appName("barrierflow")
    settings = {"spark.master": _MASTER, **_OURS, **conf}
    for key, value in settings.items():
        builder = builder.config(key, value)
    with python_for_workers(settings["spark.master"]):
        _call_apart(builder.getOrCreate)
    started = builder.getOrCreate()  # the same session, which becomes the active one of this thread
    if _PARTITIONS not in conf:
        started.conf.set(_PARTITIONS, str(started.sparkContext.defaultParallelism))
    return started


@contextmanager
def python_for_workers(master: str) -> Iterator[None]:
    """Give a session started inside, on ``master``, workers of this Python, unless the environment sets another."""
    if _WORKER_PYTHON in os.environ:
        yield
        return
    environment = _worker_environment(master)
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            del os.environ[name]


def _worker_environment(master: str) -> Mapping[str, str]:
    """Return the environment variables for workers. On this machine, with the installed Spark, a script runs first.

    The script removes Spark's archives from the path.
    """
    ours = os.name == "posix" and master.startswith("local") and "SPARK_HOME" not in os.environ
    if ours and os.access(_SCRIPT, os.X_OK) and not _jvm_runs():
        return {_WORKER_PYTHON: str(_SCRIPT), "BARRIERFLOW_WORKER_PYTHON": sys.executable}
    return {_WORKER_PYTHON: sys.executable}


def _jvm_runs() -> bool:
    """Return whether a JVM exists, ours or ``spark-submit``'s, whose environment can no longer be changed."""
    return "PYSPARK_GATEWAY_PORT" in os.environ or import_module("pyspark").SparkContext._gateway is not None
