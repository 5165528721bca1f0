"""Checkpoints in memory: they survive the crash of a job, but not the end of the process.

>>> store = MemoryStore()
>>> with store:
...     handle = store.write(1, "counts-0", b"state")
>>> store.checkpoints(), store.highest_id()
([], 1)
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from dataflow.errors import NoCheckpoint, StoreError
from dataflow.store.base import CheckpointStore
from dataflow.store.files import Buffer, Content
from dataflow.store.manifest import STATE, Checked, Manifest, PartHandle, check_part, decode, encode, part_file
from dataflow.store.references import Named, References

__all__ = ["MemoryStore"]


class MemoryStore(CheckpointStore):
    """A store that holds checkpoints in memory: copies of parts, and manifests in the bytes they would have on disk.

    Pass it as the location of `Checkpointing`, and to a second run to restore from it. ``open`` always succeeds,
    because the job that held it may have crashed without a ``close``. Thread-safe.

    Raises:
        StoreError: from ``write``, if the checkpoint is complete already.
        NoCheckpoint: from ``manifest``, if there is no such checkpoint.
        CheckpointDamaged: from ``read``, if the part is missing or differs from its handle.

    >>> with MemoryStore() as store:
    ...     handle = store.write(1, "counts-0", b"state")
    ...     store.read(1, handle)
    b'state'
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # guards the attributes below; several threads write parts
        self._parts: dict[int, dict[str, bytes]] = {}
        self._manifests: dict[int, bytes] = {}
        self._highest = 0
        self._references = References(self.manifest)

    @property
    def location(self) -> str:
        return "memory"

    def open(self, run_id: str = "run") -> None:
        """Do nothing: any number of jobs may have the store open.

        Args:
            run_id: not used.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> store.open("first")
        >>> store.open("second")  # the first job crashed without a close()
        """

    def close(self) -> None:
        """Do nothing: the store keeps its checkpoints, and can be written without ``open``.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> store.close()
        >>> store.write(1, "counts[0]", b"state").size
        5
        """

    def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
        """Store a copy of ``data`` as a part of ``task``. It replaces an earlier one of this checkpoint.

        Args:
            checkpoint: the id of the checkpoint.
            task: the name of the task, such as ``"counts[1]"``.
            data: the bytes of the part, or an iterable of pieces, each of which is valid until the next one is taken.
            part: 0 for the state of the task, 1 for its log.

        Returns: the handle of the part, for the manifest.

        Raises: StoreError if the checkpoint is complete already.

        >>> import dataflow as flow
        >>> store, data = flow.MemoryStore(), bytearray(b"state")
        >>> handle = store.write(1, "counts[0]", data)
        >>> data.clear()
        >>> store.read(1, handle)
        b'state'
        """
        checked, copy = Checked(data), bytearray()
        for piece in checked:
            copy += piece
        handle = checked.handle(task, part=part)
        with self._lock:
            if checkpoint in self._manifests:
                raise StoreError(f"checkpoint {checkpoint} in memory is complete: task {task!r} wrote too late")
            self._highest = max(self._highest, checkpoint)
            self._parts.setdefault(checkpoint, {})[handle.file] = bytes(copy)
        return handle

    def commit(self, manifest: Manifest) -> None:
        """Make ``manifest.checkpoint`` exist. It may be repeated.

        Args:
            manifest: the manifest of the checkpoint; all parts that it names are written.

        >>> import dataflow as flow
        >>> from dataflow.store.manifest import FORMAT, Manifest
        >>> store = flow.MemoryStore()
        >>> store.commit(Manifest(format=FORMAT, checkpoint=1, kind="checkpoint", pipeline="bids", mode="aligned",
        ...                       guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32))
        >>> store.checkpoints()
        [1]
        """
        with self._lock:
            self._highest = max(self._highest, manifest.checkpoint)
            self._manifests[manifest.checkpoint] = encode(manifest)

    def checkpoints(self) -> list[int]:
        """Return the ids of the checkpoints and savepoints in memory, ascending.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.checkpoints()
        [1]
        """
        with self._lock:
            return sorted(self._manifests)

    def manifest(self, checkpoint: int) -> Manifest:
        """Return the manifest of ``checkpoint``.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: NoCheckpoint if there is none; CheckpointDamaged if ``commit`` got an invalid manifest.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.manifest(1).kind, store.manifest(1).guarantee
        ('final', 'exactly once')
        """
        data = self._manifests.get(checkpoint)
        if data is None:
            raise NoCheckpoint(f"there is no checkpoint {checkpoint} in memory; there are {self.checkpoints()}")
        return decode(data, f"checkpoint {checkpoint} in memory")

    def manifest_size(self, checkpoint: int) -> int:
        """Return the bytes that the manifest would have on disk; 0 if there is none.

        Args:
            checkpoint: the id of the checkpoint.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.manifest_size(1) > 0, store.manifest_size(2)
        (True, 0)
        """
        return len(self._manifests.get(checkpoint, b""))

    def read(self, checkpoint: int, handle: PartHandle) -> Buffer:
        """Return the bytes of a part, verified.

        Args:
            checkpoint: the id of the checkpoint.
            handle: the handle of the part, from the manifest.

        Raises: CheckpointDamaged if the part is missing or differs from its handle.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> handle = store.write(1, "counts[0]", b"state")
        >>> store.read(1, handle)
        b'state'
        """
        written = handle.checkpoint or checkpoint
        data = self._parts.get(written, {}).get(handle.file, b"")
        return check_part(handle, data, f"checkpoint {written} in memory")

    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        """Delete parts of an aborted checkpoint; a checkpoint with a manifest is not changed.

        Args:
            checkpoint: the id of the aborted checkpoint.
            parts: the handles of the parts to delete; parts that do not exist, or are of an older checkpoint, are
                skipped.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> store.discard(1, [store.write(1, "counts[0]", b"state")])
        >>> store.remove_orphans()
        []
        """
        with self._lock:
            if checkpoint in self._manifests or checkpoint not in self._parts:
                return
            for handle in parts:
                if not handle.checkpoint:
                    self._parts[checkpoint].pop(handle.file, None)
            if not self._parts[checkpoint]:
                del self._parts[checkpoint]

    def retire(self, checkpoint: int) -> None:
        """Delete a checkpoint, if it exists, and the parts that no other one needs.

        Args:
            checkpoint: the id of the checkpoint.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> store = flow.MemoryStore()
        >>> rows = numbers.collect(checkpoint=flow.Checkpointing(store))
        >>> store.retire(1)
        >>> store.checkpoints(), store.highest_id()
        ([], 1)
        """
        with self._lock:
            written = {checkpoint, *(n for n, _ in self._references.of(checkpoint) or ())}
            self._manifests.pop(checkpoint, None)
            named = self._references.named(self._manifests)
            for n in written - self._manifests.keys():
                self._remove(n, named)

    def highest_id(self) -> int:
        """Return the largest id ever written or committed here, deleted ones included; 0 if there is none.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> handle = store.write(7, "counts[0]", b"state")
        >>> store.remove_orphans(), store.highest_id()
        ([7], 7)
        """
        return self._highest

    def remove_orphans(self) -> list[int]:
        """Delete parts that no manifest names, of checkpoints without one. Call it while none is pending.

        Returns: the ids of the checkpoints of which anything was deleted, ascending.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> handles = [store.write(n, "counts[0]", b"state") for n in (3, 2)]
        >>> store.remove_orphans()
        [2, 3]
        """
        with self._lock:
            orphans = sorted(self._parts.keys() - self._manifests.keys())
            named = self._references.named(self._manifests)
            return [checkpoint for checkpoint in orphans if self._remove(checkpoint, named)]

    def _remove(self, checkpoint: int, named: Named) -> bool:
        """Delete the parts of a checkpoint that others do not need; return whether there were any. Under the lock."""
        parts = self._parts.pop(checkpoint, {})
        kept = {file: data for file, data in parts.items() if named.has(checkpoint, file)}
        if kept:
            self._parts[checkpoint] = kept
        return len(kept) < len(parts)

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        """Return the states of ``task`` in checkpoints without a manifest above id ``above``, with their ids.

        Args:
            task: the name of the task.
            above: only checkpoints with a larger id.
            limit: leave out states with more bytes; None: no limit.

        Returns: pairs of id and bytes, by ascending id.

        >>> import dataflow as flow
        >>> store = flow.MemoryStore()
        >>> handles = [store.write(n, "counts[0]", b"state") for n in (1, 2)]
        >>> list(store.remains("counts[0]", above=1))
        [(2, b'state')]
        """
        file = part_file(task)
        with self._lock:
            orphans = sorted(self._parts.keys() - self._manifests.keys())
            parts = [(n, self._parts[n][file]) for n in orphans if n > above and file in self._parts[n]]
        return iter([(n, data) for n, data in parts if limit is None or len(data) <= limit])
