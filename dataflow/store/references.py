"""The objects that the manifests of a store name: the only source of what a clean-up may delete.

An object may be deleted when no manifest names it. This is derived from the manifests at each clean-up and never
stored. A manifest never changes, and an id is never used again, so each manifest is read once.

A checkpoint that is being read is pinned (see ``pin``): its manifest is not deleted, so neither are its objects.

Invariant: an object that an unreadable manifest might name is not deleted, that is, none of its checkpoint or an older
one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from dataflow.errors import CheckpointError, StoreError
from dataflow.store.manifest import Manifest

__all__ = ["Named", "References", "objects_of"]

Objects = frozenset[tuple[int, str]]
"""Objects by the checkpoint whose folder holds them, and their file name."""


def objects_of(manifest: Manifest) -> Objects:
    """Return the objects that ``manifest`` names.

    >>> from dataflow.store.manifest import PartHandle
    >>> parts = (PartHandle("t", "a.part", 1, ""), PartHandle("t", "b.part", 1, "", part=1, checkpoint=3))
    >>> manifest = Manifest(format=1, checkpoint=7, kind="checkpoint", pipeline="bids", mode="aligned",
    ...                     guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32,
    ...                     parts=parts)
    >>> sorted(objects_of(manifest))
    [(3, 'b.part'), (7, 'a.part')]
    """
    return frozenset(
        (part.checkpoint if part.is_elsewhere else manifest.checkpoint, part.file) for part in manifest.parts
    )


@dataclass(frozen=True, slots=True)
class Named:
    """The ``objects`` that manifests name. Those of checkpoints up to ``unknown`` may be named, too."""

    objects: Objects
    unknown: int = 0

    def has(self, checkpoint: int, file: str) -> bool:
        """Return whether a manifest names this object, or may name it."""
        return checkpoint <= self.unknown or (checkpoint, file) in self.objects


class References:
    """The objects that each checkpoint of a store names; ``read`` returns a manifest. One thread at a time."""

    def __init__(self, read: Callable[[int], Manifest]) -> None:
        self._read = read
        self._objects: dict[int, Objects] = {}

    def of(self, checkpoint: int) -> Objects | None:
        """Return the objects that a checkpoint names; None: its manifest is missing, damaged or of a newer format.

        Raises: StoreError.
        """
        if checkpoint not in self._objects:
            try:
                self._objects[checkpoint] = objects_of(self._read(checkpoint))
            except StoreError:  # the disk may work again later
                raise
            except CheckpointError:
                return None
        return self._objects[checkpoint]

    def named(self, checkpoints: Collection[int]) -> Named:
        """Return the objects that the existing ``checkpoints`` name, and forget all others. Raises: StoreError."""
        found = {checkpoint: self.of(checkpoint) for checkpoint in checkpoints}
        self._objects = {checkpoint: objects for checkpoint, objects in found.items() if objects is not None}
        unknown = max([checkpoint for checkpoint, objects in found.items() if objects is None], default=0)
        return Named(frozenset().union(*self._objects.values()), unknown)
