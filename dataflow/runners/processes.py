"""Old import path of ``dataflow.snapshots.runs``, kept because the guides named it; it only re-exports."""

from dataflow.snapshots.runs import (
    Detection,
    Exploration,
    Marker,
    ObservedSystem,
    ObservedThreads,
    Simulation,
    System,
    Threads,
    check,
    detect,
    explore,
)

__all__ = [
    "System",
    "ObservedSystem",
    "Marker",
    "Simulation",
    "Exploration",
    "explore",
    "Threads",
    "ObservedThreads",
    "Detection",
    "detect",
    "check",
]
