"""Deal the splits of sources out to the new subtasks: unfinished ones by turns, in the order of the source.

Finished splits stay listed, with the subtask of their old number. Positions, row counts and idle times go along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from dataflow.contracts.source import Json
from dataflow.planning.physical_plan import Plan
from dataflow.planning.specs import Read
from dataflow.runtime.task.parts import TaskState

__all__ = ["DealtSplits", "dealt_splits", "open_splits_of"]


@dataclass(frozen=True, slots=True)
class DealtSplits:
    """The splits of one new source task, as entries of a checkpoint, and how long each was quiet (microseconds)."""

    entries: Sequence[Mapping[str, Any]]
    quiet: Mapping[str, int]

    @property
    def inlet(self) -> Mapping[str, Json]:
        """The state of the task's input."""
        entries: Any = list(self.entries)
        quiet: Any = dict(self.quiet)
        return {"splits": entries, "quiet": quiet}


def open_splits_of(state: TaskState) -> frozenset[str]:
    """Return the splits of a source task that were not read to their end; none if it is no source task."""
    return frozenset([split["id"] for split in _entries(state) if not split["done"]])


def dealt_splits(plan: Plan, holders: Mapping[str, Sequence[TaskState]]) -> dict[str, DealtSplits]:
    """Return the splits of each source task of ``plan``; ``holders`` has the old tasks of each operator."""
    dealt: dict[str, DealtSplits] = {}
    for vertex in plan.vertices.values():
        name = vertex.head.name
        if not isinstance(vertex.head.spec, Read) or name not in holders:
            continue
        listed = [_entries(state) for state in holders[name]]
        quiet: dict[str, Any] = {}
        for state in holders[name]:
            told: Any = state.inlet.get("quiet", {})
            quiet |= told
        # The splits of a fresh start were dealt out by turns, so this is the order of the source.
        in_order = [split for turn in zip_longest(*listed) for split in turn if split is not None]
        waiting = [split for split in in_order if not split["done"]]
        for i, task in enumerate(vertex.tasks):
            done = [split for old in listed[i :: vertex.parallelism] for split in old if split["done"]]
            mine = [*done, *waiting[i :: vertex.parallelism]]
            own = {split["id"] for split in mine}
            dealt[task] = DealtSplits(mine, {split: time for split, time in quiet.items() if split in own})
    return dealt


def _entries(state: TaskState) -> list[Mapping[str, Any]]:
    entries: Any = state.inlet.get("splits", [])
    return list(entries)
