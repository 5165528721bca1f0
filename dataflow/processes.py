"""Old path of ``dataflow.snapshots.processes``."""

from dataflow.snapshots.processes import (
    Action,
    Automaton,
    Channel,
    GlobalState,
    Process,
    ProcessGraph,
    Sends,
    action,
    actions_of,
)

__all__ = ["Action", "Automaton", "Channel", "GlobalState", "Process", "ProcessGraph", "Sends", "action", "actions_of"]
