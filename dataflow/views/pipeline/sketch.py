"""What a picture of a pipeline shows, before it is drawn: boxes, what is in them, and labelled arrows between them.

``logical_sketch`` has a box per operator, as the user wrote the pipeline; ``physical_sketch`` has a box per vertex,
with its tasks and the operators chained in them. Layout, SVG, Mermaid and text are made of a sketch alone.

>>> plan = PlanShape("local", (OperatorShape("in", "read", "source"),
...     OperatorShape("sum", "aggregate", inputs=(InputShape("in", None, ("k",), "hash"),), stateful=True)))
>>> sketch = logical_sketch("totals", plan)
>>> sketch.boxes[1].operators[0].shape, sketch.arrows[0].label
(<BoxShape.STATEFUL: 'stateful'>, 'by k')
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dataflow.events.plan_shape import InputShape, LinkShape, OperatorShape, PlanShape, VertexShape, task_id

__all__ = ["BoxShape", "Sketch", "SketchArrow", "SketchBox", "SketchOperator", "logical_sketch", "physical_sketch"]

_STREAM: Final = "\0stream"
"""The name of the box at the end of a stream that nothing reads yet: no operator has a NUL in its name."""
_ADDED: Final = {"combine": "folds rows per key"}
"""What operators do that the planner adds, by the end of their names."""


class BoxShape(Enum):
    """The outline of an operator, which says its role without colour."""

    SOURCE = "source"
    TRANSFORM = "transform"
    STATEFUL = "stateful"
    SINK = "sink"
    STREAM = "stream"


@dataclass(frozen=True, slots=True)
class SketchOperator:
    """An operator in a box.

    Attributes:
        name: its name.
        words: what it is, such as "aggregate, keeps state".
        shape: its outline.
        parent: the position, in the same box, of the operator whose rows it takes without a queue; None: of no one.
    """

    name: str
    words: str
    shape: BoxShape
    parent: int | None = None


@dataclass(frozen=True, slots=True)
class SketchBox:
    """An operator, or a vertex with the operators that are chained in it. ``tasks`` is 0 for an operator alone."""

    name: str
    operators: tuple[SketchOperator, ...]
    tasks: int = 0

    @property
    def count(self) -> str:
        """The number of tasks in words, such as "2 tasks"."""
        return _count(self.tasks, "task")

    @property
    def task_names(self) -> str:
        """The names of the tasks, the first and the last if there are many."""
        first, last = task_id(self.name, 0), task_id(self.name, self.tasks - 1)
        return first if self.tasks == 1 else f"{first}{', ' if self.tasks == 2 else ' to '}{last}"


@dataclass(frozen=True, slots=True)
class SketchArrow:
    """Rows from one box to another.

    Attributes:
        source, target: the names of the boxes.
        operator: the operator in the source whose rows they are.
        lines: what happens to the rows on their way; none if that is nothing special.
        partitioning: "forward", "hash", "rebalance" or "broadcast"; None if that is the planner's choice.
        channels: how many channels there are; 0 in a logical sketch.
    """

    source: str
    target: str
    operator: str
    lines: tuple[str, ...] = ()
    partitioning: str | None = None
    channels: int = 0

    @property
    def label(self) -> str:
        """The lines as one."""
        return ", ".join(self.lines)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Boxes in topological order, and arrows by target and input. ``summary`` says in words how much there is."""

    title: str
    summary: str
    boxes: tuple[SketchBox, ...]
    arrows: tuple[SketchArrow, ...]


def logical_sketch(title: str, plan: PlanShape, *, parallelism: int = 1, end: InputShape | None = None) -> Sketch:
    """Return the operators of a pipeline and the streams between them.

    Args:
        title: the name of the pipeline.
        plan: the plan; its vertices are not looked at.
        parallelism: how many subtasks an operator has that says nothing else; 1 is not shown.
        end: a stream that is shown as an open end.
    """
    boxes = [
        SketchBox(operator.name, (_operator(operator, subtasks=operator.parallelism or parallelism),))
        for operator in plan.operators
    ]
    arrows = [_stream(source, operator.name) for operator in plan.operators for source in operator.inputs]
    if end is not None:
        boxes.append(SketchBox(_STREAM, (SketchOperator("this stream", "", BoxShape.STREAM),)))
        arrows.append(_stream(end, _STREAM))
    return Sketch(title, _count(len(plan.operators), "operator"), tuple(boxes), tuple(arrows))


def physical_sketch(title: str, plan: PlanShape) -> Sketch:
    """Return the vertices of a plan, with their tasks and chains, and the links between them."""
    operators = {operator.name: operator for operator in plan.operators}
    chains = {vertex.name: _chain(vertex, operators) for vertex in plan.vertices}
    boxes = [SketchBox(vertex.name, chains[vertex.name], vertex.parallelism) for vertex in plan.vertices]
    width = {vertex.name: vertex.parallelism for vertex in plan.vertices}
    last = {name: chain[-1].name for name, chain in chains.items() if chain}
    arrows = [
        _link(link, width[link.source], width[link.target], last.get(link.source))
        for vertex in plan.vertices
        for link in plan.inputs(vertex.name)
    ]
    counts = (
        _count(len(boxes), "vertex", "vertices"),
        _count(sum(width.values()), "task"),
        _count(sum([arrow.channels for arrow in arrows]), "channel"),
    )
    return Sketch(title, ", ".join(counts), tuple(boxes), tuple(arrows))


def _operator(operator: OperatorShape, *, parent: int | None = None, subtasks: int = 1) -> SketchOperator:
    shape = {"source": BoxShape.SOURCE, "sink": BoxShape.SINK}.get(operator.role)
    if shape is None:
        shape = BoxShape.STATEFUL if operator.stateful else BoxShape.TRANSFORM
    role = f"{operator.role}, " if operator.role in ("source", "sink") else ""
    state = ", keeps state" if shape is BoxShape.STATEFUL else ""
    times = "" if subtasks == 1 else f", {subtasks} subtasks"
    return SketchOperator(operator.name, f"{role}{operator.label or operator.kind}{state}{times}", shape, parent)


def _stream(source: InputShape, target: str) -> SketchArrow:
    words = [] if source.tag is None else [f"side output {source.tag}"]
    if source.partitioning == "hash":
        words.append(_by(source.keys))
    elif source.partitioning is not None and source.partitioning != "forward":
        words.append(source.partitioning)
    lines = (", ".join(words),) if words else ()
    return SketchArrow(source.operator, target, source.operator, lines, source.partitioning)


def _link(link: LinkShape, sources: int, targets: int, last: str | None) -> SketchArrow:
    channels = targets if link.partitioning == "forward" else sources * targets
    is_clear = link.operator == last or link.operator.rpartition("/")[0] == link.target  # the rows folded for it
    origin = [] if is_clear else [f"from {link.operator}"]
    origin += [] if link.tag is None else [f"side output {link.tag}"]
    how = f"hash {_by(link.keys)}" if link.partitioning == "hash" else link.partitioning
    is_straight = link.partitioning == "forward" or channels == 1
    count = _count(channels, "channel") if is_straight else f"{sources} x {targets} channels"
    lines = (*([", ".join(origin)] if origin else []), f"{how}, {count}")
    return SketchArrow(link.source, link.target, link.operator, lines, link.partitioning, channels)


def _chain(vertex: VertexShape, operators: Mapping[str, OperatorShape]) -> tuple[SketchOperator, ...]:
    """Return the operators of a vertex, each after its parent and its parent's other children."""
    parents = [None if i == 0 else _parent(i, vertex.operators, operators) for i in range(len(vertex.operators))]
    order = list(_depth_first(parents))
    moved = {old: new for new, old in enumerate(order)}
    chain: list[SketchOperator] = []
    for old in order:
        name, parent = vertex.operators[old], parents[old]
        operator = operators.get(name) or OperatorShape(name, _ADDED.get(name.rpartition("/")[2], "added"))
        chain.append(_operator(operator, parent=None if parent is None else moved[parent]))
    return tuple(chain)


def _parent(child: int, chain: Sequence[str], operators: Mapping[str, OperatorShape]) -> int:
    """Return the position of the operator earlier in the chain whose rows the one at ``child`` takes."""
    before = {name: i for i, name in enumerate(chain[:child])}
    name, _, added = chain[child].rpartition("/")  # "counts/combine" takes rows from where counts does
    pending = [name if added in _ADDED else chain[child]]
    for name in pending:  # grows while it is walked
        if name in before:
            return before[name]
        sources = operators[name].inputs if name in operators else ()
        pending += [source.operator for source in sources if source.operator not in pending]
    return child - 1  # the planner added it, after the operator before it


def _depth_first(parents: Sequence[int | None]) -> Iterator[int]:
    children: dict[int | None, list[int]] = {}
    for child, parent in enumerate(parents):
        children.setdefault(parent, []).append(child)
    pending = children.get(None, [])[::-1]
    while pending:
        node = pending.pop()
        yield node
        pending += reversed(children.get(node, []))


def _by(keys: Sequence[str]) -> str:
    return f"by {', '.join(keys)}" if keys else "without keys, all rows to one task"


def _count(number: int, one: str, several: str = "") -> str:
    return f"{number or 'no'} {one if number == 1 else several or one + 's'}"
