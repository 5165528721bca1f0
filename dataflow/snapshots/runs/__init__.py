"""Ways to run a ``ProcessGraph``, all of them on one ``Host`` a process.

``System`` by hand, ``Simulation`` from a seed, ``explore`` in every possible order, ``Threads`` with a thread for each
process; ``ObservedSystem`` and ``ObservedThreads`` take snapshots with an observer in the place of markers. ``detect``
takes snapshots of a run until a predicate holds, ``check`` holds a snapshot against the run in which it was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataflow.registry import offered

if TYPE_CHECKING:
    from dataflow.snapshots.runs.detection import Detection, detect
    from dataflow.snapshots.runs.exploration import Exploration, explore
    from dataflow.snapshots.runs.observed_system import ObservedSystem
    from dataflow.snapshots.runs.observed_threads import ObservedThreads
    from dataflow.snapshots.runs.simulation import Simulation
    from dataflow.snapshots.runs.snapshot_check import check
    from dataflow.snapshots.runs.system import Marker, System
    from dataflow.snapshots.runs.threads import Threads

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

_HOMES = {
    "System": "dataflow.snapshots.runs.system",
    "Marker": "dataflow.snapshots.runs.system",
    "ObservedSystem": "dataflow.snapshots.runs.observed_system",
    "Simulation": "dataflow.snapshots.runs.simulation",
    "Exploration": "dataflow.snapshots.runs.exploration",
    "explore": "dataflow.snapshots.runs.exploration",
    "Threads": "dataflow.snapshots.runs.threads",
    "ObservedThreads": "dataflow.snapshots.runs.observed_threads",
    "Detection": "dataflow.snapshots.runs.detection",
    "detect": "dataflow.snapshots.runs.detection",
    "check": "dataflow.snapshots.runs.snapshot_check",
}


def __getattr__(name: str) -> Any:
    return offered(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
