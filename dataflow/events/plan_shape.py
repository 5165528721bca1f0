"""The plan of a job as plain data: operators, vertices, links and channels. Recordings hold it as JSON.

>>> shape = PlanShape(engine="local", vertices=(VertexShape("in", 1, ("in",)), VertexShape("sum", 2, ("sum", "out"))),
...     links=(LinkShape("in", "sum", "in", "hash", keys=("k",)),))
>>> [channel.name for channel in shape.channels]
['in[0] -> sum[0]', 'in[0] -> sum[1]']
>>> plan_from_json(shape.to_json()) == shape
True
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Final

import msgspec

from dataflow.errors import EventsDamaged
from dataflow.events.repeat_precision import Precision

__all__ = [
    "ChannelShape",
    "InputShape",
    "LinkShape",
    "OperatorShape",
    "PlanShape",
    "VertexShape",
    "channel_ends",
    "channel_name",
    "plan_from_json",
    "task_id",
]

MAX_TASKS: Final = 100_000
MAX_CHANNELS: Final = 2_000_000
"""Bounds of a plan that is read from a file: more is refused before it is counted out."""

_CHANNEL: Final = re.compile(
    r"(?P<source>[^\[\]]+\[[0-9]{1,9}\]) -> (?P<target>[^\[\]]+\[[0-9]{1,9}\])( \(input (?P<port>[0-9]{1,9})\))?"
)

_Parallelism = Annotated[int, msgspec.Meta(ge=1, le=32_768)]
_Port = Annotated[int, msgspec.Meta(ge=0, lt=65_536)]


def task_id(vertex: str, subtask: int) -> str:
    """Return the name of one subtask, in messages and in checkpoints.

    >>> task_id("counts", 1)
    'counts[1]'
    """
    return f"{vertex}[{subtask}]"


def channel_name(source: str, target: str, port: int | None = None) -> str:
    """Return the name of a channel between two tasks; ``port`` if several connect the same two.

    >>> channel_name("in[0]", "sum[1]"), channel_name("a[0]", "b[0]", 1)
    ('in[0] -> sum[1]', 'a[0] -> b[0] (input 1)')
    """
    return f"{source} -> {target}" + ("" if port is None else f" (input {port})")


def channel_ends(name: str) -> tuple[str, str, int | None] | None:
    """Return the two tasks and the port in a name that ``channel_name`` returned; None: it is no such name.

    Names of operators hold no brackets, so this is exact.

    >>> channel_ends("a[0] -> b[1] (input 1)"), channel_ends("a[0] -> b[1]"), channel_ends("b")
    (('a[0]', 'b[1]', 1), ('a[0]', 'b[1]', None), None)
    """
    ends = _CHANNEL.fullmatch(name)
    if ends is None:
        return None
    return ends["source"], ends["target"], None if ends["port"] is None else int(ends["port"])


class InputShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An input of an operator: the operator it takes rows from, its side output ``tag``, and the keys of the rows."""

    operator: str
    tag: str | None = None
    keys: tuple[str, ...] = ()
    partitioning: str | None = None


class OperatorShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A logical operator, as the user wrote it. ``role`` is "source", "sink" or "transform".

    ``parallelism`` is the operator's own; None if it has the one of the job. ``repeat_precision`` is how precise the
    event ``repeats`` counts at this operator. ``label`` is its kind in words, for readers; None: ``kind``.
    """

    name: str
    kind: str
    role: str = "transform"
    inputs: tuple[InputShape, ...] = ()
    stateful: bool = False
    parallelism: _Parallelism | None = None
    repeat_precision: Precision = Precision.EXACT
    label: str | None = None


class VertexShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Operators that run fused in one task, the head first, ``parallelism`` times."""

    name: str
    parallelism: _Parallelism
    operators: tuple[str, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of its subtasks."""
        return tuple([task_id(self.name, i) for i in range(self.parallelism)])


class LinkShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rows of ``operator`` (its side output ``tag``) in vertex ``source`` to an input of the head of ``target``.

    ``partitioning`` is "forward", "hash", "rebalance" or "broadcast". ``port`` is the input of the head.
    ``is_parallel``: another link connects the same two vertices, so names of channels have the port.
    """

    source: str
    target: str
    operator: str
    partitioning: str
    port: _Port = 0
    tag: str | None = None
    keys: tuple[str, ...] = ()
    is_parallel: bool = False

    @property
    def overtakable(self) -> bool:
        """Whether a barrier may overtake rows here: elsewhere, the order of a channel decides which task owns a row."""
        return self.partitioning in ("hash", "rebalance")


@dataclass(frozen=True, slots=True)
class ChannelShape:
    """A channel: its name as in ``RunResult.blocked``, its tasks, and its link."""

    name: str
    source: str
    target: str
    link: LinkShape


class PlanShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """The plan of a job. ``engine`` is "local", "simulated" or "spark". Vertices are in topological order."""

    engine: str
    operators: tuple[OperatorShape, ...] = ()
    vertices: tuple[VertexShape, ...] = ()
    links: tuple[LinkShape, ...] = ()

    @property
    def is_measured(self) -> bool:
        """Whether gates and tasks record events: on Spark, only the driver does."""
        return self.engine != "spark"

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """The names of all subtasks, in the order of the vertices."""
        return tuple([task for vertex in self.vertices for task in vertex.tasks])

    @cached_property
    def channels(self) -> tuple[ChannelShape, ...]:
        """All channels, by link, target and source. On Spark there are none."""
        return tuple(self._channels()) if self.is_measured else ()

    @cached_property
    def channels_by_name(self) -> Mapping[str, ChannelShape]:
        """The channels by name."""
        return {channel.name: channel for channel in self.channels}

    def _channels(self) -> Iterator[ChannelShape]:
        width = {vertex.name: vertex.parallelism for vertex in self.vertices}
        for link in self.links:
            for s, t in _pairs(link, width[link.source], width[link.target]):
                source, target = task_id(link.source, s), task_id(link.target, t)
                name = channel_name(source, target, link.port if link.is_parallel else None)
                yield ChannelShape(name, source, target, link)

    @property
    def task_count(self) -> int:
        """The number of ``tasks``, without making them."""
        return sum([vertex.parallelism for vertex in self.vertices])

    @property
    def channel_count(self) -> int:
        """The number of ``channels``, without making them."""
        if not self.is_measured:
            return 0
        width = {vertex.name: vertex.parallelism for vertex in self.vertices}
        return sum([_pair_count(link, width[link.source], width[link.target]) for link in self.links])

    @property
    def operator_names(self) -> tuple[str, ...]:
        """The names of the operators of all vertices, and then of logical operators that are in none."""
        names = [name for vertex in self.vertices for name in vertex.operators]
        return tuple(dict.fromkeys([*names, *[operator.name for operator in self.operators]]))

    @cached_property
    def repeat_precisions(self) -> Mapping[str, Precision]:
        """How precise the event ``repeats`` counts at each logical operator."""
        return {operator.name: operator.repeat_precision for operator in self.operators}

    def vertex(self, name: str) -> VertexShape:
        """Return the vertex of this name. Raises: KeyError."""
        for vertex in self.vertices:
            if vertex.name == name:
                return vertex
        raise KeyError(name)

    def inputs(self, vertex: str) -> Sequence[LinkShape]:
        """Return the links into a vertex, by port."""
        return sorted([link for link in self.links if link.target == vertex], key=lambda link: link.port)

    def to_json(self) -> str:
        """Return the plan as JSON text."""
        return msgspec.json.encode(self).decode()


def _pairs(link: LinkShape, sources: int, targets: int) -> Iterator[tuple[int, int]]:
    if link.partitioning == "forward":
        yield from ((i, i) for i in range(targets))
    else:
        yield from ((s, t) for t in range(targets) for s in range(sources))


def _pair_count(link: LinkShape, sources: int, targets: int) -> int:
    return targets if link.partitioning == "forward" else sources * targets


def plan_from_json(text: str | bytes) -> PlanShape:
    """Return the plan that ``to_json`` wrote. The text is untrusted.

    Raises: EventsDamaged if it is no plan, names what it does not have, or is too large to be one.
    """
    try:
        plan = msgspec.json.decode(text, type=PlanShape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EventsDamaged(f"the plan in the recording cannot be read: {error}") from error
    width = {vertex.name: vertex.parallelism for vertex in plan.vertices}
    operators = {operator.name for operator in plan.operators}
    _require(len(width) == len(plan.vertices), "two vertices have one name")
    _require(len(operators) == len(plan.operators), "two operators have one name")
    _require(sum(width.values()) <= MAX_TASKS, f"it has more than {MAX_TASKS:,} tasks")
    for operator in plan.operators:
        for source in operator.inputs:
            _require(source.operator in operators, f"{operator.name!r} reads {source.operator!r}, which is no operator")
    for link in plan.links:
        _require(link.source in width and link.target in width, f"a link joins {link.source!r} and {link.target!r}")
        wide = width[link.source], width[link.target]
        _require(link.partitioning != "forward" or wide[0] == wide[1], f"a forward link joins {wide} subtasks")
    _require(plan.channel_count <= MAX_CHANNELS, f"it has more than {MAX_CHANNELS:,} channels")
    return plan


def _require(holds: bool, why: str) -> None:  # noqa: FBT001 - the condition
    if not holds:
        raise EventsDamaged(f"the plan in the recording is damaged: {why}")
