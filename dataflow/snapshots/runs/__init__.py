"""Ways to run a ``ProcessGraph``, all of them on one ``Host`` a process.

``System`` by hand, ``Simulation`` from a seed, ``explore`` in every possible order, ``Threads`` with a thread for each
process; ``ObservedSystem`` and ``ObservedThreads`` take snapshots with an observer in the place of markers. ``detect``
takes snapshots of a run until a predicate holds, ``check`` holds a snapshot against the run in which it was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataflow.registry import offered

if TYPE_CHECKING:
    from dataflow.snapshots.runs.checking import check
    from dataflow.snapshots.runs.detecting import Detection, detect
    from dataflow.snapshots.runs.exhaustive import Exploration, explore
    from dataflow.snapshots.runs.observed_threads import ObservedThreads
    from dataflow.snapshots.runs.observing import ObservedSystem
    from dataflow.snapshots.runs.simulated import Simulation
    from dataflow.snapshots.runs.system import Marker, System
    from dataflow.snapshots.runs.threaded import Threads

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
    "ObservedSystem": "dataflow.snapshots.runs.observing",
    "Simulation": "dataflow.snapshots.runs.simulated",
    "Exploration": "dataflow.snapshots.runs.exhaustive",
    "explore": "dataflow.snapshots.runs.exhaustive",
    "Threads": "dataflow.snapshots.runs.threaded",
    "ObservedThreads": "dataflow.snapshots.runs.observed_threads",
    "Detection": "dataflow.snapshots.runs.detecting",
    "detect": "dataflow.snapshots.runs.detecting",
    "check": "dataflow.snapshots.runs.checking",
}


def __getattr__(name: str) -> Any:
    return offered(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
