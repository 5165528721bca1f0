"""Old import path of ``dataflow.snapshots.traces``, kept because the guides named it; it only re-exports."""

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
