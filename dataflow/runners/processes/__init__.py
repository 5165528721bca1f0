"""Ways to run a ``ProcessGraph``, all of them on one ``Host`` a process.

``System`` by hand, ``Simulation`` from a seed, ``explore`` in every possible order, ``Threads`` with a thread for each
process; ``ObservedSystem`` takes snapshots with an observer in the place of markers. ``detect`` takes snapshots of a
run until a predicate holds, ``check`` holds a snapshot against the run in which it was taken.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataflow.runners.processes.checking import check
    from dataflow.runners.processes.detecting import Detection, detect
    from dataflow.runners.processes.exhaustive import Exploration, explore
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
    "Detection",
    "detect",
    "check",
]

_HOMES = {
    "System": "system",
    "Marker": "system",
    "ObservedSystem": "observing",
    "Simulation": "simulated",
    "Exploration": "exhaustive",
    "explore": "exhaustive",
    "Threads": "threaded",
    "Detection": "detecting",
    "detect": "detecting",
    "check": "checking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
