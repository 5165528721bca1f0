"""Parts of snapshots, gathered until each process has sent its own: then a snapshot is complete, and not before."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from dataflow.snapshots.processes import GlobalState, ProcessGraph
from dataflow.snapshots.runs.hashable_content import content_of
from dataflow.snapshots.runs.host import Part

__all__ = ["SnapshotParts"]


class _Complete(dict[int, GlobalState]):
    """The snapshots that are complete; asked for another, it says why that one is not there."""

    def __init__(self, parts: SnapshotParts, known: Mapping[int, GlobalState]) -> None:
        super().__init__(known)
        self._snapshot_parts = parts

    def __missing__(self, number: int) -> GlobalState:
        missing = self._snapshot_parts.under_way.get(number)
        if missing is None:
            raise KeyError(f"there is no snapshot {number}; begun were {list(self._snapshot_parts.initiators)}")
        raise KeyError(f"snapshot {number} is under way: the parts of {', '.join(missing)} are missing")


class SnapshotParts:
    """The snapshots of a run of ``graph``, with the processes that began each."""

    def __init__(self, graph: ProcessGraph) -> None:
        self._graph = graph
        self._parts: dict[int, dict[str, Part]] = {}
        self.initiators: dict[int, list[str]] = {}
        self.complete: dict[int, GlobalState] = _Complete(self, {})

    def begin(self, initiators: Sequence[str]) -> int:
        """The number of a new snapshot; who is named twice begins it once, see ``initiators``."""
        number = len(self.initiators)
        self.initiators[number] = list(dict.fromkeys(initiators))
        self._parts[number] = {}
        return number

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The snapshots that are not complete, with the processes whose part is missing."""
        return {n: [p for p in self._graph.processes if p not in parts] for n, parts in self._parts.items()}

    def add(self, parts: Sequence[Part]) -> list[GlobalState]:
        """Parts have come; answers the snapshots that are complete with them."""
        done = []
        for part in parts:
            found = self._parts[part.snapshot]
            found[part.process] = part
            if len(found) == len(self._graph.processes):
                done.append(self._made(part.snapshot, self._parts.pop(part.snapshot)))
        return done

    def _made(self, number: int, parts: Mapping[str, Part]) -> GlobalState:
        made = self.complete[number] = GlobalState(
            {name: parts[name].state for name in self._graph.processes},
            {channel: parts[channel.target].channels[channel] for channel in self._graph.channels},
            {name: parts[name].number for name in self._graph.processes},
            number,
            tuple(self.initiators[number]),
            tuple(name for name in self._graph.processes if parts[name].active),
        )
        return made

    @property
    def content(self) -> Hashable:
        """The parts of the snapshots under way, and who is done with which; not how they came."""
        return content_of(
            {
                number: {part.process: (part.state, part.active, part.channels) for part in parts.values()}
                for number, parts in self._parts.items()
            }
        )

    def copy(self) -> SnapshotParts:
        """The same at this point, to go on with otherwise."""
        made = SnapshotParts(self._graph)
        made._parts = {number: dict(parts) for number, parts in self._parts.items()}
        made.initiators = {number: list(names) for number, names in self.initiators.items()}
        made.complete = _Complete(made, self.complete)
        return made
