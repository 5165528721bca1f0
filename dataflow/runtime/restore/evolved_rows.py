"""Rows in flight of a stored job, for the columns of the plan that restores it. Pure.

Rows continue at the operator and the input that they were sent to. Their columns may have become wider, and columns
that nothing reads any more are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dataflow.errors import CheckpointMismatch
from dataflow.planning.graph import Node, schema_json
from dataflow.planning.physical_plan import Plan
from dataflow.protocol.events import Data
from dataflow.runtime.restore.regroup_rows import port_of
from dataflow.runtime.restore.stored_job import StoredJob
from dataflow.runtime.task.parts import ChannelState
from dataflow.state.widening import widened_batch, widens

__all__ = ["evolve_rows"]

_WAY_OUT: Final = (
    "run the pipeline that took the checkpoint, stop it with a savepoint, job.stop(savepoint=path), and restore that "
    "with this one: savepoints, and checkpoints in mode 'aligned', hold no rows in flight"
)


def evolve_rows(job: StoredJob, stored: StoredJob, plan: Plan, other_records: Mapping[str, str]) -> StoredJob:
    """Return the job with its rows in flight as the plan's channels have them.

    Args:
        job: the job, whose operators have the names of now.
        stored: the same job with the operators that are dropped.
        plan: the plan.
        other_records: the operators whose folded records mean something else now, with the reason.

    Raises: CheckpointMismatch if rows cannot continue.
    """
    inputs = {str(node["name"]): list(node["inputs"]) for node in stored.nodes}
    targets = {node.name: node for node in plan.graph}
    states = {}
    for task, state in job.states.items():
        kept = []
        for captured in state.in_flight:
            target = targets.get(captured.operator)
            port = port_of(captured, stored.states, inputs.get(captured.operator, []))
            if target is not None and port < len(target.inputs):
                kept.append(_as_now(replace(captured, port=port), plan, target, port, other_records))
            elif captured.rows:
                raise _gone(captured, target)
        states[task] = replace(state, in_flight=kept)
    return replace(job, states=states)


def _gone(captured: ChannelState, target: Node | None) -> CheckpointMismatch:
    gone = f"an operator {captured.operator!r}" if target is None else "such an input"
    return CheckpointMismatch(
        f"{captured.rows} rows were in flight to operator {captured.operator!r}, on channel {captured.channel!r}, and "
        f"this pipeline has not {gone} that could take them: {_WAY_OUT}; if the operator has another name now, "
        f"give renamed={{{captured.operator!r}: ...}}"
    )


def _as_now(
    captured: ChannelState, plan: Plan, target: Node, port: int, other_records: Mapping[str, str]
) -> ChannelState:
    """Return the rows of a channel with the columns that it has now."""
    edge = target.inputs[port]
    declared = plan.graph.declared_of(edge)
    before: list[tuple[str, str]] = [(str(name), str(type_)) for name, type_ in captured.schema or ()]  # type: ignore
    now = dict(_pairs(schema_json(declared)))
    names = [name for name, _ in before]
    is_other = before != [*now.items()]
    batches: list[Any] = [element.rows for element in captured.elements if isinstance(element, Data)]
    if any([batch.schema.names != names for batch in batches]):
        reason = other_records.get(target.name) or ("its columns have changed" if is_other else "")
        if reason:
            raise CheckpointMismatch(
                f"channel {captured.channel!r} holds rows that were folded for the aggregates of {target.name!r}, "
                f"which are others now ({reason}): {_WAY_OUT}"
            )
        return captured
    if not is_other:
        return captured
    types = dict(before)
    fits = [
        name in types and (types[name] == type_ or widens(types[name], type_, key=name in edge.keys))
        for name, type_ in now.items()
    ]
    if captured.rows and not all(fits):
        raise CheckpointMismatch(
            f"{captured.rows} rows were in flight on channel {captured.channel!r} with the columns {_shown(before)}; "
            f"now it has {_shown([*now.items()])}. Rows in flight can only have wider types: {_WAY_OUT}"
        )
    elements = [
        Data(widened_batch(element.rows.select(declared.names), declared.types), element.epoch)  # type: ignore
        if isinstance(element, Data)
        else element
        for element in captured.elements
    ]
    return replace(captured, elements=elements, schema=schema_json(declared))


def _pairs(schema: Any) -> list[tuple[str, str]]:
    return [(name, type_) for name, type_ in schema]


def _shown(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join([f"{name} {type_}" for name, type_ in columns]) or "none"
