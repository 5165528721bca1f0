"""The contract of a checkpoint store: parts (objects) are written, then a manifest makes them a checkpoint.

The calls of one checkpoint::

    handle = store.write(7, task, data)      # by every task, from any thread; durable on return
    store.commit(Manifest(checkpoint=7, parts=handles, ...))     # checkpoint 7 exists after this
    store.discard(7, handles)                # or: it was aborted
    store.retire(7)                          # later: newer ones replaced it

A manifest may name parts that existing checkpoints wrote or name: ``PartHandle.checkpoint`` says which one wrote it.
The caller commits it before it retires those checkpoints. Then a part is deleted only when no manifest names it.

Invariant: a checkpoint exists if, and only if, its manifest does. An existing one has all its parts, older ones
included, unless a disk lost them; then ``read`` raises.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Self

from dataflow.store.files import DISK, Buffer, Content, FileSystem
from dataflow.store.manifest import STATE, Manifest, PartHandle

__all__ = ["CheckpointStore"]

_PIECE: Final = 1 << 20
"""Bytes of a piece of a part."""


class CheckpointStore(ABC):
    """A store of checkpoints. Writing requires ``open``; reading does not."""

    @property
    @abstractmethod
    def location(self) -> str:
        """The name of this store, for messages."""

    @property
    def file_system(self) -> FileSystem:
        """The file system for copies of checkpoints: the disk, unless the store keeps its checkpoints in another."""
        return DISK

    @abstractmethod
    def open(self, run_id: str = "run") -> None:
        """Become the only writer.

        Args:
            run_id: identifies the run, in messages to others that want to write.

        Raises: DirectoryInUse, naming the holder; StoreError if writing is impossible.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> store.open("nightly")  # a with statement opens the store, too
        >>> store.write(1, "counts[0]", b"state").size
        5
        """

    @abstractmethod
    def close(self) -> None:
        """Release the right to write, if it is held. Reading does not need it.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> store.open()
        >>> store.close()
        >>> store.checkpoints()
        []
        """

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
        """Store a part of ``task`` durably; ``data`` is not used after the call. Thread-safe.

        A second write by the same job for the same checkpoint, task and part replaces the first.

        Args:
            checkpoint: the id of the checkpoint.
            task: the name of the task, such as ``"counts[1]"``.
            data: the bytes of the part, or an iterable of pieces, each of which is valid until the next one is taken.
            part: 0 for the state of the task, 1 for its log.

        Returns: the handle of the part, for the manifest.

        Raises: StoreError if the part cannot be written, after which no manifest may name it, or if the checkpoint is
        complete already; DirectoryInUse if another job has taken over; errors of the iterable.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handle = store.write(7, "counts[1]", b"state")
        >>> handle.task, handle.size
        ('counts[1]', 5)
        """

    @abstractmethod
    def commit(self, manifest: Manifest) -> None:
        """Make ``manifest.checkpoint`` exist, durably and atomically. It may be repeated.

        Args:
            manifest: the manifest of the checkpoint; all parts that it names are durable.

        Raises: StoreError, after which the checkpoint does not exist here (a power failure may bring it back, complete
        or detectably damaged; both are safe, because every part was durable); DirectoryInUse if another job has taken
        over.

        >>> import dataflow as flow
        >>> from dataflow.store.manifest import FORMAT, Manifest
        >>> with flow.MemoryStore() as store:
        ...     parts = (store.write(7, "counts[0]", b"state"),)
        ...     store.commit(Manifest(format=FORMAT, checkpoint=7, kind="checkpoint", pipeline="bids", mode="aligned",
        ...                           guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32,
        ...                           parts=parts))
        ...     store.checkpoints()
        [7]
        """

    @abstractmethod
    def checkpoints(self) -> list[int]:
        """Return the ids of existing checkpoints and savepoints, ascending, damaged ones included.

        Raises: StoreError if the store cannot be read.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> for _ in range(2):
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(store), restore="auto")
        >>> store.checkpoints()
        [1, 2]
        """

    @abstractmethod
    def manifest(self, checkpoint: int) -> Manifest:
        """Return the manifest of ``checkpoint``.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: NoCheckpoint, CheckpointDamaged, StoreError; CheckpointError for a newer format.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> [(node["name"], node["parallelism"]) for node in store.manifest(1).nodes]
        [('numbers', 1), ('collected', 1)]
        """

    @abstractmethod
    def read(self, checkpoint: int, handle: PartHandle) -> Buffer:
        """Return the bytes of a part, verified.

        Args:
            checkpoint: the id of the checkpoint.
            handle: the handle of the part, from the manifest.

        Raises: CheckpointDamaged naming file, expected and found; StoreError if the part cannot be read.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handle = store.write(7, "counts[1]", b"state")
        >>> store.read(7, handle)
        b'state'
        """

    def pieces(self, checkpoint: int, handle: PartHandle) -> Iterator[Buffer]:
        """Yield the bytes of a part in pieces, verified: an error comes at the end. By default, call ``read``.

        Args:
            checkpoint: the id of the checkpoint.
            handle: the handle of the part, from the manifest.

        Returns: pieces, each of which is valid until the next one is taken.

        Raises: the errors of ``read``.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handle = store.write(7, "counts[1]", b"state")
        >>> [bytes(piece) for piece in store.pieces(7, handle)]
        [b'state']
        """
        data = memoryview(self.read(checkpoint, handle))
        return iter([data[start : start + _PIECE] for start in range(0, len(data), _PIECE)])

    def pin(self, checkpoint: int) -> AbstractContextManager[object]:
        """Keep a checkpoint from being deleted by other processes in a ``with`` block.

        By default, do nothing, for a store that no other process can reach.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: StoreError.

        >>> import dataflow as flow
        >>> with flow.MemoryStore().pin(7) as pin:
        ...     pass
        """
        return nullcontext()

    @abstractmethod
    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        """Delete parts of an aborted checkpoint; a checkpoint with a manifest is never changed.

        Args:
            checkpoint: the id of the aborted checkpoint.
            parts: the handles of the parts to delete; parts that do not exist, or are of an older checkpoint, are
                skipped.

        Raises: StoreError if they cannot be deleted; DirectoryInUse if another job has taken over.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handles = [store.write(7, task, b"state") for task in ("counts[0]", "counts[1]")]
        ...     store.discard(7, handles[:1])
        >>> list(store.remains("counts[0]", above=0)), list(store.remains("counts[1]", above=0))
        ([], [(7, b'state')])
        """

    @abstractmethod
    def retire(self, checkpoint: int) -> None:
        """Delete a checkpoint, if it exists: its manifest first, then the parts that no other manifest names.

        Those include parts of older checkpoints that only this one needed.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: CheckpointPinned if it is being read, after which it exists; StoreError if it cannot be deleted;
        DirectoryInUse if another job has taken over.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.retire(1)
        >>> store.checkpoints()
        []
        """

    def abandon(self, checkpoint: int) -> None:
        """Delete a checkpoint as ``retire`` does, also if it is being read: a restored older one replaces it.

        By default, call ``retire``, for a store that no other process reads.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: StoreError if it cannot be deleted; DirectoryInUse if another job has taken over.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.abandon(1)
        >>> store.checkpoints()
        []
        """
        self.retire(checkpoint)

    @abstractmethod
    def highest_id(self) -> int:
        """Return the largest id ever used here, aborted and retired ones included; 0 if there is none.

        Ids above it are free. Ids are never reused, or a late file of the first use would be taken for the second's.

        Raises: StoreError if the store cannot be read.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handle = store.write(7, "counts[0]", b"state")
        ...     store.discard(7, [handle])
        >>> store.highest_id()
        7
        """

    @abstractmethod
    def remove_orphans(self) -> list[int]:
        """Delete parts that no manifest names, of checkpoints without one. Call it while none is pending.

        Crashes leave such parts.

        Returns: the ids of the checkpoints of which anything was deleted, ascending.

        Raises: StoreError if one cannot be deleted; DirectoryInUse if another job has taken over.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handle = store.write(7, "counts[0]", b"state")  # no manifest is committed
        ...     store.remove_orphans(), store.remove_orphans()
        ([7], [])
        """

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        """Return the states of ``task`` in checkpoints without a manifest above id ``above``, with their ids.

        For reports only, before ``remove_orphans``: they are not verified. Those that cannot be read are left out.

        Args:
            task: the name of the task.
            above: only checkpoints with a larger id.
            limit: leave out states with more bytes; None: no limit.

        Returns: pairs of id and bytes, by ascending id. By default none, for a store that keeps no such parts.

        Raises: StoreError if the checkpoints cannot be listed.

        >>> import dataflow as flow
        >>> with flow.MemoryStore() as store:
        ...     handles = [store.write(n, "counts[0]", b"x" * n) for n in (1, 2, 3)]
        >>> list(store.remains("counts[0]", above=1)), list(store.remains("counts[0]", above=1, limit=2))
        ([(2, b'xx'), (3, b'xxx')], [(2, b'xx')])
        """
        return iter(())

    def manifest_size(self, checkpoint: int) -> int:
        """Return the size of a manifest in bytes, without reading it; 0 if it is unknown, or there is no manifest.

        ``Checkpointing(max_restore_bytes=)`` limits the sum of this and the sizes of the parts.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: StoreError if the store cannot be read.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.manifest_size(1) > 0, store.manifest_size(2)
        (True, 0)
        """
        return 0

    def verify(self, checkpoint: int) -> Manifest:
        """Read every part and return the manifest.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: the errors of ``manifest`` and ``read``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> [(part.task, part.part) for part in store.verify(1).parts]  # the rows of collect() are a log
        [('numbers[0]', 0), ('numbers[0]', 1)]
        """
        manifest = self.manifest(checkpoint)
        for handle in manifest.parts:
            self.read(checkpoint, handle)
        return manifest
