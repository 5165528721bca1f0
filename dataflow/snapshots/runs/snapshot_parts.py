"""Collects the parts of snapshots; a snapshot is complete when every process has contributed its part.

Chandy and Lamport leave open how recorded states are collected (*Distributed Snapshots*, 1985, section 3.3). Here the
run collects them, outside the channels.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from dataflow.snapshots.processes import GlobalState, ProcessGraph
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.host import RecordedPart

__all__ = ["SnapshotParts"]


class _Complete(dict[int, GlobalState]):
    """The complete snapshots by number; the KeyError of another number says why it is missing."""

    def __init__(self, parts: SnapshotParts, known: Mapping[int, GlobalState]) -> None:
        super().__init__(known)
        self._snapshot_parts = parts

    def __missing__(self, number: int) -> GlobalState:
        missing = self._snapshot_parts.under_way.get(number)
        if missing is None:
            raise KeyError(f"there is no snapshot {number}; snapshots begun: {list(self._snapshot_parts.initiators)}")
        raise KeyError(f"snapshot {number} is under way: the parts of {', '.join(missing)} are missing")


class SnapshotParts:
    """The snapshots of a run of ``graph``: parts of those under way, complete ones, and their initiators."""

    def __init__(self, graph: ProcessGraph) -> None:
        self._graph = graph
        self._parts: dict[int, dict[str, RecordedPart]] = {}
        self.initiators: dict[int, list[str]] = {}
        self.complete: dict[int, GlobalState] = _Complete(self, {})

    def begin(self, initiators: Sequence[str]) -> int:
        """Register a new snapshot and return its number; a process named twice is one initiator."""
        number = len(self.initiators)
        self.initiators[number] = list(dict.fromkeys(initiators))
        self._parts[number] = {}
        return number

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The incomplete snapshots, each with the processes whose part is missing."""
        return {n: [p for p in self._graph.processes if p not in parts] for n, parts in self._parts.items()}

    def add(self, parts: Sequence[RecordedPart]) -> list[GlobalState]:
        """Add parts, and return the snapshots that they complete."""
        completed = []
        for part in parts:
            collected = self._parts[part.snapshot]
            collected[part.process] = part
            if len(collected) == len(self._graph.processes):
                completed.append(self._assemble(part.snapshot, self._parts.pop(part.snapshot)))
        return completed

    def _assemble(self, number: int, parts: Mapping[str, RecordedPart]) -> GlobalState:
        state = self.complete[number] = GlobalState(
            {name: parts[name].state for name in self._graph.processes},
            {channel: parts[channel.target].channels[channel] for channel in self._graph.channels},
            {name: parts[name].number for name in self._graph.processes},
            number,
            tuple(self.initiators[number]),
            tuple(name for name in self._graph.processes if parts[name].active),
        )
        return state

    @property
    def content(self) -> Hashable:
        """The hashable content of the parts of incomplete snapshots, independent of their order of arrival."""
        return content_of(
            {
                number: {part.process: (part.state, part.active, part.channels) for part in parts.values()}
                for number, parts in self._parts.items()
            }
        )

    def copy(self) -> SnapshotParts:
        """Return an independent copy."""
        copied = SnapshotParts(self._graph)
        copied._parts = {number: dict(parts) for number, parts in self._parts.items()}
        copied.initiators = {number: list(names) for number, names in self.initiators.items()}
        copied.complete = _Complete(copied, self.complete)
        return copied
