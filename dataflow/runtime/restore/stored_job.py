"""What a checkpoint says of a job, as values: the input and the output of each step of a restore that changes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataflow.contracts.sink import Handle
from dataflow.runtime.task.parts import TaskState
from dataflow.store.manifest import EarlierTarget

__all__ = ["StoredJob"]


@dataclass(frozen=True, slots=True)
class StoredJob:
    """The operators of a checkpoint, the state of its tasks, and what its sinks have to commit.

    Attributes:
        nodes: the description of each operator (see ``Plan.describe``).
        states: by task.
        transactions: the handles that each sink must commit, by its name.
        targets: where these handles were staged, by sink; a sink without a target has none.
        earlier_targets: the targets that each sink has left, oldest first.
        new: the operators that the pipeline has and the checkpoint had not: they have no state, and start empty.
        is_committed: whether all ``transactions`` are known to be committed, as in an exported savepoint.
    """

    nodes: Sequence[Mapping[str, Any]]
    states: Mapping[str, TaskState]
    transactions: Mapping[str, Sequence[Handle]] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    earlier_targets: Mapping[str, Sequence[EarlierTarget]] = field(default_factory=dict)
    new: Collection[str] = ()
    is_committed: bool = False
