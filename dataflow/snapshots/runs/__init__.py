"""Ways to run a ``ProcessGraph`` and to take snapshots of the run.

- ``System``, ``Marker``, in ``system``: a run by hand, step by step
- ``Simulation``, in ``simulation``: a run whose steps are chosen by a seed
- ``Threads``, in ``threads``: a run with a thread for each process
- ``explore``, ``Exploration``, in ``exploration``: every run of a small system
- ``ObservedSystem``, in ``observed_system``: ``System`` with an observer in place of markers
- ``ObservedThreads``, in ``observed_threads``: ``Threads`` with an observer in place of markers
- ``detect``, ``Detection``, in ``detection``: take snapshots until a stable predicate holds
- ``check``, in ``snapshot_check``: check a snapshot against the trace of its run

All of them execute a process by ``host`` (its actions and the marker rule) within ``process_node`` (the host, and the
queues of its incoming channels) or ``observed_node`` (the rule with an observer), and collect results by
``snapshot_parts``. Modules are imported when one of their names is first used.
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
