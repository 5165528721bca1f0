"""What the user reads of an error of Spark's own. No Spark is needed."""

from __future__ import annotations

from dataflow.runners.spark.failing import failed

TOLD = """An error occurred while calling o124.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
\tat java.base/jdk.internal.reflect.NativeMethodAccessorImpl.invoke0(Native Method)
\t... 34 more
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.abort(DAGScheduler.scala:1)
JVM stacktrace: many more lines"""


def test_causes_are_told_and_the_frames_between_them_are_not() -> None:
    assert [line.partition(" ")[0] for line in str(failed(RuntimeError(TOLD))).splitlines()] == ["Spark", ":", "Caused"]
