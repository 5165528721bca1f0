"""Put the rows in flight of a checkpoint back: into the channels of the new job, or before all channels of a task.

Channel state returns to the channel of its name. Put-back rows (``ChannelState.generation`` above 0) belong to an input
of an operator, whatever its edge is in the new plan: see ``dataflow.runtime.task.put_back``.

All rows are checked first: the edge must have the same columns, and the rows must match its schema, because kernels
downstream trust their types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.contracts.updates import CHANGE, Signed
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.planning.graph import Node, Partitioning, schema_json
from dataflow.planning.physical_plan import Plan, Vertex
from dataflow.protocol.events import Data, Element
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.parts import ChannelState, TaskState, with_dictionaries
from dataflow.runtime.task.put_back import PutBack, PutBackQueue, put_back_id
from dataflow.state.dictionaries import decoded_schema, wide_schema

__all__ = ["check_carried", "put_back"]

_TO_CHANGE_IT = (
    "Restore it with the pipeline that took it, take a checkpoint in mode 'aligned' there, then change the pipeline"
)


def put_back(
    restored: RestoredCheckpoint, plan: Plan, channels: Mapping[tuple[int, int, int], Channel], library: Library
) -> Mapping[str, PutBack]:
    """Put channel state back into its channels; ``channels`` is keyed by link, source and target.

    Returns: by task, the rows that it takes before all channels; tasks without such rows are left out.

    Raises: CheckpointMismatch if a channel or an input is no longer the same; CheckpointDamaged.
    """
    checks = _Checks(plan, library, restored.manifest.checkpoint)
    by_name = {channel.name: channel for channel in channels.values()}
    targets = {channel.name: (plan.links[i], t) for (i, _, t), channel in channels.items()}
    for state in restored.states.values():
        for captured in state.in_flight:
            if captured.generation:
                continue
            channel = by_name.get(captured.channel)
            if channel is None:
                raise checks.mismatch(captured, "there is no such channel")
            # They come before everything that is sent again, in the order of the channel: rows of a key in another
            # order would give another result, and a watermark before its rows would make them late.
            link, subtask = targets[channel.name]
            vertex = plan.vertices[link.target]
            checks.check(captured, vertex, subtask, vertex.head, link.port)
            channel.preload(with_dictionaries(captured.elements, channel.encoded))
    queues = {
        task: _queues(restored.states[task], vertex, subtask, checks)
        for vertex, subtask, task in plan.tasks()
        if task in restored.states
    }
    return {task: PutBack(found) for task, found in queues.items() if found}


def _queues(state: TaskState, vertex: Vertex, subtask: int, checks: _Checks) -> Sequence[PutBackQueue]:
    """Return the put-back rows of a task in the order in which it takes them: operators downstream come first."""
    places = {node.name: place for place, node in enumerate(vertex.nodes)}
    elements: dict[tuple[int, int, int], list[Element]] = {}
    for captured in state.in_flight:
        if not captured.generation:
            continue
        place, port = places.get(captured.operator), captured.port
        if place is None or port is None or port >= len(vertex.nodes[place].inputs):
            raise checks.mismatch(
                captured, f"task {state.task!r} has no input {port} of an operator {captured.operator!r}"
            )
        checks.check(captured, vertex, subtask, vertex.nodes[place], port)
        elements.setdefault((-place, captured.generation, port), []).extend(captured.elements)
    return [
        _queue(checks.plan, vertex.nodes[-place], subtask, port, generation, elements[place, generation, port])
        for place, generation, port in sorted(elements)
    ]


def _queue(
    plan: Plan, node: Node, subtask: int, port: int, generation: int, elements: Sequence[Element]
) -> PutBackQueue:
    edge = node.inputs[port]
    sender = plan.graph.nodes[edge.source]
    encoded = sender.encoded if edge.tag is None else ()
    queue = Channel(
        credit=1,
        name=put_back_id(node.name, subtask, port, generation).name,
        schema=schema_json(sender.declared(edge.tag)),
        encoded=encoded,
        is_signed=edge.tag is None and isinstance(sender.meaning, Signed),
    )
    queue.preload(with_dictionaries(elements, encoded))
    return PutBackQueue(node.name, port, generation, queue)


@dataclass(frozen=True, slots=True)
class _Checks:
    """The checks of the rows in flight of ``checkpoint``, which go on in ``plan``."""

    plan: Plan
    library: Library
    checkpoint: int

    def check(self, captured: ChannelState, vertex: Vertex, subtask: int, node: Node, port: int) -> None:
        """Check rows for input ``port`` of ``node``, which is in a subtask of ``vertex``.

        Raises: CheckpointMismatch, CheckpointDamaged.
        """
        columns = schema_json(self.plan.graph.declared_of(node.inputs[port]))
        if captured.schema != columns:
            raise self.mismatch(captured, f"the channel has {columns}")
        check_carried(captured, self.plan, node, port, self.library)
        if node is vertex.head:
            self._refuse_strays(captured, vertex, subtask, port)

    def mismatch(self, captured: ChannelState, now: str) -> CheckpointMismatch:
        """Return the error that the edge is another one ``now``."""
        return CheckpointMismatch(
            f"checkpoint {self.checkpoint} holds {captured.rows} rows that were in flight on {captured.channel!r}, "
            f"with the columns {captured.schema}; now {now}. {_TO_CHANGE_IT}"
        )

    def _refuse_strays(self, captured: ChannelState, vertex: Vertex, subtask: int, port: int) -> None:
        """Raise CheckpointMismatch if rows on a hash edge belong to another subtask: the rows of a key would lose their
        order.
        """
        (link,) = [link for link in self.plan.inputs(vertex.name) if link.port == port]
        if link.partitioning is not Partitioning.HASH:
            return
        from dataflow.state.partition import hash_partition

        for element in captured.elements:
            if not isinstance(element, Data):
                continue
            rows: Any = element.rows
            parts = hash_partition(rows, link.keys, vertex.parallelism, self.plan.max_key_groups)
            if any(part is not None for target, part in enumerate(parts) if target != subtask):
                raise CheckpointMismatch(
                    f"checkpoint {self.checkpoint} holds {captured.rows} rows that were in flight on "
                    f"{captured.channel!r} and were not partitioned by {', '.join(link.keys)}, as they are now. "
                    f"{_TO_CHANGE_IT}"
                )


def check_carried(captured: ChannelState, plan: Plan, node: Node, port: int, library: Library) -> None:
    """Raise CheckpointDamaged unless rows in flight match the schema of input ``port`` of ``node``: kernels rely on it.

    The index type of a dictionary may be narrower than declared, because a batch may bring its own.
    """
    edge = node.inputs[port]
    sender = plan.graph.nodes[edge.source]
    expected = [wide_schema(sender.declared(edge.tag))]
    folded = None
    if node.spec.folding() is not None:
        folded = library.folded_schema(node.spec, plan.graph.schema_of(edge))
        folded = decoded_schema(folded, sender.encoded)
        expected.append(wide_schema(folded))
    for element in captured.elements:
        if not isinstance(element, Data):
            continue
        batch: Any = element.rows
        actual = wide_schema(batch.schema)
        if not any([actual.names == schema.names and actual.types == schema.types for schema in expected]):
            raise CheckpointDamaged(
                f"rows in flight on {captured.channel!r} have the columns {schema_json(batch.schema)}, expected "
                f"{captured.schema}"
            )
        for name in _never_null(sender, edge.tag):
            if name in actual.names and batch.column(name).null_count:
                missing = batch.column(name).null_count
                raise CheckpointDamaged(
                    f"{missing} rows in flight on {captured.channel!r} have no {name!r}, which is never null there"
                )
        if folded is not None and actual.names == folded.names:
            library.check_folded(batch, node.spec, captured.channel)


def _never_null(node: Node, tag: str | None) -> list[str]:
    """Return the columns of an output that its operator never emits with nulls, and that later ones rely on."""
    names = [field.name for field in node.output(tag) if not field.nullable]
    if tag is None:
        names += [] if node.time is None else [node.time.column]
        names += [CHANGE] if isinstance(node.meaning, Signed) else []
    return names
