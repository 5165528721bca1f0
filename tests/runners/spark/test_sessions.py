"""What is missing before Spark runs, and sessions that are not up to it: a sentence each, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dataflow.errors import ConfigurationError
from dataflow.runners.spark.session import missing, session_for

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
STOPPED = """
from pyspark.sql import SparkSession
from dataflow.runners.spark.session import session_for
session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session.stop()
try:
    session_for(session, {})
except Exception as error:
    print(error)
"""


def java(directory: Path, version: str) -> Path:
    """A directory for JAVA_HOME, with a Java that says it is of ``version``."""
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return directory


def test_a_missing_java_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing() == "Java is missing, Spark needs 17 or newer: apt-get install openjdk-17-jre-headless"


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert missing() == f"JAVA_HOME={tmp_path} has no bin/java: unset it, or set it to a Java 17 or newer"


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_a_java_that_is_too_old_is_told_with_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, version)))
    with pytest.raises(ConfigurationError, match=f'Java 17 or newer is missing .found openjdk version "{version}" at'):
        session_for(None, {})


@pytest.mark.parametrize("module", ["pyspark", "pandas", "google"])
def test_a_missing_package_is_named_with_what_installs_it(module: str) -> None:
    script = f"import sys; sys.modules[{module!r}] = None\nfrom dataflow.runners.spark import session as s"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}; print(s.missing())"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(module)
    assert done.stdout.endswith("is missing: pip install 'barrierflow[spark]'\n")


@pytest.fixture
def other(spark: Any) -> Any:
    """A second session of the same Spark, with settings of its own."""
    return spark.newSession()


def test_a_session_without_rocksdb_is_told_how_to_have_it(other: Any) -> None:
    other.conf.unset(STATE_STORE)
    other.conf.set(STATE_STORE, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    with pytest.raises(
        ConfigurationError, match=r"stores state in RocksDB.*session.conf.set\(.*RocksDBStateStoreProvider"
    ):
        session_for(other, {})


def test_a_session_of_spark_connect_is_refused(spark: Any) -> None:
    remote = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})()
    with pytest.raises(ConfigurationError, match=r"classic SparkSession, found one of Spark Connect.*SPARK_REMOTE"):
        session_for(remote, {})


def test_what_is_no_session_is_refused(spark: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"takes a SparkSession, got SparkContext"):
        session_for(spark.sparkContext, {})


@pytest.mark.soak
def test_a_session_that_was_stopped_is_told(spark: Any) -> None:
    done = subprocess.run([sys.executable, "-c", STOPPED], capture_output=True, text=True, check=True)
    assert "found one that was stopped: build a new one" in done.stdout
