"""Checkpoints in a directory: one folder each, the manifest written last.

    ckpt/LOCK FENCE          the lock of the writer (see ``lock``)
    ckpt/HIGHEST.12          the largest id whose folder is deleted, written by the owner with fencing token 12
    ckpt/chk-00000007/       see ``folder``; without a manifest it may hold objects that later checkpoints need

>>> import tempfile
>>> from dataflow.store.manifest import FORMAT
>>> with tempfile.TemporaryDirectory() as path, DirectoryStore(path) as store:
...     parts = (store.write(1, "counts-0", b"state"),)
...     store.commit(Manifest(format=FORMAT, checkpoint=1, kind="checkpoint", pipeline="bids", mode="aligned",
...                           guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32,
...                           parts=parts))
...     store.checkpoints(), store.read(1, parts[0])
([1], b'state')
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from dataflow.clock import Clock, SystemClock
from dataflow.errors import CheckpointDamaged, CheckpointMismatch, NoCheckpoint, StoreError
from dataflow.store.base import CheckpointStore
from dataflow.store.files import DISK, Buffer, Content, FileSystem, storing
from dataflow.store.folder import CheckpointFolder, folder_name
from dataflow.store.lock import DirectoryLock
from dataflow.store.manifest import STATE, Manifest, PartHandle
from dataflow.store.pin import Pin
from dataflow.store.references import References

__all__ = ["STREAM_ON_SPARK", "DirectoryStore"]

HIGHEST: Final = "HIGHEST"
STREAM_ON_SPARK: Final = "job.json"
"""The file that a directory has if a stream on Spark keeps its checkpoints there, in a form of its own."""
_NOTE: Final = re.compile(r"HIGHEST\.([0-9]{1,19})")
_FOLDER: Final = re.compile(r"chk-([0-9]{8,18})")
_CLOCK: Final = SystemClock()


class DirectoryStore(CheckpointStore):
    """A store of checkpoints in a local directory.

    Thread-safe as far as the contract requires: ``write`` may run in many threads, beside any other call.

    Args:
        path: the directory. ``open`` makes it, and missing folders above it.
        files: the file system to use; tests inject failures with it.
        clock: the clock of the time that ``open`` records in the lock file.

    Raises:
        DirectoryInUse: from ``open``, if another job writes there; from writing, if another job has taken over.
        StoreError: from any call, if the disk fails; the message says what to do.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as path, DirectoryStore(path) as store:
    ...     handle = store.write(1, "counts-0", b"state")
    ...     store.checkpoints(), store.highest_id()
    ([], 1)
    """

    def __init__(self, path: str | os.PathLike[str], *, files: FileSystem = DISK, clock: Clock = _CLOCK) -> None:
        self._path = Path(path)
        self._files = files
        self._lock = DirectoryLock(self._path, files=files, clock=clock)
        self._counting = threading.Lock()  # guards the file HIGHEST: read, compare, replace
        self._cleaning = threading.Lock()  # guards the references: one clean-up at a time
        self._references = References(self.manifest)

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def file_system(self) -> FileSystem:
        return self._files

    def open(self, run_id: str = "run") -> None:
        """Lock the directory against other writers, and make it, and missing folders above it.

        Args:
            run_id: identifies the run, in messages to others that want to write.

        Raises: DirectoryInUse if another job, or this object, has it open; StoreError if it cannot be made or written;
        CheckpointMismatch if it is the directory of a stream on Spark.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     flow.DirectoryStore(path).open("second")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dataflow.errors.DirectoryInUse: ... is in use by process ...: wait for that job, or use another directory
        """
        with storing("make", self._path):
            for folder in (*reversed(self._path.absolute().parents), self._path):
                if folder.exists() and not folder.is_dir():
                    what = "a checkpoint directory" if folder is self._path else "a directory"
                    raise StoreError(f"expected {what} at {folder}, found a file: choose another path")
                if folder is not self._path and not folder.is_dir():
                    self._files.make_directory(folder)
            if not self._path.is_dir():  # the user's path may be a symbolic link
                self._files.make_directory(self._path)
            elif not self.checkpoints():  # a process that crashed may have made it, and not synced its entry
                with suppress(PermissionError):
                    self._files.sync_directory(self._path.resolve().parent)
            if (self._path / STREAM_ON_SPARK).exists():
                raise CheckpointMismatch(
                    f"{self._path} is the directory of a stream on Spark, which no batch and no other runner can "
                    "continue: use another directory"
                )
        self._lock.acquire(run_id)

    def announce(self, **entries: str) -> None:
        """Tell readers of the lock file how to reach the process that has the store open.

        Args:
            entries: ``socket``, the directory of its socket, or ``no_socket``, why it has none.

        Raises: StoreError if the store is not open, or the lock file cannot be written.

        >>> import json, tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     store.announce(no_socket="it takes no requests")
        ...     with open(f"{path}/LOCK") as lock:
        ...         json.load(lock)["no_socket"]
        'it takes no requests'
        """
        self._lock.announce(**entries)

    def close(self) -> None:
        """Release the lock, if it is held, so that another job can write. Reading does not need it.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     store.close()
        ...     with flow.DirectoryStore(path) as other:
        ...         other.write(1, "counts[0]", b"state").size
        5
        """
        self._lock.release()

    def folder(self, checkpoint: int) -> CheckpointFolder:
        """Return the folder of a checkpoint, which need not exist.

        Args:
            checkpoint: the id of the checkpoint, from 1.

        >>> import dataflow as flow
        >>> flow.DirectoryStore("ckpt").folder(7).path.name
        'chk-00000007'
        """
        assert checkpoint > 0, f"checkpoint ids start at 1, got {checkpoint}"
        return CheckpointFolder(self._path / folder_name(checkpoint), files=self._files)

    def write(self, checkpoint: int, task: str, data: Content, part: int = STATE) -> PartHandle:
        """Write a part of ``task`` to a file in the checkpoint's folder; it is durable on return. Thread-safe.

        A second write by the same job for the same checkpoint, task and part replaces the first.

        Args:
            checkpoint: the id of the checkpoint.
            task: the name of the task, such as ``"counts[1]"``.
            data: the bytes of the part, or an iterable of pieces, which are written as they come; not used after the
                call.
            part: 0 for the state of the task, 1 for its log.

        Returns: the handle of the part, for the manifest.

        Raises: StoreError if the store is not open, the disk fails, or the checkpoint is complete already;
        DirectoryInUse if another job has taken over; errors of the iterable.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     store.write(7, "counts-0", b"state").file, store.write(7, "counts-0", iter([b"ro", b"ws"]), part=1).size
        ('counts-0.1.0.part', 4)
        """
        self._lock.check()
        folder = self.folder(checkpoint)
        if folder.exists:
            raise StoreError(f"checkpoint {checkpoint} in {self._path} is complete: task {task!r} wrote too late")
        return folder.write(task, data, self._lock.token, part)

    def commit(self, manifest: Manifest) -> None:
        """Write the manifest into the checkpoint's folder, durably and atomically. It may be repeated.

        Args:
            manifest: the manifest of the checkpoint; all parts that it names are durable.

        Raises: StoreError, after which the checkpoint does not exist, unless the disk fails again; DirectoryInUse if
        another job has taken over.

        >>> import tempfile, dataflow as flow
        >>> from dataflow.store.manifest import FORMAT, Manifest
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     parts = (store.write(7, "counts-0", b"state"),)
        ...     store.commit(Manifest(format=FORMAT, checkpoint=7, kind="checkpoint", pipeline="bids", mode="aligned",
        ...                           guarantee="exactly once", finished=False, created=0.0, run_id="a", job="0" * 32,
        ...                           parts=parts))
        ...     sorted(file.name for file in store.folder(7).path.iterdir())
        ['counts-0.1.0.part', 'manifest.json']
        """
        self._lock.check()
        self.folder(manifest.checkpoint).commit(manifest)

    def checkpoints(self) -> list[int]:
        """Return the ids of the checkpoints and savepoints in the directory, ascending, damaged ones included.

        Raises: StoreError if the directory cannot be read. A missing one has no checkpoints.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     flow.DirectoryStore(path).checkpoints()
        [1]
        """
        return [checkpoint for checkpoint in self._folders() if self._exists(checkpoint)]

    def manifest(self, checkpoint: int) -> Manifest:
        """Read the manifest of ``checkpoint``.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: NoCheckpoint if there is none; CheckpointDamaged if the manifest is damaged or of another checkpoint, or
        the folder is a symbolic link; StoreError if it cannot be read; CheckpointError for a newer format.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     manifest = flow.DirectoryStore(path).manifest(1)
        >>> manifest.kind, manifest.guarantee, {part.task for part in manifest.parts}
        ('final', 'exactly once', {'numbers[0]'})
        """
        folder = self.folder(checkpoint)
        if not self._exists(checkpoint):
            raise NoCheckpoint(f"there is no checkpoint {checkpoint} in {self._path}; there are {self.checkpoints()}")
        self._refuse_link(folder)
        manifest = folder.manifest()
        if manifest.checkpoint != checkpoint:
            raise CheckpointDamaged(
                f"{folder.path}: found the manifest of checkpoint {manifest.checkpoint}: rename the folder back"
            )
        return manifest

    def read(self, checkpoint: int, handle: PartHandle) -> Buffer:
        """Read a part and verify its size and checksum.

        Args:
            checkpoint: the id of the checkpoint.
            handle: the handle of the part, from the manifest.

        Raises: CheckpointDamaged naming file, expected and found; StoreError if the part cannot be read.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     handle = store.write(7, "counts[0]", b"state")
        ...     store.read(7, handle)
        b'state'
        """
        folder = self.folder(checkpoint)
        self._refuse_link(folder)
        return folder.read(handle)

    def pieces(self, checkpoint: int, handle: PartHandle) -> Iterator[Buffer]:
        """Yield the bytes of a part as they are read from its file, and verify size and checksum at the end.

        Args:
            checkpoint: the id of the checkpoint.
            handle: the handle of the part, from the manifest.

        Returns: pieces, each of which is valid until the next one is taken.

        Raises: CheckpointDamaged naming file, expected and found; StoreError if the part cannot be read.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     handle = store.write(7, "counts[0]", b"state")
        ...     [bytes(piece) for piece in store.pieces(7, handle)]
        [b'state']
        """
        folder = self.folder(checkpoint)
        self._refuse_link(folder)
        return folder.pieces(handle)

    def pin(self, checkpoint: int) -> AbstractContextManager[Pin]:
        """Keep a checkpoint from being deleted in a ``with`` block, also by other processes.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: StoreError.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     with store.pin(7) as pin:  # there is nothing to pin
        ...         pin.exists
        True
        """
        return self.folder(checkpoint).pin()

    def discard(self, checkpoint: int, parts: Iterable[PartHandle]) -> None:
        """Delete parts of an aborted checkpoint, and its folder if it is empty then.

        A checkpoint with a manifest is not changed.

        Args:
            checkpoint: the id of the aborted checkpoint.
            parts: the handles of the parts to delete; parts that do not exist, or are of an older checkpoint, are
                skipped.

        Raises: StoreError if the store is not open or the disk fails; DirectoryInUse if another job has taken over.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     store.discard(7, [store.write(7, "counts[0]", b"state")])
        ...     store.folder(7).path.exists()
        False
        """
        self._lock.check()
        folder = self.folder(checkpoint)
        if not folder.exists:
            self._remember(checkpoint)
            folder.remove_parts([part.file for part in parts if not part.checkpoint])

    def retire(self, checkpoint: int) -> None:
        """Delete a checkpoint, if it exists: its manifest first, then the objects that no other manifest names.

        Those include objects of older checkpoints that only this one needed. Foreign files stay.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: CheckpointPinned if a restore or a command reads it, after which nothing has changed; StoreError if the
        store is not open or the disk fails; DirectoryInUse if another job has taken over.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     with flow.DirectoryStore(path) as store:
        ...         store.retire(1)
        ...     store.checkpoints(), store.highest_id()
        ([], 1)
        """
        what = f"checkpoint {checkpoint} in {self._path}"
        self._delete(checkpoint, lambda folder, kept: folder.remove_unless_pinned(kept, what))

    def abandon(self, checkpoint: int) -> None:
        """Delete a checkpoint as ``retire`` does, also if it is being read: its readers raise CheckpointDeleted.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: StoreError if the store is not open or the disk fails; DirectoryInUse if another job has taken over.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     with flow.DirectoryStore(path) as store, store.folder(1).pin():
        ...         store.abandon(1)
        ...     store.checkpoints()
        []
        """
        self._delete(checkpoint, CheckpointFolder.remove)

    def _delete(self, checkpoint: int, remove: Callable[[CheckpointFolder, Callable[[str], bool]], bool]) -> None:
        """Delete a checkpoint, and the objects of older ones that only this one needed."""
        self._lock.check()
        with self._cleaning:
            needed = self._references.of(checkpoint) or frozenset()
            named = self._references.named([n for n in self.checkpoints() if n != checkpoint])
            self._remember(checkpoint)
            remove(self.folder(checkpoint), partial(named.has, checkpoint))
            older: dict[int, list[str]] = {}
            for n, file in sorted(needed):
                if n != checkpoint and not named.has(n, file):
                    older.setdefault(n, []).append(file)
            for n, files in older.items():
                if not self._exists(n):
                    self.folder(n).remove_parts(files)

    def highest_id(self) -> int:
        """Return the largest id ever used in the directory, aborted and retired ones included; 0 if there is none.

        Raises: StoreError if the directory cannot be read, or a file that records the id is damaged.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     store.discard(7, [store.write(7, "counts[0]", b"state")])
        ...     store.highest_id()
        7
        """
        return max(self._counted(self._notes()), *self._folders(), 0)

    def remove_orphans(self) -> list[int]:
        """Delete objects without a manifest that names them, from folders without one. Call it while none is pending.

        Crashes leave such objects.

        Returns: the ids of the checkpoints of which anything was deleted, ascending.

        Raises: StoreError if the store is not open or the disk fails; DirectoryInUse if another job has taken over.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     handle = store.write(7, "counts[0]", b"state")  # no manifest is committed
        ...     store.remove_orphans(), store.remove_orphans()
        ([7], [])
        """
        self._lock.check()
        with self._cleaning:
            orphans = [checkpoint for checkpoint in self._folders() if not self._exists(checkpoint)]
            if orphans:
                self._remember(orphans[-1])
            named = self._references.named(self.checkpoints())
            return [n for n in orphans if self.folder(n).remove(partial(named.has, n))]

    def files(self) -> dict[tuple[int, str], int]:
        """Return the sizes of all manifests, objects and temporary files in the folders of checkpoints.

        Returns: bytes, by the id of the checkpoint whose folder holds the file, and its name.

        Raises: StoreError if the directory cannot be read.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     handle = store.write(7, "counts-0", b"state")
        ...     store.files()
        {(7, 'counts-0.1.0.part'): 5}
        """
        return {(n, name): size for n in self._folders() for name, size in self.folder(n).files()}

    def remains(self, task: str, above: int, limit: int | None = None) -> Iterator[tuple[int, Buffer]]:
        """Yield the states of ``task`` in folders without a manifest above id ``above``, with their ids.

        They are not verified. Those that cannot be read are left out.

        Args:
            task: the name of the task.
            above: only checkpoints with a larger id.
            limit: leave out parts with more bytes; None: no limit.

        Returns: pairs of id and bytes, by ascending id.

        Raises: StoreError if the directory cannot be listed.

        >>> import tempfile, dataflow as flow
        >>> with tempfile.TemporaryDirectory() as path, flow.DirectoryStore(path) as store:
        ...     handles = [store.write(n, "counts[0]", b"state") for n in (1, 2)]
        ...     list(store.remains("counts[0]", above=1))
        [(2, b'state')]
        """
        for checkpoint in self._folders():
            if checkpoint > above and not self._exists(checkpoint):
                for data in self.folder(checkpoint).remains(task, limit):
                    yield checkpoint, data

    def manifest_size(self, checkpoint: int) -> int:
        """Return the size of the file of a manifest in bytes; 0 if there is none.

        Args:
            checkpoint: the id of the checkpoint.

        Raises: StoreError if the folder cannot be read.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
        >>> with tempfile.TemporaryDirectory() as path:
        ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
        ...     store = flow.DirectoryStore(path)
        ...     store.manifest_size(1) == (store.folder(1).path / "manifest.json").stat().st_size
        True
        """
        return self.folder(checkpoint).manifest_size

    def _exists(self, checkpoint: int) -> bool:
        """Return whether the folder has a manifest; a symbolic link in its place counts as a damaged checkpoint."""
        folder = self.folder(checkpoint)
        return folder.path.is_symlink() or folder.exists

    def _refuse_link(self, folder: CheckpointFolder) -> None:
        if folder.path.is_symlink():
            raise CheckpointDamaged(
                f"{folder.path} is a symbolic link, which is not followed: move the checkpoint here, or restore it by "
                "its own path"
            )

    def _folders(self) -> list[int]:
        with storing("list", self._path):
            if not self._path.is_dir():
                return []
            matches = (_FOLDER.fullmatch(name) for name in self._files.names(self._path))
        return sorted(int(match[1]) for match in matches if match)

    def _notes(self) -> dict[str, int]:
        """Return the files with the largest id, and the tokens of their writers.

        A job that lost the directory without noticing writes its own file, so the largest id never decreases.
        """
        with storing("list", self._path):
            matches = [_NOTE.fullmatch(name) for name in self._files.names(self._path)] if self._path.is_dir() else []
        return {match[0]: int(match[1]) for match in matches if match}

    def _counted(self, notes: Iterable[str]) -> int:
        """Return the largest id in the files ``notes``; 0 if there are none. Raises: StoreError."""
        return max([self._noted(self._path / name) for name in notes], default=0)

    def _noted(self, path: Path) -> int:
        with storing("read", path):
            if self._files.size(path) is None:
                return 0
            data = self._files.read(path)
        if re.fullmatch(rb"[0-9]{1,18}\n?", data) is None:
            raise StoreError(f"{path}: expected a checkpoint id, found {data[:80]!r}; write the largest id ever used")
        return int(data)

    def _remember(self, checkpoint: int) -> None:
        """Write the id of ``checkpoint``, whose folder is about to be deleted, unless a higher id is recorded."""
        with self._counting:
            others = [other for other in self._folders() if other != checkpoint]
            notes = self._notes()
            if checkpoint > max(self._counted(notes), *others, 0):
                path = self._path / f"{HIGHEST}.{self._lock.token}"
                with storing("write", path):
                    self._files.write_new(path, b"%d\n" % checkpoint)
                    for name, token in notes.items():
                        if token < self._lock.token:
                            self._files.remove(self._path / name)
