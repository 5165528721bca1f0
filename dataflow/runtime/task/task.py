"""A task: one subtask of a vertex. Only ``step()`` advances it and calls its operators.

A step handles, in this order: messages; elements left in the chain; a checkpoint that may start; a timer; barriers and
cancels; the next element. Rows are taken only if every output has credit; barriers and cancels need none. A timer does
not come first in two consecutive steps, because timers that are always due would keep barriers and rows waiting. While
rows that a restore put back are left, they take the place of timers and of the next element (``PutBack``).

At barrier n, with nothing in between: rows that operators keep back leave, then the barrier leaves on ALL outputs, then
every operator's state is copied, or kept for copying on write. It is written in the background once the checkpoint is
complete here, with the channel state recorded since; the acknowledgement follows when it is durable.

What barriers and the task do is recorded as events (``dataflow.events``). Each poll reads the clock: with the time of
the step's start, a barrier would arrive before it is sent.

Guarantees: ``step`` never blocks on another task. This code assumes that one thread at a time calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Literal, assert_never

from dataflow.contracts.execution import ORDER
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.row_errors import shorten
from dataflow.contracts.sink import Collector
from dataflow.errors import StoreError
from dataflow.events.kinds import Kind
from dataflow.events.recorder import EventWriter
from dataflow.protocol.actions import Abort, Action, Complete, Ignore, PassOver, TakeSnapshot
from dataflow.protocol.barrier_ledger import BarrierLedger
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Barrier, Cancel, Data, EndOfInput, LastWatermark
from dataflow.runtime.task.chain import Chain, ChainNode
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.messages import (
    AbortCheckpoint,
    Committed,
    Crashed,
    Declined,
    Drain,
    Ended,
    Enough,
    FailedAt,
    Mailbox,
    Stop,
    TaskMessage,
    TaskStats,
    Trigger,
)
from dataflow.runtime.task.pace import Pace, Unpaced
from dataflow.runtime.task.part_writer import PartWriter
from dataflow.runtime.task.parts import ChannelState, Duplicates, TaskState
from dataflow.runtime.task.progress import Progress, TaskTimes
from dataflow.runtime.task.put_back import PutBack
from dataflow.runtime.task.services import Services
from dataflow.runtime.task.task_input import PollResult, TaskInput

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["Task"]

_LONG = 1_000
"""Microseconds of a step and the pause after it that a sample tells apart."""
_UNITS_PER_STEP = 64
"""Limit for the operator calls of one step, so that a long emission does not delay other tasks of the same thread."""


class _Phase(Enum):
    """The phase of a task, up to its end."""

    RUNNING = "running"
    FINISHING = "finishing"  # every input ended; the rows that ``finish`` emits are being sent
    ENDED = "ended"  # EndOfInput was sent; only the last checkpoint is still to come


class Task:
    """One subtask: an input, a chain of operators, outputs.

    Invariant: no row, timer or watermark passes between ``TakeSnapshot`` and the copy of the state.
    Invariant: in phase ENDED nothing is sent any more, not even a barrier.
    """

    def __init__(
        self,
        name: str,
        task_input: TaskInput,
        chain: Chain,
        services: Services,
        *,
        keep_duplicates: Literal["sample", "rows"] = "sample",
        pace: Pace | None = None,
        ended: bool = False,
        moved: bool = False,
        logs: LogChain | None = None,
        events: EventWriter | None = None,
        put_back: PutBack | None = None,
    ) -> None:
        #: Never changes; the key of this task in the job, the plan and the ledger.
        self.name = name
        #: Never changes. Keeps its own invariants; ``task_input.finished`` if and only if ``_phase`` is ENDED.
        self.task_input = task_input
        #: Never changes. Not busy in phase ENDED; no operator in it is ``working`` between two steps.
        self.chain = chain
        #: Never changes. Any thread puts; only ``step`` takes.
        self.mailbox: Mailbox[TaskMessage] = Mailbox()
        #: Only reduced. If it has rows, only barriers and cancels were taken from the input, in phase RUNNING.
        self.put_back = put_back or PutBack()
        #: The job's, set before the first step; has every checkpoint in ``_snapshots`` as unsettled here.
        self.ledger = BarrierLedger()
        #: What the last step returned. ENDED only in phase ENDED; BLOCKED if and only if it waits and the input blocks
        #: a channel; DONE is never left, and means that the task was released or crashed.
        self.state = Progress.WORKED
        #: Accounts for all time from the start to ``_since``.
        self.meter = TaskTimes()
        #: Never reduced: the number of steps that returned WORKED.
        self.steps = 0
        #: Never changes. Has the objects of every checkpoint that this task wrote and a later one may build on.
        self.logs = logs or LogChain()
        #: Never changes, and is shared with ``_writer``.
        self._services = services
        #: Never changes: the clock of ``_services``.
        self._clock = services.clock
        #: Has a part of a checkpoint only after it left ``_snapshots``.
        self._writer = PartWriter(name, services, self.logs, keep_duplicates)
        #: Only moves forward. ENDED if and only if every output has its end and ``Ended`` was reported.
        self._phase = _Phase.RUNNING
        #: Never changes; if True, the first step takes the task to phase ENDED.
        self._restored_ended = ended
        #: Never changes; if True, the first step sends the time that the operators had passed on to other tasks.
        self._restarts_time = moved
        #: Never unset. If False, nothing was received, taken or sent.
        self._opened = False
        #: Never unset. If True, the state is DONE.
        self._released = False
        #: True if the last step that moved rows or time rang a timer; only in phase RUNNING.
        self._rang = False
        #: Has every batch reported once, with the time of all steps that it took.
        self._pace: Pace = pace or Unpaced()
        #: Rows and time (over all steps) of the batch that the chain works on. Rows are not zero only if it is busy.
        self._rows, self._spent = 0, 0
        #: By checkpoint, at most one, below the input's floor: the copied state, until its channel state is complete.
        self._snapshots: dict[int, tuple[TaskState, TaskStats]] = {}
        #: Empty between two steps unless the state is BACK_PRESSURED: the channels that wake it when they have room.
        self._full: Sequence[Channel] = ()
        #: Never changes: the operators of ``chain`` that may have enough rows.
        self._collectors = [n.operator for n in chain.nodes if isinstance(n.operator, Collector)]
        #: Never reduced, never above the clock: the end of the last step.
        self._since = services.clock.now()
        #: Never reduced, never above the clock: the start of the last step.
        self._began = self._since
        #: Never changes. The input gate has the same writer, on the same thread.
        self._events = events or services.recorder.writer(name)
        #: Never changes.
        self._recorder = services.recorder
        #: The triggers of checkpoints that were known, and when the next sample is due, since the last one.
        self._triggers, self._sample_at = 0, self._since + services.recorder.sampled_each
        #: The last watermark recorded, of the input (None) and of each operator that makes time.
        self._times: dict[str | None, int] = {}
        #: Never changes.
        self._time_makers = [node for node in chain.nodes if node.operator.makes_time]

    # --- stepping

    def step(self) -> Progress:
        """Do one step. An operator's error is reported to the job, with the operator and the batch as notes."""
        before, lasted = self._clock.now(), self._since - self._began
        is_due = before >= self._sample_at or self._recorder.triggers != self._triggers
        if is_due and self._opened and before - self._began >= _LONG:  # a checkpoint may have been triggered meanwhile
            self._sample(self._since, lasted)
        self._began = before
        self.meter.add(self.state, before - self._since)
        for channel in self._full:
            channel.back_pressured += before - self._since
        self._full = ()
        if is_due:
            self._sample(before)
        try:
            self.state = self._step(before)
        except Exception as error:
            self.crash(error)
        if self.state is Progress.WORKED:
            self.steps += 1
        if self.state is not Progress.BACK_PRESSURED:
            self._full = ()
        self._since = self._clock.now()
        self.meter.busy += self._since - before
        return self.state

    def rest(self) -> bool:
        """Return whether no step is needed until a bell rings or time passes; then the task waits from now on.

        It costs less than a step that finds nothing to do.
        """
        if not self.rests(self._since):
            return False
        self._pace.notice(self._since, hurried=self.task_input.hurried)
        self.state = Progress.BLOCKED if self.task_input.blocked else Progress.WAITING
        return True

    def rests(self, now: int) -> bool:
        """Return whether a step at ``now`` would surely do nothing. False: it might do something."""
        if self._phase is not _Phase.RUNNING or not self._opened or self._released or len(self.mailbox):
            return False
        if self.put_back:
            return False
        for node in self.chain.nodes:
            if node.pending is not None or node.inbox:
                return False
            if (due := node.next_due(now)) is not None and due <= now:
                return False
        return self.task_input.rests(now)

    def crash(self, error: BaseException) -> None:
        """End this task and report ``error`` to the job, with its location. On the thread that steps the task."""
        self.state = Progress.DONE
        self._since = self._clock.now()  # it may have left the step: an exit of a user's function
        working = self.chain.working or (self.chain.head if self.task_input.is_source else None)
        where = None if working is None else working.name
        self._events.record(Kind.ERROR, self._since, operator=where, detail=type(error).__name__)
        at = None if where is None else FailedAt(where)
        try:
            _annotate(error, self)
            if working is not None:
                split, offset = self.task_input.read_to(is_polled=self.chain.working is None)
                at = FailedAt(working.name, _row(working), split, offset)
        finally:
            self._services.mailbox.put(Crashed(self.name, error, at))  # otherwise the job would wait for ever

    def _sample(self, now: int, lasted: int | None = None, *, unmetered: int = 0) -> None:
        """Record what the task has done so far.

        ``lasted`` is the time of the step that ended now, or goes on; of it, ``unmetered`` is not in the meter yet.
        """
        self._triggers, self._sample_at = self._recorder.triggers, now + self._recorder.sampled_each
        meter, chain, channels = self.meter, self.chain, self.channels
        totals = (
            chain.head.tally.rows_in,
            sum([output.rows for output in chain.outputs]),
            meter.busy + unmetered,
            meter.waiting,
            meter.blocked,
            meter.back_pressured,
            *[channel.queued_rows for channel in channels],
        )
        self._events.sample(Kind.WORK, now, totals=totals, duration=lasted)
        self._sample_time(now, None, self.task_input.watermark)
        for node in self._time_makers:
            self._sample_time(now, node, node.made)

    def _sample_time(self, now: int, node: ChainNode | None, time: int | None) -> None:
        """Record the watermark of the input, or of an operator that makes time, if it moved."""
        name = None if node is None else node.name
        if time is None or self._times.get(name) == time:
            return
        self._times[name] = time
        if node is None:
            self._events.sample(Kind.WATERMARK, now, value=time, channel=self.task_input.held_by)
        else:
            self._events.sample(Kind.WATERMARK, now, value=time, operator=name, detail=node.held_by)

    def _sample_here(self) -> None:
        """Record a sample within a step."""
        now = self._clock.now()
        lasted = now - self._began
        self._sample(now, lasted, unmetered=lasted)

    def _step(self, now: int) -> Progress:
        if self.state is Progress.DONE:
            return Progress.DONE
        if not self._opened:
            self._open()
        worked = self._receive(now)
        now = self._clock.now() if worked else now
        if self._released:
            return Progress.DONE
        if self.chain.busy:
            return Progress.WORKED if self._carry() or worked or self._has_room() else Progress.BACK_PRESSURED
        if self._phase is _Phase.FINISHING:
            self._ended()
            return Progress.WORKED
        while actions := self.task_input.triggered_ahead(now) if self.put_back else self.task_input.triggered(now):
            self._act(actions, now)  # all of them, because none may come after the end of input
            worked, now = True, self._clock.now()
        if actions := self.task_input.tick(now):
            self._act(actions, now)
            worked = True
        if self._phase is _Phase.ENDED:
            return Progress.WORKED if worked else Progress.ENDED
        moved = self._take_put_back() if self.put_back else self._advance(now)
        return Progress.WORKED if moved or worked else self._idle_state()

    def _take_put_back(self) -> bool:
        """Take the next put-back rows, and the control elements that overtake them; return whether there was any."""
        worked = False
        while (taken := self.task_input.poll_urgent(now := self._clock.now())) is not None:
            self._take(taken, now)
            worked = True
        if not self._has_room():
            return worked
        self._pace.notice(now, hurried=self.task_input.hurried)
        operator, port, data = self.put_back.take(self._pace.max_rows)
        self.chain.push(port, data, operator)
        self._rows, self._spent = len(data.rows), 0
        self._carry()
        return True

    def _advance(self, now: int) -> bool:
        """Take one element for the chain, and the control elements ahead of it; return whether there was any.

        Control elements do not count: however many barriers precede the rows, a step that can move rows moves some.
        """
        chain, worked = self.chain, False
        after_timer, self._rang = self._rang, False  # otherwise timers that are always due would keep all else waiting
        while True:
            now = self._clock.now()
            if not self._has_room():
                taken = self.task_input.poll_control(now)
            elif not after_timer and chain.due(now):
                self._rang = True
                self._carry()
                return True
            elif self.task_input.ended:
                if worked:
                    return True  # a trigger that waited for this end comes first
                self._phase = _Phase.FINISHING
                if self.task_input.is_source:  # a gate has returned it already
                    chain.push(0, LastWatermark())
                chain.push(0, EndOfInput())
                self._carry()
                return True
            else:
                self._pace.notice(now, hurried=self.task_input.hurried)
                taken = self.task_input.poll(now, self._pace.max_rows)
            if taken is None and after_timer:
                after_timer = False
                continue
            if taken is None:
                return worked
            self._take(taken, now)
            if taken.flow is not None:
                return True
            worked = True

    def _open(self) -> None:
        self._opened = True
        for node in self.chain.nodes:
            self.chain.working = node
            node.open()
        self.chain.working = None
        if self._restarts_time:
            for node in self.chain.nodes:
                node.send_time()
        if self._restored_ended:
            for output in self.chain.outputs:
                output.end()
            self._ended()

    def _ended(self) -> None:
        self._phase = _Phase.ENDED
        self.task_input.finished = True
        self._sample_here()
        self._events.record(Kind.ENDED, self._clock.now())
        self._services.mailbox.put(Ended(self.name))

    def _take(self, taken: PollResult, now: int) -> None:
        if taken.flow is not None:
            if taken.rejected is not None and isinstance(taken.flow, Data):
                self.chain.set_aside(taken.rejected, taken.flow.epoch)
            self.chain.push(taken.port, taken.flow)
            self._rows, self._spent = (len(taken.flow.rows) if isinstance(taken.flow, Data) else 0), 0
            self._carry()
        elif taken.is_control and not any([isinstance(action, TakeSnapshot) for action in taken.actions]):
            self._sample_here()  # a snapshot has a sample of its own
        if taken.actions:
            assert not self.chain.busy, f"{self.name}: a barrier was taken while the chain is busy"
            self._act(taken.actions, now)
        elif taken.flow is None:
            self.chain.forget_red(self.task_input.floor)

    def _carry(self) -> bool:
        """Advance the chain as far as there is credit; return whether it could advance."""
        chain, worked = self.chain, False
        started = self._clock.now()
        for _ in range(_UNITS_PER_STEP):
            if not chain.advance():
                break
            worked = True
        self._spent += self._clock.now() - started
        if self._rows and not chain.busy:
            self._pace.took(self._rows, self._spent)
            self._rows = 0
        if any([collector.full for collector in self._collectors]):
            self._services.mailbox.put(Enough(self.name))
        return worked

    @property
    def awaited(self) -> Sequence[Channel]:
        """The channels whose room it waits for; if rows gather at its source, those from which any are to be taken."""
        chain = self.chain
        if not chain.has_credit():
            return chain.full_channels()
        return chain.queued() if self.task_input.gathers and not chain.busy else ()

    def _has_room(self) -> bool:
        """Return whether rows may be taken and sent. If not, the channels that it waits for will wake this task."""
        self._full = self.awaited
        if self._full:
            for channel in self._full:
                channel.awaited = True
            self._full = self.awaited  # again: a reader that took rows before it saw the request rings no bell
        return not self._full

    def _idle_state(self) -> Progress:
        """Return why the task has nothing to do."""
        if self._full:
            return Progress.BACK_PRESSURED
        return Progress.BLOCKED if self.task_input.blocked else Progress.WAITING

    # --- checkpoints

    def _receive(self, now: int) -> bool:
        received = False
        while (message := self.mailbox.take()) is not None:
            received = True
            match message:
                case Trigger(barrier, finished):
                    ready = _Phase.ENDED if finished else _Phase.RUNNING
                    if self._phase is ready:
                        self.task_input.trigger(barrier)
                    else:
                        self._decline(
                            barrier.checkpoint, FailureReason.NOT_READY, f"{self.name} is {self._phase.value}"
                        )
                case AbortCheckpoint(checkpoint, reason):
                    self._writer.drop(checkpoint)
                    self.logs.drop(checkpoint)
                    self._act(self.task_input.abort(checkpoint, reason, now), now)
                    self.ledger.settled(self.name, checkpoint)
                case Committed(checkpoint):
                    for node in self.chain.nodes:
                        node.committed(checkpoint)
                case Drain():
                    self.task_input.drain()
                case Stop():
                    self._released = True
                case _:
                    assert_never(message)
        return received

    def _act(self, actions: Sequence[Action], now: int) -> None:
        for action in actions:
            match action:
                case TakeSnapshot(barrier):
                    self._take_snapshot(barrier, now)
                case Complete():
                    self._persist(action)
                case Abort(checkpoint, reason):
                    self._snapshots.pop(checkpoint, None)
                    self._cancel(checkpoint)
                    self._decline(checkpoint, FailureReason.of(reason), reason.value)
                case PassOver(checkpoint):
                    self._decline(checkpoint, FailureReason.SUBSUMED, "a higher checkpoint came first")
                case Ignore():
                    pass
                case _:
                    assert_never(action)
        self.chain.forget_red(self.task_input.floor)

    @property
    def recording(self) -> bool:
        """Whether a snapshot was taken whose channel state is not complete, because barriers are still to come."""
        return bool(self._snapshots)

    def _take_snapshot(self, barrier: Barrier, now: int) -> None:
        assert barrier.unaligned or not self.put_back, (
            f"{self.name}: {barrier} aligns, but {self.put_back.rows} put-back rows precede it"
        )
        if self._phase is not _Phase.ENDED:
            self.chain.emit_kept()
        cpu = self._clock.cpu()
        self._sample_here()
        if self._phase is not _Phase.ENDED:
            self.chain.send(barrier, partial(self._record_sent, barrier.checkpoint))
        self._services.probe(Point.COPY)
        try:
            states = self.chain.snapshot(barrier.checkpoint, self._services.probe)
            states, before = self.logs.freeze(states, barrier.checkpoint, barrier.since)
        except StoreError as error:
            self.chain.working = None
            self._cancel(barrier.checkpoint)
            self._decline(barrier.checkpoint, FailureReason.SNAPSHOT, str(error))
            return
        state = TaskState(
            task=self.name,
            ended=self._phase is _Phase.ENDED,
            inlet=self.task_input.snapshot(),
            operators=states,
            passed=self.chain.passed,
            timed=self.chain.timed,
            ranges=self.chain.ranges,
            log_before=before,
            in_flight=self.put_back.in_flight(self.name),
            transactions={node.name: node.transactions() for node in self.chain.nodes if node.uncommitted},
        )
        copied = self._clock.now()
        copy, copy_cpu = copied - now, self._clock.cpu() - cpu
        self._events.record(Kind.SNAPSHOT, copied, barrier.checkpoint, duration=copy)
        staged = {node.name: node.tally.rows_in for node in self.chain.nodes if node.is_two_phase}
        _, alignment, blocked = self.task_input.alignment(barrier.checkpoint)
        stats = TaskStats(alignment=alignment, copy=copy, copy_cpu=copy_cpu, blocked=blocked, staged=staged)
        self._snapshots[barrier.checkpoint] = (state, stats)

    def _record_sent(self, checkpoint: int, channel: Channel) -> None:
        rows, size = channel.queued_rows, channel.queued_bytes
        self._events.record(Kind.SENT, self._clock.now(), checkpoint, channel=channel.name, rows=rows, bytes=size)

    def _persist(self, complete: Complete) -> None:
        n = complete.checkpoint
        if n not in self._snapshots:
            return  # the snapshot failed and was declined
        state, stats = self._snapshots.pop(n)
        in_flight = [*state.in_flight, *self._in_flight(complete)]
        state = replace(state, duplicates=self._duplicates(complete), in_flight=in_flight)
        self._record_complete(n, state)
        self._writer.write(n, state, stats)

    def _record_complete(self, checkpoint: int, state: TaskState) -> None:
        now, repeated = self._clock.now(), Counter[str]()
        for duplicates in state.duplicates:
            repeated[duplicates.operator] += duplicates.rows
        for operator, rows in repeated.items():
            self._events.record(Kind.REPEATS, now, checkpoint, operator=operator, rows=rows)
        rows, size = sum([each.rows for each in state.in_flight]), sum([each.bytes for each in state.in_flight])
        self._events.record(Kind.COMPLETE, now, checkpoint, rows=rows, bytes=size)

    @property
    def channels(self) -> Sequence[Channel]:
        """The input channels, by number; a source has none."""
        return self.task_input.input_channels

    def _in_flight(self, complete: Complete) -> list[ChannelState]:
        channels, head = self.channels, self.chain.head.name
        return [
            ChannelState(head, self.name, channels[i].name, elements, channels[i].schema, channels[i].encoded)
            for i, elements in complete.in_flight.items()
        ]

    def _duplicates(self, complete: Complete) -> list[Duplicates]:
        channels, head = self.channels, self.chain.head.name
        duplicates = [Duplicates.of(head, self.name, channels[i].name, rows) for i, rows in complete.duplicated.items()]
        for node in self.chain.nodes:
            for parent, red in node.duplicated.items():
                duplicates.append(Duplicates.of(node.name, self.name, parent, red))
        return duplicates

    def _cancel(self, checkpoint: int) -> None:
        if self._phase is not _Phase.ENDED:
            self.chain.send(Cancel(checkpoint))

    def _decline(self, checkpoint: int, reason: FailureReason, detail: str) -> None:
        self._events.record(Kind.DECLINED, self._clock.now(), checkpoint, detail=reason.value)
        self._services.mailbox.put(Declined(self.name, checkpoint, reason, detail))

    # --- the end

    def validate(self) -> None:
        """Assert the invariants that hold between two steps. A task that crashed stays as it is, in mid-step."""
        name, phase, state, chain = self.name, self._phase, self.state, self.chain
        if state is Progress.DONE and not self._released:
            return
        self.task_input.validate()
        for node in chain.nodes:
            node.validate()
        assert state is Progress.DONE or not self._released, f"{name}: released, but {state.value}"
        assert chain.working is None, f"{name}: {chain.working and chain.working.where} is at work between two steps"
        assert not self._rows or chain.busy, f"{name}: counts {self._rows} rows in a chain that is not busy"
        assert not self._full or state is Progress.BACK_PRESSURED, f"{name}: {state.value}, but waits for room"
        assert self._since <= self._clock.now(), f"{name}: its last step ended at {self._since}, in the future"
        if state in (Progress.WAITING, Progress.BLOCKED):
            blocked = set(self.task_input.blocked)
            assert (state is Progress.BLOCKED) == bool(blocked), f"{name}: {state.value}, blocked are {blocked}"
        if not self._opened:
            assert self.steps == 0, f"{name}: {self.steps} steps before it was opened"
            assert phase is _Phase.RUNNING, f"{name}: {phase.value} before it was opened"
        if phase is not _Phase.RUNNING:
            assert not self.put_back, f"{name}: {phase.value}, but {self.put_back.rows} put-back rows are left"
            self._validate_end()
        else:
            assert not self.task_input.finished, f"{name}: running, but its input is finished"
            assert state is not Progress.ENDED, f"{name}: running, but {state.value}"
        if self._snapshots:
            self._validate_snapshots()

    def _validate_end(self) -> None:
        name, phase, ended = self.name, self._phase, self._phase is _Phase.ENDED
        assert self.task_input.ended or self._restored_ended, f"{name}: {phase.value}, but its input has not ended"
        assert self.task_input.finished == ended, f"{name}: {phase.value}, input finished: {self.task_input.finished}"
        assert ended or self.state is not Progress.ENDED, f"{name}: {phase.value}, but {self.state.value}"
        assert not self._rang, f"{name}: {phase.value}, but a timer was called last"
        if ended:
            assert not self.chain.busy, f"{name}: its chain is busy after the end of its output"
            still_open = [c.name for output in self.chain.outputs for c in output.channels if not c.ended]
            assert not still_open, f"{name}: ended, but {still_open} have no end"

    def _validate_snapshots(self) -> None:
        name, taken = self.name, list(self._snapshots)
        assert len(taken) == 1, f"{name}: waits for the channel state of {taken}, at most one may be incomplete"
        floor = self.task_input.floor
        assert taken[0] < floor, f"{name}: {taken[0]} was taken, but the floor is {floor}"
        unsettled = [n for task, n in self.ledger.unsettled if task == name]
        assert taken[0] in unsettled, f"{name}: {taken[0]} is recorded, but only {unsettled} are unsettled"

    def close(self) -> list[BaseException]:
        """Record a last sample; close readers and operators; return their errors. No thread is in ``step`` any more."""
        if self._opened:  # else the time of its last step is when it was built, before the job began
            self._sample(max(self._since, self._began))
        errors = self.chain.close() if self._opened else []
        return [*errors, *self.task_input.close()]

    def free(self) -> None:
        """Free operators, rows that wait and copies of state. The task is closed; it has only its counts then."""
        self._snapshots.clear()
        self._collectors.clear()
        self.chain.free()
        for channel in self.channels:
            channel.free()


def _row(node: ChainNode) -> str:
    """Return the row that a function of ``node`` rejected last, or else the first row of the current batch, as text."""
    if node.tally.failed_row or node.current is None:
        return node.tally.failed_row
    batch: pa.RecordBatch = node.current.rows
    return "".join([shorten(row) for row in render_rows(batch.slice(0, 1))])


def _annotate(error: BaseException, task: Task) -> None:
    """Add notes on the origin of an error: operator, subtask, and a sample of the current batch."""
    node = task.chain.working
    if node is None:
        error.add_note(f"raised in task {task.name}")
        return
    error.add_note(f"raised by operator {node.name!r} ({type(node.operator).__name__}), subtask {task.name}")
    if node.current is not None:
        batch: pa.RecordBatch = node.current.rows
        sample = "\n".join(f"  {row}" for row in render_rows(batch.slice(0, 3)))
        names = ", ".join(name for name in batch.schema.names if name != ORDER)
        error.add_note(f"the current batch has {batch.num_rows} rows of [{names}]; first:\n{sample}")
