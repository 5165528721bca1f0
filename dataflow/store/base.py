"""The contract of a checkpoint store: parts are written, then a manifest makes them a checkpoint.

The calls of one checkpoint::

    handle = store.write(7, task, data)      # by every task, from any thread; durable on return
    store.commit(Manifest(checkpoint=7, parts=handles, ...))     # from here on checkpoint 7 exists
    store.discard(7, handles)                # or: it was given up
    store.retire(7)                          # later: newer ones replaced it

Invariant: a checkpoint exists if, and only if, its manifest does; an existing one has all its parts, unless a disk
lost them, and then ``read`` says so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Self

from dataflow.errors import CheckpointDamaged
from dataflow.events import BarrierKind
from dataflow.protocol.recovery import Found
from dataflow.store.files import Buffer
from dataflow.store.manifest import Manifest, PartHandle

__all__ = ["CheckpointStore"]


class CheckpointStore(ABC):
    """Where checkpoints are kept. Reading needs no ``open``; writing does."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where this is, for messages."""

    @abstractmethod
    def open(self, run_id: str = "run") -> None:
        """Become the only writer. Raises: DirectoryInUse, naming the holder; StoreError where writing cannot work."""

    @abstractmethod
    def close(self) -> None:
        """Let others write. Harmless when not open."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def write(self, checkpoint: int, task: str, data: Buffer) -> PartHandle:
        """Keep the state of ``task``, durably; ``data`` is not used after the call. Thread-safe.

        A second write for the same checkpoint and task replaces the first. Raises: StoreError; nothing is kept then.
        """

    @abstractmethod
    def commit(self, manifest: Manifest) -> None:
        """Make ``manifest.checkpoint`` exist, durably and at once. Repeating it is harmless.

        Raises: StoreError, after which the checkpoint does not exist here (a power failure may bring it
        back, whole or detectably damaged; either is sound, for every part was durable); DirectoryInUse when another job
        has taken over.
        """

    @abstractmethod
    def checkpoints(self) -> list[int]:
        """The ids of existing checkpoints and savepoints, ascending, damaged ones included."""

    @abstractmethod
    def manifest(self, checkpoint: int) -> Manifest:
        """Raises: NoCheckpoint, CheckpointDamaged, StoreError; CheckpointError for a newer format."""

    @abstractmethod
    def read(self, checkpoint: int, handle: PartHandle) -> Buffer:
        """A part, verified. Raises: CheckpointDamaged naming file, expected and found; StoreError."""

    @abstractmethod
    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        """Delete parts of a checkpoint that was given up; one with a manifest is never touched."""

    @abstractmethod
    def retire(self, checkpoint: int) -> None:
        """Delete an existing checkpoint: its manifest first, then its parts. Fine where there is none."""

    @abstractmethod
    def highest_id(self) -> int:
        """The largest id that ever left a trace here, given up and retired ones included; 0 where there is none.

        Ids above it are free. Ids are never used twice, or a late file of the first use would pass for the second's.
        """

    @abstractmethod
    def remove_orphans(self) -> list[int]:
        """Delete what crashes left without a manifest, and answer its ids. Call it while no checkpoint is pending."""

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        """What is left of ``task`` in checkpoints above id ``above`` that never came to exist, with their ids.

        For reports only, before ``remove_orphans``: these parts are not verified. Parts that cannot be read, or have
        more than ``limit`` bytes, are left out. A store that keeps no such parts returns none.
        """
        return iter(())

    def manifest_size(self, checkpoint: int) -> int:
        """Return the bytes of a manifest, without reading it; 0 where that is not known, or there is none.

        ``Checkpointing(max_restore_bytes=)`` limits the sum of this and the sizes of the parts.
        """
        return 0

    def inspect(self, checkpoint: int) -> Found:
        """What ``recovery.choose`` asks about an existing checkpoint: read all of it.

        Raises: StoreError where the disk does not answer, CheckpointError for a newer format: neither is damage, and
        falling back would be wrong.
        """
        try:
            return Found(savepoint=self.verify(checkpoint).kind == BarrierKind.SAVEPOINT.value)
        except CheckpointDamaged as damage:
            return Found(damage=str(damage))

    def verify(self, checkpoint: int) -> Manifest:
        """Read every part. Raises what ``manifest`` and ``read`` raise."""
        manifest = self.manifest(checkpoint)
        for handle in manifest.parts:
            self.read(checkpoint, handle)
        return manifest
