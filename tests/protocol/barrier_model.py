"""A model job, small enough to run every interleaving: the real coordinator, channels, gates and handlers.

A task here is what ``Task`` does about checkpoints, and no operators: a step takes the messages, starts the triggers
whose time has come, and polls one element. Sources have no rows, and end at any
time. Parts and manifests are durable at once.

``interleavings`` takes every order of steps and every choice among channels, and tells states apart by content, so it
ends. In each state in which nothing can move any more, the ``BarrierLedger`` must be settled, and the job released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from dataflow.contracts.checkpointing import Mode
from dataflow.protocol.actions import Abort, Action, Complete, Ignore, PassOver, TakeSnapshot
from dataflow.protocol.alignment import Aligner, EndOfInputPolicy
from dataflow.protocol.barrier_ledger import BarrierLedger
from dataflow.protocol.checkpoint_policy import CheckpointPolicy
from dataflow.protocol.coordination import Coordinator
from dataflow.protocol.coordinator_actions import (
    AbortTasks,
    CoordinatorAction,
    FailureReason,
    Inject,
    Notify,
    Persist,
    Release,
)
from dataflow.protocol.events import Barrier, BarrierKind, Cancel, Element, EndOfInput
from dataflow.protocol.handler import BarrierHandler
from dataflow.protocol.overtaking import Overtaker
from dataflow.protocol.tracking import Tracker
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.input_gate import InputGate, Taken

__all__ = ["ModelTask", "Setting", "interleavings"]

TIMEOUT = 100
"""Microseconds after which a barrier overtakes in mode ``aligned-timeout``."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a model job is: tasks with their predecessors, the checkpoints asked for, and snapshots that fail.

    Channels that begin at a task in ``aligned_edges`` cannot be overtaken. A task has the number of batches in
    ``put_back`` to take before all channels.
    """

    mode: Mode
    topology: Mapping[str, str] = field(default_factory=lambda: {"s": "", "t": "", "j": "st"})
    kinds: Sequence[BarrierKind] = (BarrierKind.CHECKPOINT,) * 2
    max_concurrent: int = 2
    fails: frozenset[tuple[str, int]] = frozenset()
    aligned_edges: str = ""
    put_back: Mapping[str, int] = field(default_factory=dict)


class ModelTask:
    """One task. ``task_input`` is None for a source."""

    def __init__(
        self, name: str, task_input: ChannelInput | None, handler: BarrierHandler | None, job: ModelJob
    ) -> None:
        self.name = name
        self.task_input = task_input
        self.handler = handler
        self.outputs: list[Channel] = []
        self.mailbox: deque[Inject | AbortTasks] = deque()
        self.phase = "running"  # then "ended"
        self.held: list[Barrier] = []  # by a source
        self.taken: set[int] = set()
        self.put_back = job.setting.put_back.get(name, 0)
        self._job = job

    def step(self) -> bool:
        worked = bool(self.mailbox)
        while self.mailbox:
            self._receive(self.mailbox.popleft())
        if self.task_input is None:
            return self._step_source() or worked
        triggered = self.task_input.triggered_ahead if self.put_back else self.task_input.triggered
        while actions := triggered(self._job.now):
            self._act(actions)
            worked = True
        actions = self.task_input.tick(self._job.now)
        self._act(actions)
        if self.phase == "ended":
            return worked or bool(actions)
        if self.task_input.ended:
            self._end()
            return True
        taken = self._poll(self.task_input.gate)
        if taken is None and self.put_back:
            self.put_back -= 1
            return True
        if taken is None:
            return worked or bool(actions)
        self._act(taken.actions)
        return True

    def _poll(self, gate: InputGate) -> Taken | None:
        return gate.poll_urgent(self._job.now) if self.put_back else gate.poll(self._job.now)

    def _step_source(self) -> bool:
        for barrier in self.held:
            self._act([TakeSnapshot(barrier), Complete(barrier.checkpoint)])
        worked, self.held = bool(self.held), []
        if self.phase == "ended":
            return worked
        self._end()
        return True

    def _end(self) -> None:
        self._send(EndOfInput())
        self.phase = "ended"
        if self.task_input is not None:
            self.task_input.finished = True
        self._job.inbox.append(("finish", self.name, 0))

    def _receive(self, message: Inject | AbortTasks) -> None:
        match message:
            case Inject(checkpoint=checkpoint) as inject:
                finished = self.name in inject.finished
                if finished != (self.phase == "ended"):
                    self._answer("decline", checkpoint)
                elif self.task_input is None:
                    self.held.append(self._job.barrier(inject))
                else:
                    self.task_input.trigger(self._job.barrier(inject))
            case AbortTasks(checkpoint, reason):
                self.held = [barrier for barrier in self.held if barrier.checkpoint != checkpoint]
                if self.task_input is not None:
                    self._act(self.task_input.abort(checkpoint, reason.at_tasks, self._job.now))
                self._job.ledger.settled(self.name, checkpoint)

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case TakeSnapshot(barrier):
                    assert barrier.unaligned or not self.put_back, f"{barrier} aligns ahead of put-back rows"
                    self._send(barrier)
                    if (self.name, barrier.checkpoint) in self._job.setting.fails:
                        self._send(Cancel(barrier.checkpoint))
                        self._answer("decline", barrier.checkpoint)
                    else:
                        self.taken.add(barrier.checkpoint)
                case Complete(checkpoint) if checkpoint in self.taken:
                    self._answer("acknowledge", checkpoint)
                case Abort(checkpoint):
                    self.taken.discard(checkpoint)
                    self._send(Cancel(checkpoint))
                    self._answer("decline", checkpoint)
                case PassOver(checkpoint):
                    self._answer("decline", checkpoint)
                case Complete() | Ignore():
                    pass

    def _answer(self, answer: str, checkpoint: int) -> None:
        self._job.inbox.append((answer, self.name, checkpoint))

    def _send(self, element: Element) -> None:
        if self.phase == "ended":
            return
        for channel in self.outputs:
            channel.put(element)

    @property
    def content(self) -> str:
        gate: Sequence[Any] = ()
        if self.task_input is not None:
            queues = [
                (list(c._queue), [(e, n - c._taken) for e, n in c._urgent]) for c in self.task_input.gate.channels
            ]
            gate_state = self.task_input.gate
            gate = (queues, gate_state.snapshot(), gate_state._ended)
        held = self.held if self.task_input is None else self.task_input._held
        return repr(
            (self.phase, self.put_back, held, list(self.mailbox), sorted(self.taken), gate, _content(self.handler))
        )


class ModelJob:
    """The tasks of ``setting`` and the coordinator. ``choose(n)`` decides between n possibilities."""

    def __init__(self, setting: Setting, choose: Callable[[int], int]) -> None:
        self.setting = setting
        self.now = 0
        self.ledger = BarrierLedger()
        self.inbox: deque[tuple[str, str, int]] = deque()
        policy = CheckpointPolicy(max_concurrent=setting.max_concurrent, tolerable_failures=None)
        topology = {name: tuple(before) for name, before in setting.topology.items()}
        self.coordinator = Coordinator(topology, policy, next_id=1, now=0)
        self.asked = 0
        self.released = False
        self.tasks: dict[str, ModelTask] = {}
        overtakes = setting.mode in (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)
        for name, before in setting.topology.items():
            if not before:
                self.tasks[name] = ModelTask(name, None, None, self)
                continue
            edges = {i for i, one in enumerate(before) if one in setting.aligned_edges}
            channels = [
                Channel(9, f"{one} -> {name}", overtakable=overtakes and i not in edges) for i, one in enumerate(before)
            ]
            handler = _handler(setting.mode, len(before), edges)
            gate = InputGate(channels, handler, lambda ready: ready[choose(len(ready))])
            self.tasks[name] = ModelTask(name, ChannelInput(gate), handler, self)
            for one, channel in zip(before, channels, strict=True):
                self.tasks[one].outputs.append(channel)

    def barrier(self, inject: Inject) -> Barrier:
        unaligned = self.setting.mode is Mode.UNALIGNED_PERSISTED and inject.kind is not BarrierKind.SAVEPOINT
        return Barrier(inject.checkpoint, inject.kind, 0, unaligned)

    def actors(self) -> list[tuple[str, Callable[[], bool]]]:
        """What can be stepped. A step that does nothing leaves the state as it is."""
        actors = [(name, task.step) for name, task in self.tasks.items()]
        if self.inbox:
            actors.append(("coordinator", self._hear))
        if self.asked < len(self.setting.kinds):
            actors.append(("request", self._ask))
        if self.setting.mode is Mode.ALIGNED_TIMEOUT and self.now == 0:
            actors.append(("clock", self._pass_time))
        return actors

    def _ask(self) -> bool:
        kind = self.setting.kinds[self.asked]
        self.asked += 1
        self._carry_out(self.coordinator.trigger(kind, 0, None))
        return True

    def _pass_time(self) -> bool:
        self.now = TIMEOUT + 1
        return True

    def _hear(self) -> bool:
        what, task, checkpoint = self.inbox.popleft()
        match what:
            case "acknowledge":
                self.ledger.settled(task, checkpoint)
                self._carry_out(self.coordinator.acknowledge(task, checkpoint, task, 0))
            case "decline":
                self.ledger.settled(task, checkpoint)
                self._carry_out(self.coordinator.decline(task, checkpoint, FailureReason.SUBSUMED, 0))
            case _:
                self._carry_out(self.coordinator.finish(task, 0))
        return True

    def _carry_out(self, actions: Sequence[CoordinatorAction]) -> None:
        for action in actions:
            match action:
                case Inject(checkpoint=checkpoint, running=running, finished=finished):
                    self.ledger.triggered(checkpoint, self.tasks, self.now)
                    for name in (*running, *finished):
                        self.tasks[name].mailbox.append(action)
                case AbortTasks():
                    for task in self.tasks.values():
                        task.mailbox.append(action)
                case Persist(checkpoint):
                    self._carry_out(self.coordinator.persisted(checkpoint, 0))
                case Notify(checkpoint):
                    self._carry_out(self.coordinator.committed(checkpoint, 0))
                case Release():
                    self.released = True
                case _:
                    pass

    @property
    def content(self) -> str:
        """The state, as text."""
        tasks = [task.content for task in self.tasks.values()]
        coordinator = {name: _content(part) for name, part in vars(self.coordinator).items() if name != "_timetable"}
        return repr((self.asked, self.now, list(self.inbox), coordinator, self.ledger.unsettled, tasks))


def _handler(mode: Mode, channels: int, edges: set[int]) -> BarrierHandler:
    match mode:
        case Mode.ALIGNED:
            return Aligner(channels, end_of_input=EndOfInputPolicy.ALIGN)
        case Mode.UNALIGNED:
            return Tracker(channels)
        case Mode.UNALIGNED_PERSISTED | Mode.ALIGNED_TIMEOUT:
            timeout = TIMEOUT if mode is Mode.ALIGNED_TIMEOUT else None
            return Overtaker(channels, aligned_edges=edges, timeout=timeout)


def _content(thing: Any) -> Any:
    """What is in a handler or a part of the coordinator, in a form that equals that of an equal one."""
    if isinstance(thing, set | frozenset):
        return sorted(thing)
    slots = [slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())]
    named = {slot: getattr(thing, slot) for slot in slots} or getattr(thing, "__dict__", {})
    if not named or isinstance(thing, Barrier | Enum):
        return repr(thing)
    return [(name, _content(value)) for name, value in named.items()]


def interleavings(setting: Setting, limit: int = 10**9) -> int:
    """Run every interleaving of ``setting``, or those of the first ``limit`` states; return the number of states.

    Raises: AssertionError for a state in which nothing moves and a barrier has no answer, with the steps to it.
    """
    seen: set[int] = set()
    todo: list[list[int]] = [[]]
    while todo and len(seen) < limit:
        way = _Way(todo.pop(), todo)
        job, steps = ModelJob(setting, way.choose), []
        while not way.is_new or _is_first(hash(job.content), seen):
            actors = job.actors()
            moved = way.first(actors)
            if moved is None:
                break
            if not moved:
                _check(job, f"{setting}, after {' '.join(steps)}")
                break
            steps.append(moved)
    return len(seen)


def _is_first(content: int, seen: set[int]) -> bool:
    known = len(seen)
    seen.add(content)
    return len(seen) > known


def _check(job: ModelJob, where: str) -> None:
    assert not job.ledger.unsettled, f"{job.ledger}: {where}"
    blocked = [name for name, task in job.tasks.items() if task.handler is not None and task.handler.blocked]
    assert not blocked, f"{blocked} are blocked: {where}"
    assert not job.coordinator.under_way, f"{job.coordinator.under_way} are under way: {where}"
    assert job.released, f"the last checkpoint was not taken: {where}"


class _Way:
    """The choices of one run: those given, then the first ones; the others are added to ``todo``."""

    def __init__(self, given: list[int], todo: list[list[int]]) -> None:
        self._chosen: list[int] = []
        self._given = given
        self._todo = todo

    @property
    def is_new(self) -> bool:
        """Whether the choices given have been made."""
        return len(self._chosen) >= len(self._given)

    def choose(self, n: int) -> int:
        """One of n possibilities."""
        index = len(self._chosen)
        choice = self._given[index] if not self.is_new else 0
        if self.is_new:
            self._todo += [[*self._chosen, other] for other in range(1, n)]
        self._chosen.append(choice)
        return choice

    def first(self, actors: Sequence[tuple[str, Callable[[], bool]]]) -> str | None:
        """Step the first of ``actors``, from the one given on, that moves; the ones behind it are for other runs.

        An actor that does not move leaves the job as it is. None: none of these moves; "": none at all.
        """
        index, place = len(self._chosen), len(self._todo)
        start = 0 if self.is_new else self._given[index]
        for choice in range(start, len(actors)):
            del self._chosen[index:]
            self._chosen.append(choice)
            name, step = actors[choice]
            if step():
                if index >= len(self._given) - 1 and choice + 1 < len(actors):
                    self._todo.insert(place, [*self._chosen[:index], choice + 1])
                return name
        return None if start else ""
