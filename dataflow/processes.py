"""Old import path of ``dataflow.snapshots.processes``, kept because the guides named it; it only re-exports."""

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
