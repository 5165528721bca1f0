"""Give the operators of a checkpoint other names, or take operators out of it, wherever their names occur."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from dataflow.events.plan_shape import channel_ends, channel_name
from dataflow.planning.physical_plan import vertex_of
from dataflow.runtime.restore.stored_job import StoredJob
from dataflow.runtime.task.parts import ChannelState, Duplicates, TaskState, operator_of

_End = TypeVar("_End", ChannelState, Duplicates)

__all__ = ["renamed_job", "without_operators"]


def renamed_job(job: StoredJob, names: Mapping[str, str]) -> StoredJob:
    """Return the job with the operators in ``names`` under their new names."""
    if not names:
        return job
    new = _Names(names)
    nodes = [
        {**node, "name": new(node["name"]), "inputs": [new(name) for name in node.get("inputs", ())]}
        for node in job.nodes
    ]
    states = {new(task): _renamed_state(state, new) for task, state in job.states.items()}
    transactions = {new(sink): handles for sink, handles in job.transactions.items()}
    targets = {new(sink): target for sink, target in job.targets.items()}
    earlier = {new(sink): left for sink, left in job.earlier_targets.items()}
    return replace(job, nodes=nodes, states=states, transactions=transactions, targets=targets, earlier_targets=earlier)


class _Names:
    """Returns the new name of an operator, or the same."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __call__(self, name: str) -> str:
        # A helper that the planner added, and a range of key groups, are named after their operator.
        operator = re.split(r"[/\[]", name, maxsplit=1)[0]
        return self._names.get(operator, operator) + name[len(operator) :]

    def channel(self, channel: str) -> str:
        """Return the name of a channel, or of the operator before another one of the same task."""
        ends = channel_ends(channel)
        if ends is None:
            return self(channel)
        source, target, port = ends
        return channel_name(self(source), self(target), port)


def _renamed_state(state: TaskState, new: _Names) -> TaskState:
    return replace(
        state,
        task=new(state.task),
        operators={new(name): snapshot for name, snapshot in state.operators.items()},
        passed={new(name): watermark for name, watermark in state.passed.items()},
        timed=[new(name) for name in state.timed],
        transactions={new(name): handles for name, handles in state.transactions.items()},
        ranges={new(name): ranges for name, ranges in state.ranges.items()},
        duplicates=[_renamed_end(d, new) for d in state.duplicates],
        in_flight=[_renamed_end(c, new) for c in state.in_flight],
    )


def _renamed_end(end: _End, new: _Names) -> _End:
    return replace(end, operator=new(end.operator), task=new(end.task), channel=new.channel(end.channel))


def without_operators(job: StoredJob, names: Collection[str]) -> StoredJob:
    """Return the job without the state of some operators, and without what their sinks have to commit.

    The state of a task stays, even if it was named after one of them: other operators may have run in it. A source
    takes its splits along. Rows in flight stay, too.
    """
    if not names:
        return job
    return replace(
        job,
        nodes=[node for node in job.nodes if node["name"] not in names],
        states={task: _without(state, names) for task, state in job.states.items()},
        transactions={sink: handles for sink, handles in job.transactions.items() if sink not in names},
        targets={sink: target for sink, target in job.targets.items() if sink not in names},
    )


def _without(state: TaskState, names: Collection[str]) -> TaskState:
    is_gone = vertex_of(state.task) in names
    return replace(
        state,
        inlet={name: value for name, value in state.inlet.items() if not (is_gone and name == "splits")},
        operators={name: each for name, each in state.operators.items() if operator_of(name) not in names},
        passed={name: watermark for name, watermark in state.passed.items() if name not in names},
        timed=[name for name in state.timed if name not in names],
        transactions={name: handles for name, handles in state.transactions.items() if name not in names},
        ranges={name: ranges for name, ranges in state.ranges.items() if name not in names},
        duplicates=[d for d in state.duplicates if d.operator not in names],
    )
