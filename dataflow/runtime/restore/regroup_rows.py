"""Deal rows in flight out to the new tasks. They belong to an input port of an operator, not to a channel.

By key on a hash edge, and by the update keys of a stream of updates; other rows go to any subtask. Watermarks,
idleness and ends in flight are dropped, because time starts again. The rows that channels held get a generation of
their own, above those of rows that an earlier restore had put back: lower generations come first, so the rows of a key
keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataflow.contracts.updates import Updates
from dataflow.errors import CheckpointDamaged
from dataflow.events.plan_shape import channel_ends
from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import Plan, Vertex
from dataflow.protocol.events import Data
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.runtime.task.put_back import put_back_id
from dataflow.untrusted import excerpt

__all__ = ["port_of", "regroup_rows"]


@dataclass(slots=True)
class _Dealt:
    """The rows of one generation for one port of an operator in one new task."""

    schema: Any
    rows: list[Data] = field(default_factory=list)


def regroup_rows(
    nodes: Sequence[Mapping[str, Any]], states: Mapping[str, TaskState], plan: Plan
) -> dict[str, list[ChannelState]]:
    """Return the rows in flight for each task of ``plan``, by ascending generation.

    Args:
        nodes: the operators, as the checkpoint describes them.
        states: the state of each old task, in the order of the tasks.
        plan: the new plan.

    Raises: CheckpointDamaged for rows on a channel that the old job had not.
    """
    inputs = {str(node["name"]): list(node["inputs"]) for node in nodes}
    flying = [captured for state in states.values() for captured in state.in_flight]
    newest = 1 + max([captured.generation for captured in flying], default=0)
    targets = {node.name: vertex for vertex in plan.vertices.values() for node in vertex.nodes}
    numbers: dict[str, int] = {}
    dealt: dict[tuple[str, int, str, int], _Dealt] = {}  # by task, generation, operator and port
    for state in states.values():
        for captured in state.in_flight:
            name = captured.operator
            port, generation = port_of(captured, states, inputs.get(name, [])), captured.generation or newest
            if name not in targets:
                raise CheckpointDamaged(f"rows are in flight to operator {excerpt(name)}, which does not exist")
            vertex, number = targets[name], numbers.setdefault(state.task, len(numbers))
            for element in captured.elements:
                if isinstance(element, Data):
                    for subtask, rows in _divided(element.rows, name, port, number, plan, vertex):
                        place = vertex.tasks[subtask], generation, name, port
                        dealt.setdefault(place, _Dealt(captured.schema)).rows.append(Data(rows))
    found: dict[str, list[ChannelState]] = {}
    subtasks = {task: subtask for _, subtask, task in plan.tasks()}
    for (task, generation, name, port), each in sorted(dealt.items(), key=lambda entry: entry[0][1:]):
        channel = put_back_id(name, subtasks[task], port, generation).name
        put_back = ChannelState(name, task, channel, each.rows, each.schema, port=port, generation=generation)
        found.setdefault(task, []).append(put_back)
    return found


def port_of(captured: ChannelState, states: Mapping[str, TaskState], inputs: Sequence[str]) -> int:
    """Return the input port of its operator that a channel of the old job fed.

    Args:
        captured: the state of the channel, or rows that an earlier restore had put back.
        states: the state of each old task.
        inputs: the operators that the operator took rows from, by port.

    Raises: CheckpointDamaged for a channel that the old job had not.
    """
    if captured.port is not None:
        return captured.port
    source, target, port = channel_ends(captured.channel) or ("", "", None)
    if source in states and target == captured.task and (port is None or port < len(inputs)):
        if port is not None:
            return port
        names = states[source].names
        return next((port for port, name in enumerate(inputs) if name in names), 0)
    raise CheckpointDamaged(f"rows are in flight on {excerpt(captured.channel)}, but the job had no such channel")


def _divided(rows: Any, name: str, port: int, number: int, plan: Plan, vertex: Vertex) -> Sequence[tuple[int, Any]]:
    """Return the rows of a batch for each new subtask; ``number`` tells apart the tasks that they come from."""
    from dataflow.state.partition import hash_partition

    node = next(node for node in vertex.nodes if node.name == name)
    if port >= len(node.inputs):
        raise CheckpointDamaged(f"rows are in flight to input {port} of {excerpt(name)}, which has {len(node.inputs)}")
    links = [link for link in plan.inputs(vertex.name) if link.port == port] if node is vertex.head else []
    meaning = plan.graph.meaning_of(node.inputs[port])
    if links and links[0].partitioning is Partitioning.HASH:
        keys: Sequence[str] = links[0].keys
    elif isinstance(meaning, Updates):
        keys = meaning.keys
    else:
        return [(number % vertex.parallelism, rows)]
    parts = hash_partition(rows, keys, vertex.parallelism, plan.max_key_groups)
    return [(subtask, part) for subtask, part in enumerate(parts) if part is not None]
