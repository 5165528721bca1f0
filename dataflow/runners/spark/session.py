"""The only door to pyspark: it is imported here, inside functions, and a missing one is explained."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dataflow.errors import ConfigurationError

__all__ = ["check_settings", "functions", "pyspark"]


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
    if session.conf.get("spark.sql.ansi.enabled") != "true":
        raise ConfigurationError(
            "expected spark.sql.ansi.enabled=true (Spark's default), found false: integers would wrap silently; "
            "session.conf.set('spark.sql.ansi.enabled', True)"
        )
