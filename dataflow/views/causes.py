"""Why a checkpoint took long: how the barriers that came last were delayed, from the last input up to a first cause.

The delay of the last barrier of a task has two parts. In the queue of its channel the receiver held it up. Before it
was sent, the sender waited for a barrier of its own: the last one that it took before it sent. So the walk goes
upstream until it reaches a source, which got the trigger from the job, or until it comes round.

Invariant: the delays follow each other without a gap, from the trigger to the time that is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Final

from dataflow.contracts.checkpointing import Mode
from dataflow.events.kinds import Arrival, Unblocked
from dataflow.events.plan_shape import ChannelShape
from dataflow.views.checkpoint_facts import BarrierTravel, BlockedInput, CheckpointFacts
from dataflow.views.work_spans import Activity, activity, emits

__all__ = ["Causes", "BarrierDelay", "DelayPlace"]


_SOON: Final = 1_000
"""A task that was complete so many microseconds after a delay had waited for the same."""


class DelayPlace(Enum):
    """Where a barrier spent time."""

    QUEUE = "in a channel, until the receiver took it"
    TASK = "at a task, which had its barriers"
    ENDED_INPUT = "at a task that had its barriers, and read inputs to their ends, whose writers had ended"
    SOURCE = "at a source, or a task without live inputs, since the trigger"
    STARTED_HERE = "at a task whose writers had ended, since the trigger"
    UNKNOWN = "the event of its sending is missing"
    ROUND = "it came round to a task that was passed already"


@dataclass(frozen=True, slots=True)
class BarrierDelay:
    """Time that a barrier spent at one place. ``task`` held it up: of a queue, the receiver.

    ``barrier`` is set for a QUEUE, ``ended`` are the inputs of an ENDED_INPUT.
    """

    place: DelayPlace
    task: str
    begin: int
    end: int
    barrier: BarrierTravel | None = None
    ended: tuple[str, ...] = ()

    @property
    def duration(self) -> int:
        """Microseconds."""
        return self.end - self.begin

    @property
    def key(self) -> tuple[DelayPlace, str, int]:
        """What it has in common with the same delay of another barrier, which the task sent a little later."""
        return self.place, self.task, self.begin


class Causes:
    """The causes of delays in the checkpoint of ``facts``."""

    def __init__(self, facts: CheckpointFacts) -> None:
        self.facts = facts

    @cached_property
    def _arrivals(self) -> Mapping[str, Sequence[BarrierTravel]]:
        arrivals: dict[str, list[BarrierTravel]] = {}
        for barrier in self.facts.barriers:
            if barrier.arrived is not None:
                arrivals.setdefault(barrier.target, []).append(barrier)
        return arrivals

    def last_arrival(self, task: str, until: int) -> BarrierTravel | None:
        """Return the barrier that ``task`` took last up to the time ``until``."""
        arrivals = self._arrivals.get(task, ())
        return next((b for b in reversed(arrivals) if b.arrived is not None and b.arrived <= until), None)

    def delays(self, task: str, until: int) -> tuple[BarrierDelay, ...]:
        """Return how the time from the trigger to ``until`` passed for the last barrier of ``task``, the last first."""
        return tuple(self._delays(task, until))

    def _delays(self, task: str, until: int) -> Iterator[BarrierDelay]:
        begin, seen = self.facts.triggered, set()
        while task not in seen:
            seen.add(task)
            barrier = self.last_arrival(task, until)
            if barrier is None or barrier.arrived is None:
                yield BarrierDelay(DelayPlace.SOURCE, task, begin, until)
                return
            if barrier.arrived < until:
                yield self._at_task(task, barrier.arrived, until)
            if barrier.sent is None:
                is_here = barrier.how is Arrival.STARTED_HERE
                yield BarrierDelay(
                    DelayPlace.STARTED_HERE if is_here else DelayPlace.UNKNOWN, task, begin, barrier.arrived
                )
                return
            yield BarrierDelay(DelayPlace.QUEUE, task, barrier.sent, barrier.arrived, barrier)
            task, until = barrier.source, barrier.sent
        yield BarrierDelay(DelayPlace.ROUND, task, begin, until)

    def _at_task(self, task: str, begin: int, until: int) -> BarrierDelay:
        """Return the delay of a task that had its last barrier at ``begin``.

        An input without writer brings no barrier: then its end counts as one. It was waited for if the task was
        complete when the delay ended, and did more than copy its state.
        """
        facts = self.facts.tasks[task]
        is_over = self.facts.until if facts.complete is None else facts.complete - facts.copy
        ended = self.ended_inputs(task, until) if is_over - until <= _SOON else ()
        if not ended or until - begin <= 2 * facts.copy:
            return BarrierDelay(DelayPlace.TASK, task, begin, until)
        return BarrierDelay(DelayPlace.ENDED_INPUT, task, begin, until, ended=ended)

    def ended_inputs(self, task: str, at: int) -> tuple[str, ...]:
        """Return the inputs of ``task`` without barrier whose writers had ended at a time, if they had rows left."""
        arrived = {b.channel for b in self._arrivals.get(task, ()) if b.arrived is not None and b.arrived <= at}
        return tuple([c.name for c in self._inputs.get(task, ()) if c.name not in arrived and self._has_rest(c, at)])

    def _has_rest(self, channel: ChannelShape, at: int) -> bool:
        """Return whether the writer of a channel had ended at a time, and rows were in it since the trigger.

        If it is not known how many rows were queued, there may have been some.
        """
        if self._lives(channel.source, at):
            return False
        return self._lives(channel.source, self.facts.triggered) or self.facts.queued.get(channel.name, 1) > 0

    def times_out(self, delay: BarrierDelay) -> bool:
        """Return whether a task held a barrier until the timeout of its alignment."""
        if delay.place not in (DelayPlace.TASK, DelayPlace.ENDED_INPUT):
            return False
        ends = [b.end for b in self.facts.blocked if b.task == delay.task and b.why is Unblocked.TIMEOUT]
        return any(end is not None and delay.begin < end <= delay.end for end in ends)

    def activity(self, task: str, begin: int, end: int) -> Activity | None:
        """Return what a task did in a time; None if samples are missing."""
        return activity(self.facts.work.get(task, ()), begin, end)

    def did(self, delay: BarrierDelay) -> Activity | None:
        """Return what the task that a delay is blamed on did meanwhile; None if samples are missing.

        A task that a barrier or a trigger waits for does not lack input: it waits for a thread. If no rows precede the
        barrier, it needs no room either, unless it has to emit rows first; and blocked inputs hold up the barrier only
        if its own is blocked, by an earlier checkpoint.
        """
        did = self.activity(delay.task, delay.begin, delay.end)
        if did is None or delay.place not in (DelayPlace.QUEUE, DelayPlace.SOURCE):
            return did
        did = replace(did, waiting=0.0)
        barrier = delay.barrier
        passes = barrier is not None and barrier.overtakes and self.facts.mode == Mode.UNALIGNED_PERSISTED.value
        if barrier is not None and barrier.rows_ahead and not passes:
            return did
        if not emits(self.facts.work.get(delay.task, ()), delay.begin, delay.end):
            did = replace(did, back_pressured=0.0)
        if barrier is None or self.facts.held_until.get(barrier.channel, 0) <= delay.begin:
            did = replace(did, blocked=0.0)
        return did

    def downstream(self, task: str, begin: int, end: int) -> Sequence[tuple[str, Activity | None]]:
        """Return the tasks that left ``task`` without room, each with what it did: from its neighbour to the culprit.

        Of several receivers, the one that waited least for input has the fullest queue. A receiver that had no room
        itself most of the time passes the blame on.
        """
        path: list[tuple[str, Activity | None]] = []
        seen = {task}
        while receivers := [name for name in self._receivers.get(task, ()) if name not in seen]:
            known = {name: self.activity(name, begin, end) for name in receivers}
            task = min(receivers, key=lambda name: _idleness(known[name]))
            seen.add(task)
            path.append((task, known[task]))
            did = known[task]
            if did is None or did.back_pressured < max(did.busy, did.blocked, did.waiting, did.ready):
                break
        return path

    @cached_property
    def _receivers(self) -> Mapping[str, Sequence[str]]:
        receivers: dict[str, list[str]] = {}
        for channel in self.facts.plan.channels:
            receivers.setdefault(channel.source, []).append(channel.target)
        return receivers

    @cached_property
    def _inputs(self) -> Mapping[str, Sequence[ChannelShape]]:
        inputs: dict[str, list[ChannelShape]] = {}
        for channel in self.facts.plan.channels:
            inputs.setdefault(channel.target, []).append(channel)
        return inputs

    def missing(self, task: str, at: int) -> tuple[str, ...]:
        """Return the inputs of ``task`` whose barriers had not arrived at a time, of senders that had not ended."""
        arrived = {b.channel for b in self._arrivals.get(task, ()) if b.arrived is not None and b.arrived <= at}
        return tuple(
            [c.name for c in self._inputs.get(task, ()) if c.name not in arrived and self._lives(c.source, at)]
        )

    def _lives(self, task: str, at: int) -> bool:
        ended = self.facts.tasks[task].ended if task in self.facts.tasks else None
        return ended is None or ended > at

    def has_inputs(self, task: str) -> bool:
        """Return whether channels lead to ``task``."""
        return task in self._inputs

    def has_ended_inputs(self, task: str, at: int) -> bool:
        """Return whether all tasks that write to ``task`` had ended at a time."""
        return not any(self._lives(channel.source, at) for channel in self._inputs.get(task, ()))

    @cached_property
    def longest_blocked(self) -> BlockedInput | None:
        """The input that was blocked longest, also if it still is."""
        inputs = [blocked for blocked in self.facts.blocked if self.blocked_time(blocked)]
        return max(inputs, key=self.blocked_time, default=None)

    def is_explained(self, blocked: BlockedInput) -> bool:
        """Return whether it is known which barrier, or which end of an input, a blocked input waited for."""
        return blocked.awaited is not None or (blocked.why is Unblocked.ENDED and blocked.end is not None)

    def blocked_time(self, blocked: BlockedInput) -> int:
        """Return the microseconds that an input was blocked, until now if it still is."""
        return blocked.length(self.facts.until)

    @cached_property
    def last_complete(self) -> str | None:
        """The task that was complete last; None if none was, or not all were."""
        if self.facts.travelled is None:
            return None
        tasks = [task for task in self.facts.tasks.values() if task.complete == self.facts.travelled]
        return tasks[0].task if tasks else None

    @cached_property
    def incomplete(self) -> tuple[str, ...]:
        """The tasks that were not complete, in the order of the plan."""
        return tuple([t.task for t in self.facts.tasks.values() if t.complete is None and self._takes_part(t.task)])

    @cached_property
    def unwritten(self) -> tuple[str, ...]:
        """The tasks that were complete and whose parts were not written."""
        return tuple([t.task for t in self.facts.tasks.values() if t.complete is not None and t.part_end is None])

    def _takes_part(self, task: str) -> bool:
        return self.facts.tasks[task].snapshot is not None or self._lives(task, self.facts.triggered)

    @cached_property
    def stuck(self) -> BarrierTravel | None:
        """The barrier that kept the first incomplete task waiting: sent, and not arrived when the checkpoint ended."""
        queued = {b.channel: b for b in self.facts.barriers if b.arrived is None and b.sent is not None}
        for task in self.incomplete:
            waiting = [queued[channel.name] for channel in self._inputs.get(task, ()) if channel.name in queued]
            if waiting:
                return min(waiting, key=lambda barrier: barrier.sent or 0)
        return None

    @cached_property
    def chain(self) -> tuple[BarrierDelay, ...]:
        """The delays to show first: of the barrier that the longest blocked input waited for, or that came last."""
        blocked, task = self.longest_blocked, self.last_complete
        if blocked is not None and blocked.awaited is not None and blocked.end is not None:
            awaited = next(b for b in self.facts.barriers if b.channel == blocked.awaited)
            return self.delays(blocked.task, awaited.arrived or blocked.end)
        if blocked is not None and blocked.why is Unblocked.ENDED and blocked.end is not None:
            return self.delays(blocked.task, blocked.end)
        if task is not None and self.facts.travelled is not None:
            return self.delays(task, self.facts.travelled)
        return self.stopped

    @cached_property
    def stopped(self) -> tuple[BarrierDelay, ...]:
        """The delays up to where a checkpoint stopped that was not complete at all tasks."""
        if self.stuck is not None and self.stuck.sent is not None:
            last = BarrierDelay(DelayPlace.QUEUE, self.stuck.target, self.stuck.sent, self.facts.until, self.stuck)
            return (last, *self.delays(self.stuck.source, self.stuck.sent))
        if self.incomplete:
            return self.delays(self.incomplete[0], self.facts.until)
        return ()


def _idleness(did: Activity | None) -> float:
    """Return the share in which a task waited for input; unknown counts as always."""
    return 1.0 if did is None else did.waiting
