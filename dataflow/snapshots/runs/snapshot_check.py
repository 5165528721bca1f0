"""Check a recorded snapshot against the trace of the run in which it was taken.

Source: theorem 1 of Chandy and Lamport, *Distributed Snapshots* (1985), section 4, here checked for one run.
"""

from __future__ import annotations

from dataflow.errors import InconsistentSnapshot
from dataflow.snapshots.cuts import channel_states, is_consistent
from dataflow.snapshots.processes import GlobalState
from dataflow.snapshots.traces import Recorded, Trace

__all__ = ["check"]


def check(trace: Trace, state: GlobalState) -> None:
    """Check a snapshot against the run in which it was taken.

    Its cut must be consistent, each process must have recorded its state at the cut, and each channel must hold the
    messages that were sent before the cut and not accepted before it.

    Args:
        trace: the run.
        state: the snapshot, such as ``run.snapshots[0]``.

    Raises: InconsistentSnapshot, with the difference; GraphError if the cut is not one of this run.

    >>> from dataflow.snapshots.processes import Process, ProcessGraph
    >>> from dataflow.snapshots.runs.system import System
    >>> run = System(ProcessGraph().add("p", Process()))
    >>> check(run.trace, run.snapshots[run.snapshot("p")])
    """
    consistency = is_consistent(trace, state.cut)
    if not consistency:
        raise InconsistentSnapshot(f"snapshot {state.snapshot}: the cut {dict(state.cut)} is {consistency}")
    recorded = [each for each in trace.happenings if isinstance(each, Recorded) and each.snapshot == state.snapshot]
    for each in recorded:
        if (each.number, each.state) != (state.cut[each.process], state.processes[each.process]):
            raise InconsistentSnapshot(
                f"snapshot {state.snapshot}: {each.process!r} recorded {each.state!r} after its event "
                f"{each.number}, but the snapshot has {state.processes[each.process]!r} after event "
                f"{state.cut[each.process]}"
            )
    for channel, expected in channel_states(trace, state.cut).items():
        if state.channels[channel] != expected:
            raise InconsistentSnapshot(
                f"snapshot {state.snapshot}: at its cut, channel {channel} holds {list(expected)}, but "
                f"{list(state.channels[channel])} was recorded"
            )
