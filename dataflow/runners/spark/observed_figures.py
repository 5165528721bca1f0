"""Figures of each micro-batch for dashboards, in ``observedMetrics`` of Spark's own progress.

Any ``StreamingQueryListener`` of the session gets them, and ``job.query.lastProgress`` has them. They are sums over the
reports that tasks send to the driver.
"""

from __future__ import annotations

from typing import Any, Final

from dataflow.runners.spark.envelopes import REPORT
from dataflow.runners.spark.session import functions

__all__ = ["observed"]

_NAME: Final = "barrierflow"
"""The name of the figures in ``observedMetrics``."""


def observed(frame: Any) -> Any:
    """Return a DataFrame of envelopes, all those for the driver, whose reports are summed on the way."""
    f = functions()
    report = f.when(frame["link"] == REPORT, frame["payload"].cast("string"))

    def each(name: str) -> Any:
        return f.get_json_object(report, f"$.{name}").cast("long")

    return frame.observe(
        _NAME,
        f.coalesce(f.sum(each("read")), f.lit(0)).alias("rowsIn"),
        f.coalesce(f.sum(each("written")), f.lit(0)).alias("rowsOut"),
        f.coalesce(f.sum(each("late")), f.lit(0)).alias("rowsLate"),
        f.coalesce(f.sum(each("state_rows")), f.lit(0)).alias("stateRows"),
        f.coalesce(f.sum(each("state")), f.lit(0)).alias("stateBytes"),
        f.floor(f.max(each("lag")) / 1_000).alias("watermarkLagMs"),
    )
