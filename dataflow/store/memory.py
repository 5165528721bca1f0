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
from dataflow.store.files import Buffer
from dataflow.store.manifest import Manifest, PartHandle, check_part, decode, encode, part_file, part_handle

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
        self._lock = threading.Lock()  # guards the three attributes below; several threads write parts
        self._parts: dict[int, dict[str, bytes]] = {}
        self._manifests: dict[int, bytes] = {}
        self._highest = 0

    @property
    def location(self) -> str:
        return "memory"

    def open(self, run_id: str = "run") -> None: ...

    def close(self) -> None: ...

    def write(self, checkpoint: int, task: str, data: Buffer) -> PartHandle:
        handle = part_handle(task, data)
        with self._lock:
            if checkpoint in self._manifests:
                raise StoreError(f"checkpoint {checkpoint} in memory is complete: task {task!r} wrote too late")
            self._highest = max(self._highest, checkpoint)
            self._parts.setdefault(checkpoint, {})[handle.file] = bytes(data)
        return handle

    def commit(self, manifest: Manifest) -> None:
        with self._lock:
            self._highest = max(self._highest, manifest.checkpoint)
            self._manifests[manifest.checkpoint] = encode(manifest)

    def checkpoints(self) -> list[int]:
        with self._lock:
            return sorted(self._manifests)

    def manifest(self, checkpoint: int) -> Manifest:
        data = self._manifests.get(checkpoint)
        if data is None:
            raise NoCheckpoint(f"there is no checkpoint {checkpoint} in memory; there are {self.checkpoints()}")
        return decode(data, f"checkpoint {checkpoint} in memory")

    def manifest_size(self, checkpoint: int) -> int:
        return len(self._manifests.get(checkpoint, b""))

    def read(self, checkpoint: int, handle: PartHandle) -> Buffer:
        data = self._parts.get(checkpoint, {}).get(handle.file, b"")
        return check_part(handle, data, f"checkpoint {checkpoint} in memory")

    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        with self._lock:
            if checkpoint in self._manifests or checkpoint not in self._parts:
                return
            for handle in parts:
                self._parts[checkpoint].pop(handle.file, None)
            if not self._parts[checkpoint]:
                del self._parts[checkpoint]

    def retire(self, checkpoint: int) -> None:
        with self._lock:
            self._manifests.pop(checkpoint, None)
            self._parts.pop(checkpoint, None)

    def highest_id(self) -> int:
        return self._highest

    def remove_orphans(self) -> list[int]:
        with self._lock:
            orphans = sorted(self._parts.keys() - self._manifests.keys())
            for checkpoint in orphans:
                del self._parts[checkpoint]
            return orphans

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        file = part_file(task)
        with self._lock:
            orphans = sorted(self._parts.keys() - self._manifests.keys())
            parts = [(n, self._parts[n][file]) for n in orphans if n > above and file in self._parts[n]]
        return iter([(n, data) for n, data in parts if limit is None or len(data) <= limit])
