"""Put the rows in flight of a checkpoint back into the channels of the new job.

They are checked first: the channel must have the same name and columns, and the rows must match its schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow.contracts.updates import CHANGE, Signed
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.planning.graph import Node, Partitioning, schema_json
from dataflow.planning.physical_plan import Link, Plan
from dataflow.protocol.events import Data
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.parts import ChannelState, with_dictionaries
from dataflow.state.dictionaries import decoded_schema, wide_schema

__all__ = ["check_carried", "put_back"]

_TO_CHANGE_IT = (
    "Restore it with the pipeline that took it, take a checkpoint in mode 'aligned' there, then change the pipeline"
)


def put_back(
    restored: RestoredCheckpoint, plan: Plan, channels: Mapping[tuple[int, int, int], Channel], library: Library
) -> None:
    """Put channel state back into its channels; ``channels`` is keyed by link, source and target.

    Raises: CheckpointMismatch if a channel is no longer the same; CheckpointDamaged.
    """
    by_name = {channel.name: channel for channel in channels.values()}
    targets = {channel.name: (plan.links[i], t) for (i, _, t), channel in channels.items()}
    for state in restored.states.values():
        for captured in state.in_flight:
            channel = by_name.get(captured.channel)
            if channel is None or channel.schema != captured.schema:
                now = "there is no such channel" if channel is None else f"the channel has {channel.schema}"
                raise CheckpointMismatch(
                    f"checkpoint {restored.manifest.checkpoint} holds {captured.rows} rows that were in flight on "
                    f"{captured.channel!r}, with the columns {captured.schema}; now {now}. {_TO_CHANGE_IT}"
                )
            # Stored rows are checked before they are in a channel, because kernels downstream trust their types. They
            # come before everything that is sent again, in the order of the channel: rows of a key in another order
            # would give another result, and a watermark before its rows would make them late.
            link, subtask = targets[channel.name]
            check_carried(captured, plan, link, library)
            _refuse_strays(captured, plan, link, subtask, restored.manifest.checkpoint)
            channel.preload(with_dictionaries(captured.elements, channel.encoded))


def _refuse_strays(captured: ChannelState, plan: Plan, link: Link, subtask: int, checkpoint: int) -> None:
    """Raise CheckpointMismatch if rows on a hash edge belong to another subtask: their keys would lose their order."""
    if link.partitioning is not Partitioning.HASH:
        return
    from dataflow.state.partition import hash_partition

    width = plan.vertices[link.target].parallelism
    for element in captured.elements:
        if not isinstance(element, Data):
            continue
        rows: Any = element.rows
        parts = hash_partition(rows, link.keys, width, plan.max_key_groups)
        if any(part is not None for target, part in enumerate(parts) if target != subtask):
            raise CheckpointMismatch(
                f"checkpoint {checkpoint} holds {captured.rows} rows that were in flight on {captured.channel!r} "
                f"and were not partitioned by {', '.join(link.keys)}, as they are now. {_TO_CHANGE_IT}"
            )


def check_carried(captured: ChannelState, plan: Plan, link: Link, library: Library) -> None:
    """Raise CheckpointDamaged unless rows in flight match the channel's schema, because kernels trust the types.

    The index type of a dictionary may be narrower than declared, because a batch may bring its own.
    """
    node = plan.graph.nodes[link.node]
    expected = [wide_schema(node.declared(link.tag))]
    head = plan.vertices[link.target].head
    folded = None
    if head.spec.folding() is not None:
        folded = library.folded_schema(head.spec, plan.graph.schema_of(head.inputs[0]))
        folded = decoded_schema(folded, node.encoded)
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
        for name in _never_null(node, link.tag):
            if name in actual.names and batch.column(name).null_count:
                missing = batch.column(name).null_count
                raise CheckpointDamaged(
                    f"{missing} rows in flight on {captured.channel!r} have no {name!r}, which is never null there"
                )
        if folded is not None and actual.names == folded.names:
            library.check_folded(batch, head.spec, captured.channel)


def _never_null(node: Node, tag: str | None) -> list[str]:
    """Return the columns of an output that its operator never emits with nulls, and that later ones rely on."""
    names = [field.name for field in node.output(tag) if not field.nullable]
    if tag is None:
        names += [] if node.time is None else [node.time.column]
        names += [CHANGE] if isinstance(node.meaning, Signed) else []
    return names
