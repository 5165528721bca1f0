"""The channels of a stored checkpoint: between which operators rows may be in flight, and under which names.

A manifest describes operators. Several of them run in one task, which is named after its first one, so only the first
operator of a task has channels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dataflow.errors import NotInCheckpoint
from dataflow.planning.physical_plan import ChannelId, vertex_of
from dataflow.snapshots.processes import Channel
from dataflow.store.manifest import STATE, Manifest
from dataflow.untrusted import damaged_by

__all__ = ["StoredChannels"]


class StoredChannels:
    """The channels of the pipeline that took a checkpoint. Raises: CheckpointDamaged."""

    def __init__(self, manifest: Manifest) -> None:
        with damaged_by(f"the operators of checkpoint {manifest.checkpoint}"):
            self._inputs: dict[str, list[str]] = {node["name"]: list(node["inputs"]) for node in manifest.nodes}
            self._tasks: dict[str, list[str]] = {}
            for part in manifest.parts:
                if part.part == STATE:
                    self._tasks.setdefault(vertex_of(part.task), []).append(part.task)
            self._vertices = _vertices(manifest.nodes, self._tasks)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """The pairs of operators between which rows may be in flight, in the order of the pipeline."""
        pairs = {(source, head): None for head in self._tasks for source in self._inputs.get(head, ())}
        return tuple(Channel(source, target) for source, target in pairs)

    def vertex(self, operator: str) -> str:
        """Return the first operator of the task that runs ``operator``."""
        return self._vertices[operator]

    def has_edge(self, source: str, target: str, port: int | None = None) -> bool:
        """Return whether ``target`` takes rows of ``source``, also inside a task: on input ``port``; None: on any."""
        inputs = self._inputs.get(target, [])
        return source in inputs if port is None else inputs[port : port + 1] == [source]

    def names(self, source: str, target: str) -> Collection[str] | None:
        """Return the names of the channels from ``source`` to ``target``, of all subtasks; None: all to ``target``.

        Raises: NotInCheckpoint if there is no such channel; the message lists those that there are.
        """
        if Channel(source, target) not in self.channels:
            raise NotInCheckpoint(f"there is no channel {source} -> {target}; {self._explained(target)}")
        inputs = self._inputs[target]
        if len(inputs) == 1:
            return None
        before = [self._vertices[name] for name in inputs]
        return {
            ChannelId(sender, task, target, port if before.count(before[port]) > 1 else None).name
            for port, name in enumerate(inputs)
            if name == source
            for sender in self._tasks[before[port]]
            for task in self._tasks[target]
        }

    def _explained(self, target: str) -> str:
        head = self._vertices.get(target)
        why = f"{target!r} runs in the task of {head!r}, without a channel; " if head not in (None, target) else ""
        return f"{why}channels: {', '.join(map(str, self.channels)) or 'none'}"


def _vertices(nodes: Sequence[Mapping[str, Any]], heads: Collection[str]) -> dict[str, str]:
    """Return the first operator of each operator's task. Raises: KeyError, IndexError, TypeError for a forged graph."""
    vertices: dict[str, str] = {}
    for node in nodes:  # inputs come before the operators that read them
        name = node["name"]
        before = [vertices[source] for source in node["inputs"]]
        vertices[name] = name if name in heads else before[0]
    return vertices
