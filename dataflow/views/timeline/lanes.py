"""The lanes of a timeline: which tasks and inputs have one, in the order of the graph, and which share one.

A small job has a lane for each task and one for each of its inputs. In a large one only the tasks that matter have
lanes of their own: those in the chain of causes, and those that were blocked longest. The other subtasks of a vertex
share a lane, in which the slowest is shown. The inputs of a task from one vertex share a lane if they are many.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from dataflow.events.plan_shape import ChannelShape, PlanShape, VertexShape

__all__ = ["Block", "InputLane", "Interest", "Lanes", "TaskLane", "all_lanes", "choose_lanes", "inputs_of"]

FEW_LANES: Final = 48
"""A job with at most so many lanes has all of them."""
FEW_INPUTS: Final = 4
"""So many inputs of a task have a lane each, even in a large job."""
OPEN_TASKS: Final = 8
"""So many tasks beside the chain of causes have lanes of their own in a large job."""
OPEN_OF_A_VERTEX: Final = 2
"""So many of these are of one vertex."""


@dataclass(frozen=True, slots=True)
class InputLane:
    """A lane for inputs of one task. ``shown`` is the one that the lane is about; the others share it."""

    shown: ChannelShape
    channels: tuple[ChannelShape, ...]

    @property
    def words(self) -> str:
        """The begin of the label: the vertex whose rows come in here."""
        return f"from {self.shown.link.source}"

    @property
    def suffix(self) -> str:
        """The end of the label: the subtask whose rows come in, or how many inputs share the lane."""
        if len(self.channels) == 1:
            port = f" (input {self.shown.link.port})" if self.shown.link.is_parallel else ""
            return f"{self.shown.source.removeprefix(self.shown.link.source)}{port}"
        return f", {len(self.channels)} inputs"


@dataclass(frozen=True, slots=True)
class TaskLane:
    """A lane for a task with its inputs, or for several subtasks that share it. ``shown`` is the one it is about.

    Its label is ``words``, the vertex, and ``suffix``: the subtask, or how many share the lane.
    """

    shown: str
    tasks: tuple[str, ...]
    words: str
    suffix: str
    inputs: tuple[InputLane, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    """The lanes of one vertex, or of one task of it."""

    vertex: str
    lane: TaskLane


@dataclass(frozen=True, slots=True)
class Interest:
    """What is worth a lane of its own: ``causes`` are tasks and channels in the chain of causes.

    ``slowness`` and ``blocked`` are microseconds: until a task was complete, and how long a channel was blocked.
    """

    causes: Collection[str] = ()
    slowness: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, int] = field(default_factory=dict)
    least: int = 0
    """A channel that was blocked for less than this opens no lane."""


@dataclass(frozen=True)
class Lanes:
    """All lanes of a picture. ``is_folded``: some tasks or inputs share a lane."""

    blocks: tuple[Block, ...]
    is_folded: bool

    @property
    def tasks(self) -> Iterator[TaskLane]:
        """The lanes of tasks, from the top."""
        return (block.lane for block in self.blocks)


def choose_lanes(plan: PlanShape, interest: Interest, *, most: int = FEW_LANES) -> Lanes:
    """Return the lanes of a picture of the whole job."""
    inputs = inputs_of(plan)
    if len(plan.tasks) + len(plan.channels) <= most:
        blocks = [block for vertex in plan.vertices for block in _open_blocks(vertex, vertex.tasks, inputs, interest)]
        return Lanes(tuple(blocks), is_folded=False)
    opened = _tasks_to_open(plan, interest)
    blocks = []
    for vertex in plan.vertices:
        alone = [task for task in vertex.tasks if task in opened]
        blocks += _open_blocks(vertex, alone, inputs, interest, few=FEW_INPUTS)
        shared = [task for task in vertex.tasks if task not in opened]
        if shared:
            blocks.append(Block(vertex.name, _shared_lane(vertex, shared, interest)))
    return Lanes(tuple(blocks), is_folded=True)


def all_lanes(vertex: VertexShape, interest: Interest, inputs: _Inputs) -> Lanes:
    """Return a lane for each subtask of one vertex; inputs share lanes if they are many."""
    return Lanes(tuple(_open_blocks(vertex, vertex.tasks, inputs, interest, few=FEW_INPUTS)), is_folded=False)


_Inputs = Mapping[str, Sequence[ChannelShape]]


def inputs_of(plan: PlanShape) -> _Inputs:
    """Return the channels into each task, by port and source; none where they are not measured."""
    inputs: defaultdict[str, list[ChannelShape]] = defaultdict(list)
    for channel in sorted(plan.channels, key=lambda channel: channel.link.port) if plan.is_measured else ():
        inputs[channel.target].append(channel)
    return inputs


def _tasks_to_open(plan: PlanShape, interest: Interest) -> set[str]:
    """Return the tasks in the chain of causes, and of those that were blocked long the ones blocked longest."""
    longest: dict[str, tuple[int, ChannelShape]] = {}
    for name, length in interest.blocked.items():
        channel = plan.channels_by_name[name]
        if length >= interest.least and length > longest.get(channel.target, (0, channel))[0]:
            longest[channel.target] = length, channel
    opened: Counter[str] = Counter()
    blocked = []
    for task in sorted(longest, key=lambda task: -longest[task][0]):
        vertex = longest[task][1].link.target
        if opened[vertex] < OPEN_OF_A_VERTEX and opened.total() < OPEN_TASKS:
            opened[vertex] += 1
            blocked.append(task)
    return {task for task in plan.tasks if task in interest.causes} | set(blocked)


def _open_blocks(
    vertex: VertexShape, tasks: Sequence[str], inputs: _Inputs, interest: Interest, few: int | None = None
) -> Iterator[Block]:
    for task in tasks:
        lanes = tuple(_input_lanes(inputs.get(task, ()), interest, few))
        yield Block(vertex.name, TaskLane(task, (task,), vertex.name, task.removeprefix(vertex.name), lanes))


def _input_lanes(channels: Sequence[ChannelShape], interest: Interest, few: int | None) -> Iterator[InputLane]:
    by_link: defaultdict[tuple[str, int], list[ChannelShape]] = defaultdict(list)
    for channel in channels:
        by_link[channel.link.source, channel.link.port].append(channel)
    for together in by_link.values():
        if few is None or len(together) <= few:
            yield from (InputLane(channel, (channel,)) for channel in together)
            continue
        longest = max(together, key=lambda channel: interest.blocked.get(channel.name, 0))
        alone = [channel for channel in together if channel.name in interest.causes]
        if longest not in alone and interest.blocked.get(longest.name, 0) >= max(interest.least, 1):
            alone.append(longest)
        yield from (InputLane(channel, (channel,)) for channel in alone)
        rest = [channel for channel in together if channel not in alone]
        if rest:
            shown = max(rest, key=lambda c: (interest.slowness.get(c.name, 0), interest.blocked.get(c.name, 0)))
            yield InputLane(shown, tuple(rest))


def _shared_lane(vertex: VertexShape, tasks: Sequence[str], interest: Interest) -> TaskLane:
    slowest = max(tasks, key=lambda task: interest.slowness.get(task, 0))
    if len(tasks) == 1:
        return TaskLane(slowest, tuple(tasks), vertex.name, slowest.removeprefix(vertex.name))
    suffix = f", {len(tasks)} {'tasks' if len(tasks) == vertex.parallelism else 'others'}"
    return TaskLane(slowest, tuple(tasks), vertex.name, suffix)
