"""The only door to pyspark: it is imported here, inside functions, and a missing one is explained."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from dataflow.errors import ConfigurationError

__all__ = ["check_settings", "functions", "pyspark", "session_for"]


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
            "the Spark runner needs pyspark 4.0 or newer, and Java 17 or newer: pip install 'barrierflow[spark]'"
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


_STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def session_for(given: Any, conf: Mapping[str, str]) -> Any:
    """The session that a job runs in: the one ``given``, else the active one, else a new one on this machine.

    Raises: ConfigurationError where what a session must have cannot be set.
    """
    sql = pyspark("pyspark.sql")
    session = given or sql.SparkSession.getActiveSession() or _started(sql.SparkSession, conf)
    if session.conf.get(_STATE_STORE, "") != _ROCKS:
        session.conf.set(_STATE_STORE, _ROCKS)  # transformWithState works with no other
    return session


def _started(session: Any, conf: Mapping[str, str]) -> Any:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        _STATE_STORE: _ROCKS,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        **conf,
    }
    builder = session.builder.master("local[*]").appName("barrierflow")
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.conf.set("spark.sql.shuffle.partitions", str(made.sparkContext.defaultParallelism))
    return made
