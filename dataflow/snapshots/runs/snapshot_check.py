"""What must hold of a snapshot of a recorded run, checked: the theorem of Chandy and Lamport, on this run."""

from __future__ import annotations

from dataflow.errors import InconsistentSnapshot
from dataflow.snapshots.cuts import channel_states, is_consistent
from dataflow.snapshots.processes import GlobalState
from dataflow.snapshots.traces import Recorded, Trace

__all__ = ["check"]


def check(trace: Trace, state: GlobalState) -> None:
    """Check a snapshot against the run in which it was taken.

    Its cut is consistent, each process is in the state that it recorded there, and each channel holds what was sent
    before the cut and not accepted before it.

    Raises: InconsistentSnapshot, with what differs.
    """
    found = is_consistent(trace, state.cut)
    if not found:
        raise InconsistentSnapshot(f"snapshot {state.snapshot}: the cut {dict(state.cut)} is {found}")
    recorded = [each for each in trace.happenings if isinstance(each, Recorded) and each.snapshot == state.snapshot]
    for each in recorded:
        if (each.number, each.state) != (state.cut[each.process], state.processes[each.process]):
            raise InconsistentSnapshot(
                f"snapshot {state.snapshot}: {each.process!r} recorded {each.state!r} behind its event "
                f"{each.number}, and the snapshot has {state.processes[each.process]!r} behind "
                f"{state.cut[each.process]}"
            )
    for channel, expected in channel_states(trace, state.cut).items():
        if state.channels[channel] != expected:
            raise InconsistentSnapshot(
                f"snapshot {state.snapshot}: at its cut, channel {channel} holds {list(expected)}, and "
                f"{list(state.channels[channel])} was recorded"
            )
