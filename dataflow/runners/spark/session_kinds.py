"""The two kinds of sessions: classic ones, whose driver is this process, and clients of a Spark Connect server.

A batch needs little that differs between them. A stream needs its driver in this process: sinks and commits run in
``foreachBatch`` here, between what Spark logs and counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

__all__ = ["SPREAD_ROWS", "SparkJobs", "cores_of", "is_connect", "is_stopped", "same_session", "source_text"]

SPREAD_ROWS: Final = 4_096
"""The rows of a DataFrame of which every core gets some."""


def is_connect(session: Any) -> bool:
    """Return whether a session, or anything else of pyspark, belongs to a client of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def cores_of(session: Any) -> int:
    """Return Spark's default parallelism. A client of Spark Connect asks with a small query."""
    if not is_connect(session):
        return int(session.sparkContext.defaultParallelism)
    from pyspark.sql.connect.functions import spark_partition_id

    return int(session.range(SPREAD_ROWS).select(spark_partition_id().alias("number")).distinct().count())


def same_session(one: Any, other: Any) -> bool:
    """Return whether two objects of pyspark are the same session."""
    if is_connect(one) or is_connect(other):
        return is_connect(one) and is_connect(other) and bool(one.session_id == other.session_id)
    return bool(one._jsparkSession.equals(other._jsparkSession))


def is_stopped(session: Any) -> bool:
    """Return whether a session was stopped."""
    if is_connect(session):
        return bool(session.is_stopped)
    java = session.sparkContext._jsc
    return java is None or bool(java.sc().isStopped())


def source_text(frame: Any) -> str:
    """Return Spark's description of what a DataFrame reads; a client of Spark Connect does not know."""
    if is_connect(frame):
        return "a DataFrame of Spark Connect"
    leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
    return ", ".join([str(leaves.apply(number).toString()) for number in range(leaves.size())])


class SparkJobs:
    """The jobs that Spark runs for a batch, together under the name ``group``."""

    def __init__(self, session: Any, group: str) -> None:
        self._session, self._group = session, group

    @contextmanager
    def running(self, title: str) -> Iterator[None]:
        """Let what this thread asks of Spark belong to the group."""
        if not is_connect(self._session):
            self._session.sparkContext.setJobGroup(self._group, title)
            yield
            return
        self._session.addTag(self._group)
        try:
            yield
        finally:
            self._session.removeTag(self._group)

    def cancel(self) -> None:
        """Cancel all that run now."""
        if is_connect(self._session):
            self._session.interruptTag(self._group)
        else:
            self._session.sparkContext.cancelJobGroup(self._group)

    def tasks(self) -> tuple[int, int] | None:
        """Return how many tasks are done, and how many are known; None: a client of Spark Connect does not know."""
        if is_connect(self._session):
            return None
        tracker = self._session.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = {number for job in jobs if job is not None for number in job.stageIds}
        known = [stage for number in stages if (stage := tracker.getStageInfo(number)) is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)
