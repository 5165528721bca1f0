"""Ways to run a ``ProcessGraph``, all of them on one ``Host`` a process.

``System`` by hand, ``Simulation`` from a seed, ``explore`` in every possible order, ``Threads`` with a thread for each
process; ``ObservedSystem`` and ``ObservedThreads`` take snapshots with an observer in the place of markers. ``detect``
takes snapshots of a run until a predicate holds, ``check`` holds a snapshot against the run in which it was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dataflow.registry import offered

if TYPE_CHECKING:
    from dataflow.runners.processes.checking import check
    from dataflow.runners.processes.detecting import Detection, detect
    from dataflow.runners.processes.exhaustive import Exploration, explore
    from dataflow.runners.processes.observed_threads import ObservedThreads
    from dataflow.runners.processes.observing import ObservedSystem
    from dataflow.runners.processes.simulated import Simulation
    from dataflow.runners.processes.system import Marker, System
    from dataflow.runners.processes.threaded import Threads

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
    "System": "dataflow.runners.processes.system",
    "Marker": "dataflow.runners.processes.system",
    "ObservedSystem": "dataflow.runners.processes.observing",
    "Simulation": "dataflow.runners.processes.simulated",
    "Exploration": "dataflow.runners.processes.exhaustive",
    "explore": "dataflow.runners.processes.exhaustive",
    "Threads": "dataflow.runners.processes.threaded",
    "ObservedThreads": "dataflow.runners.processes.observed_threads",
    "Detection": "dataflow.runners.processes.detecting",
    "detect": "dataflow.runners.processes.detecting",
    "check": "dataflow.runners.processes.checking",
}


def __getattr__(name: str) -> Any:
    return offered(__name__, _HOMES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
