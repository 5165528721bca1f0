"""Puts the rows of a checkpoint that were in flight back into the channels of the new job.

All that is in flight is checked first: the channel must be the same, and the rows such as it carries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.planning.graph import Partitioning, schema_json
from dataflow.planning.physical_plan import Link, Plan
from dataflow.protocol.events import Data
from dataflow.runtime.restore.find_checkpoint import RestoredCheckpoint
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.parts import ChannelState
from dataflow.state.dictionaries import wide_schema

__all__ = ["check_carried", "put_back"]


def put_back(
    restored: RestoredCheckpoint, plan: Plan, channels: Mapping[tuple[int, int, int], Channel], library: Library
) -> None:
    """Put channel state back where it was in flight; ``channels`` are known by link, source and target.

    Raises: CheckpointMismatch if a channel is no longer the same; CheckpointDamaged.
    """
    named = {channel.name: channel for channel in channels.values()}
    places = {channel.name: (plan.links[i], t) for (i, _, t), channel in channels.items()}
    for state in restored.states.values():
        for captured in state.in_flight:
            channel = named.get(captured.channel)
            if channel is None or channel.schema != captured.schema:
                found = "there is no such channel" if channel is None else f"it carries {channel.schema}"
                raise CheckpointMismatch(
                    f"checkpoint {restored.manifest.checkpoint} holds {captured.rows} rows that were in flight on "
                    f"{captured.channel!r}, of the columns {captured.schema}; now {found}. Restore it with the "
                    "pipeline that took it, let that one take a checkpoint of mode 'aligned', and change it then"
                )
            link, subtask = places[channel.name]
            check_carried(captured, plan, link, library)
            _refuse_strays(captured, plan, link, subtask, restored.manifest.checkpoint)
            channel.preload(captured.elements)


def _refuse_strays(captured: ChannelState, plan: Plan, link: Link, subtask: int, checkpoint: int) -> None:
    """Raise where rows in flight on a hash edge belong to another subtask: they would lose their order by key."""
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
                f"and were not spread by {', '.join(link.keys)}, as they are now. Restore it with the pipeline "
                "that took it, let that one take a checkpoint of mode 'aligned', and change it then"
            )


def check_carried(captured: ChannelState, plan: Plan, link: Link, library: Library) -> None:
    """Check that rows in flight are such as the channel carries: kernels believe the types. Raises: CheckpointDamaged.

    Index types of dictionaries may be narrower than declared: a batch may come with its own.
    """
    expected = [wide_schema(plan.graph.nodes[link.node].output(link.tag))]
    head = plan.vertices[link.target].head
    folded = library.folded_schema(head.spec, plan.graph.schema_of(head.inputs[0]))
    if folded is not None:
        expected.append(wide_schema(folded))
    for element in captured.elements:
        if not isinstance(element, Data):
            continue
        batch: Any = element.rows
        found = wide_schema(batch.schema)
        if not any([found.names == schema.names and found.types == schema.types for schema in expected]):
            raise CheckpointDamaged(
                f"rows in flight on {captured.channel!r} have the columns {schema_json(batch.schema)}, expected "
                f"{captured.schema}"
            )
        if folded is not None and found.names == folded.names:
            library.check_folded(batch, head.spec, captured.channel)
