"""Old path of ``dataflow.snapshots.traces``."""

from dataflow.snapshots.traces import (
    Event,
    Happening,
    MarkerReceived,
    MarkerSent,
    MessageId,
    Recorded,
    ReportReceived,
    ReportSent,
    Trace,
)

__all__ = [
    "Event",
    "Happening",
    "MarkerReceived",
    "MarkerSent",
    "MessageId",
    "Recorded",
    "ReportReceived",
    "ReportSent",
    "Trace",
]
