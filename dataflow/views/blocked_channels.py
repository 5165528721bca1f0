"""The channels of a run that barriers blocked longest, and what each of them waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dataflow.events.kinds import Kind, Unblocked
from dataflow.events.plan_shape import PlanShape
from dataflow.views.checkpoint_facts import BarrierTravel, BlockedInput
from dataflow.views.find_facts import barriers_of, blocked_of
from dataflow.views.select_events import EventRow, event_rows, numbers, select, texts

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["BlockedChannel", "blocked_channels"]

_COLUMNS: Final = ("attempt", "checkpoint", "channel", "duration")
_KINDS: Final = (Kind.SENT, Kind.ARRIVED, Kind.BLOCKED, Kind.UNBLOCKED)


@dataclass(frozen=True, slots=True)
class BlockedChannel:
    """The longest time that a channel was blocked without a break, and the sum of all times, in all attempts together.

    ``attempt``, ``checkpoint``, ``until`` and ``awaited`` are of the longest time. ``until`` says what ended it:
    the last barrier (``awaited`` is its channel), the end of other inputs (``awaited`` are these), the timeout of the
    alignment, or that the checkpoint was aborted (``awaited`` are the inputs whose barriers were still missing). Where
    events do not tell, ``until`` is None and ``awaited`` is empty.
    """

    channel: str
    longest: int
    attempt: int
    checkpoint: int
    until: Unblocked | None
    awaited: tuple[str, ...]
    blocked: int

    @property
    def waited_for(self) -> str:
        """What it waited for, in words; "" if it is not known.

        >>> BlockedChannel("a[0] -> c[0]", 900, 1, 4, Unblocked.TIMEOUT, ("b[0] -> c[0]",), 900).waited_for
        'b[0] -> c[0], until the timeout'
        >>> BlockedChannel("a[0] -> c[0]", 900, 1, 4, Unblocked.ENDED, ("b[0] -> c[0]",), 900).waited_for
        'the end of b[0] -> c[0]'
        """
        more = f" and {len(self.awaited) - 1} more" if len(self.awaited) > 1 else ""
        channels = self.awaited[0] + more if self.awaited else ""
        match self.until:
            case Unblocked.TIMEOUT:
                return f"{channels}, until the timeout" if channels else "the timeout"
            case Unblocked.ABORTED:
                return f"{channels}, until it was aborted" if channels else "until it was aborted"
            case Unblocked.ENDED:
                return f"the end of {channels or 'another input'}"
            case _:
                return channels


def blocked_channels(events: Events, limit: int = 5) -> tuple[BlockedChannel, ...]:
    """Return the channels with the longest single waits in the whole run, the longest first, at most ``limit``."""
    import numpy as np

    table = select(events, [Kind.UNBLOCKED], _COLUMNS)
    if table.num_rows == 0:
        return ()
    codes = table["channel"].combine_chunks().indices.fill_null(-1).to_numpy(zero_copy_only=False)
    duration, names = numbers(table, "duration"), texts(table, "channel")
    order = np.lexsort((duration, codes))
    starts = np.concatenate([[0], np.flatnonzero(np.diff(codes[order])) + 1])
    sums = np.add.reduceat(duration[order], starts)
    last = order[np.append(starts[1:], len(order)) - 1]
    attempts, checkpoints = numbers(table, "attempt"), numbers(table, "checkpoint")
    waits: dict[tuple[int, int], _Waits] = {}
    found = []
    for at in np.argsort(-duration[last], kind="stable")[:limit].tolist():
        event = last[at]
        if duration[event] == 0:
            break
        key = int(attempts[event]), int(checkpoints[event])
        if key not in waits:
            waits[key] = _Waits(events, *key)
        until, awaited = waits[key].of(names[event])
        found.append(BlockedChannel(names[event], int(duration[event]), *key, until, awaited, int(sums[at])))
    return tuple(found)


class _Waits:
    """What the blocked inputs of one checkpoint waited for."""

    def __init__(self, events: Events, attempt: int, checkpoint: int) -> None:
        by_kind: dict[str, list[EventRow]] = {kind.label: [] for kind in _KINDS}
        for event in event_rows(events, _KINDS, attempt=attempt, checkpoint=checkpoint):
            by_kind[event.kind].append(event)
        self._plan: PlanShape = events.plan
        barriers = barriers_of(events.plan, by_kind["sent"], by_kind["arrived"])
        self._barriers: Mapping[str, BarrierTravel] = {barrier.channel: barrier for barrier in barriers}
        self._inputs = blocked_of(events.plan, by_kind["blocked"], by_kind["unblocked"], barriers)
        self._ended = {event.task: event.time for event in event_rows(events, [Kind.ENDED], attempt=attempt)}

    def of(self, channel: str) -> tuple[Unblocked | None, tuple[str, ...]]:
        """Return what ended the longest wait of a channel, and the channels that it waited for."""
        waits = [each for each in self._inputs if each.channel == channel and each.end is not None]
        wait = max(waits, key=lambda each: (each.end or 0) - each.begin)
        match wait.why:
            case Unblocked.COMPLETE:
                return wait.why, () if wait.awaited is None else (wait.awaited,)
            case Unblocked.TIMEOUT | Unblocked.ABORTED:
                missing = self._missing(wait)
                live = [name for name, ended in missing if ended is None]
                return wait.why, tuple(live or _only([name for name, _ in missing]))
            case Unblocked.ENDED:
                ended = {name: time for name, time in self._missing(wait) if time is not None}
                meanwhile = [name for name, time in ended.items() if time >= wait.begin]
                return wait.why, tuple(meanwhile or _only(list(ended)))
            case None:
                return None, ()

    def _missing(self, wait: BlockedInput) -> Sequence[tuple[str, int | None]]:
        """Return the other inputs of the task without a barrier at the end of a wait, and when their writers ended."""
        assert wait.end is not None, f"{wait} has not ended"
        missing: list[tuple[str, int | None]] = []
        for channel in self._plan.channels:
            barrier = self._barriers.get(channel.name)
            has_come = barrier is not None and barrier.arrived is not None and barrier.arrived <= wait.end
            if channel.target == wait.task and channel.name != wait.channel and not has_come:
                ended = self._ended.get(channel.source)
                missing.append((channel.name, ended if ended is not None and ended <= wait.end else None))
        return missing


def _only(ended: Sequence[str]) -> Sequence[str]:
    """Return the input whose writer had ended before the wait, if there is one alone; of several, it is not known.

    An end of input waits in the queue behind rows, so the end of some may have arrived long before.
    """
    return ended if len(ended) == 1 else ()
