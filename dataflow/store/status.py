"""The status of a stored checkpoint, derived from the objects that are found in its directory. Nothing stores it.

``contents`` and ``contents_of`` look at the existence and the size of objects. ``verified`` reads every byte. All pin
a checkpoint while they look at it, so a job that runs there does not delete it meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dataflow.errors import CheckpointError, CheckpointIncomplete, NoCheckpoint
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import COPY_ALL, CheckpointFolder, folder_name
from dataflow.store.manifest import LOG, Manifest, PartHandle
from dataflow.store.references import Named, References

__all__ = [
    "CheckpointContents",
    "CheckpointStatus",
    "ObjectStatus",
    "StoredObject",
    "contents",
    "contents_of",
    "objects_in",
    "refuse_unknown",
    "status_of",
    "verified",
]


class CheckpointStatus(StrEnum):
    """Whether a stored checkpoint can be restored.

    >>> str(CheckpointStatus.WHOLE), CheckpointStatus("damaged")
    ('whole', <CheckpointStatus.DAMAGED: 'damaged'>)
    """

    WHOLE = "whole"
    """The manifest is valid, and all objects that it names are there."""
    INCOMPLETE = "incomplete"
    """Objects that the manifest names are missing."""
    DAMAGED = "damaged"
    """The manifest or an object cannot be read, or differs from what was written."""
    UNFINISHED = "unfinished"
    """There are objects that no manifest names: the checkpoint is being written, or a crash cut it short."""


class ObjectStatus(StrEnum):
    """What was found of one object of a checkpoint."""

    WHOLE = "whole"
    """Its bytes were read and are those that were written."""
    PRESENT = "present"
    """It is there with the right size; its bytes were not read."""
    MISSING = "missing"
    """It is not there."""
    DAMAGED = "damaged"
    """It cannot be read, or differs from what was written."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object (file) of a checkpoint.

    Attributes:
        checkpoint: the checkpoint that wrote the object, and whose folder holds it.
        file: its name in that folder.
        size: its bytes when it was written; of an unfinished checkpoint, the bytes found.
        status: what was found.
        task: the task whose state it holds; None: no manifest names it.
        part: "state", or "log" for the rows of incremental state; None: no manifest names it.
        reason: why it is missing or damaged; None: it is neither.
    """

    checkpoint: int
    file: str
    size: int
    status: ObjectStatus
    task: str | None = None
    part: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class CheckpointContents:
    """One checkpoint of a directory, as it was found.

    Attributes:
        id: the number of the checkpoint.
        status: whether it can be restored.
        reason: why it cannot; None if it is whole.
        manifest: None: it is missing or cannot be read.
        objects: the objects that the manifest names, older ones included; of an unfinished checkpoint those that are
            there; none if the manifest cannot be read.
    """

    id: int
    status: CheckpointStatus
    reason: str | None = None
    manifest: Manifest | None = None
    objects: tuple[StoredObject, ...] = ()


_UNFINISHED: Final = "no manifest names its objects: it is being written, or a crash or a lost manifest left it"
_SHOWN: Final = 5
"""How many missing objects a reason names."""


def contents(store: DirectoryStore) -> list[CheckpointContents]:
    """Return the checkpoints in a directory by ascending id, unfinished ones included. No object is read.

    Raises: StoreError if the directory cannot be read.
    """
    unfinished = _orphans(store)  # before the others: one that is completed meanwhile is then found complete
    existing = [_existing(store, checkpoint, _present) for checkpoint in store.checkpoints()]
    found = {one.id: one for one in existing if one is not None}
    for checkpoint, files in unfinished.items():
        found.setdefault(checkpoint, _unfinished(checkpoint, files))
    return [found[checkpoint] for checkpoint in sorted(found)]


def contents_of(store: DirectoryStore, checkpoint: int) -> CheckpointContents:
    """Return one checkpoint. No object is read. Raises: NoCheckpoint, StoreError."""
    return _one(store, checkpoint, _present)


def verified(store: DirectoryStore, checkpoint: int) -> CheckpointContents:
    """Return one checkpoint, after reading every byte of it. Raises: NoCheckpoint, StoreError."""
    return _one(store, checkpoint, _whole)


def refuse_unknown(store: DirectoryStore, ids: Iterable[int]) -> None:
    """Raise NoCheckpoint unless the directory has all these checkpoints; the message lists those it has."""
    for checkpoint in sorted(ids):
        contents_of(store, checkpoint)


def objects_in(folder: CheckpointFolder, manifest: Manifest) -> tuple[StoredObject, ...]:
    """Return the objects that a manifest names, by their existence and size."""
    return tuple(_object(folder, manifest, handle, _present) for handle in manifest.parts)


def status_of(objects: Sequence[StoredObject]) -> tuple[CheckpointStatus, str | None]:
    """Return the status of a checkpoint whose manifest is valid, and the reason if it is not whole.

    >>> missing = StoredObject(3, "a.part", 5, ObjectStatus.MISSING, "a[0]", "state", "it is missing")
    >>> status_of([missing])
    (<CheckpointStatus.INCOMPLETE: 'incomplete'>, 'it is missing')
    >>> status_of([])
    (<CheckpointStatus.WHOLE: 'whole'>, None)
    """
    damaged = [one.reason for one in objects if one.status is ObjectStatus.DAMAGED]
    missing = [one for one in objects if one.status is ObjectStatus.MISSING]
    if damaged:
        more = f" (and {len(damaged) - 1} more objects)" if len(damaged) > 1 else ""
        return CheckpointStatus.DAMAGED, f"{damaged[0]}{more}"
    if len(missing) == 1:
        return CheckpointStatus.INCOMPLETE, missing[0].reason
    if missing:
        names = ", ".join(f"{folder_name(one.checkpoint)}/{one.file}" for one in missing[:_SHOWN])
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        copy = COPY_ALL if any([one.checkpoint < max(o.checkpoint for o in objects) for one in missing]) else ""
        return CheckpointStatus.INCOMPLETE, f"{len(missing)} of {len(objects)} objects are missing: {names}{more}{copy}"
    return CheckpointStatus.WHOLE, None


Check = Callable[[CheckpointFolder, PartHandle], ObjectStatus]
"""A function that looks at one object. Raises: CheckpointError."""


def _present(folder: CheckpointFolder, handle: PartHandle) -> ObjectStatus:
    folder.check_size(handle)
    return ObjectStatus.PRESENT


def _whole(folder: CheckpointFolder, handle: PartHandle) -> ObjectStatus:
    folder.read(handle)
    return ObjectStatus.WHOLE


def _one(store: DirectoryStore, checkpoint: int, check: Check) -> CheckpointContents:
    found = _existing(store, checkpoint, check)
    if found is None:
        unfinished = _orphans(store)
        if checkpoint not in unfinished:
            known = sorted({*store.checkpoints(), *unfinished})
            raise NoCheckpoint(f"there is no checkpoint {checkpoint} in {store.location}; there are {known}")
        found = _unfinished(checkpoint, unfinished[checkpoint])
    return found


def _existing(store: DirectoryStore, checkpoint: int, check: Check) -> CheckpointContents | None:
    """Return a checkpoint with a manifest; None: there is none, or it was deleted meanwhile. Raises: StoreError."""
    folder = store.folder(checkpoint)
    with folder.pin() as pin:
        try:
            manifest = store.manifest(checkpoint)
        except NoCheckpoint:
            return None
        except CheckpointError as error:
            return CheckpointContents(checkpoint, CheckpointStatus.DAMAGED, str(error))
        objects = tuple(_object(folder, manifest, handle, check) for handle in manifest.parts)
        status, reason = status_of(objects)
        if status is not CheckpointStatus.WHOLE and not pin.exists:
            return None
    return CheckpointContents(checkpoint, status, reason, manifest, objects)


def _object(folder: CheckpointFolder, manifest: Manifest, handle: PartHandle, check: Check) -> StoredObject:
    reason = None
    try:
        status = check(folder, handle)
    except CheckpointIncomplete as error:
        status, reason = ObjectStatus.MISSING, str(error)
    except CheckpointError as error:
        status, reason = ObjectStatus.DAMAGED, str(error)
    part = "log" if handle.part == LOG else "state"
    written = handle.checkpoint if handle.is_elsewhere else manifest.checkpoint
    return StoredObject(written, handle.file, handle.size, status, handle.task, part, reason)


def _orphans(store: DirectoryStore) -> dict[int, dict[str, int]]:
    """Return the files that ``remove_orphans`` would delete: no manifest names them, and their folder has none.

    Returns: by the id of the checkpoint, the name and the size of each file. Raises: StoreError.
    """
    files = store.files()
    complete = store.checkpoints()
    incomplete = {n for n, _ in files} - set(complete)
    named = References(store.manifest).named(complete) if incomplete else Named(frozenset())
    found: dict[int, dict[str, int]] = {}
    for (n, file), size in files.items():
        if n in incomplete and not named.has(n, file):
            found.setdefault(n, {})[file] = size
    return found


def _unfinished(checkpoint: int, files: Mapping[str, int]) -> CheckpointContents:
    objects = tuple(StoredObject(checkpoint, file, size, ObjectStatus.PRESENT) for file, size in files.items())
    return CheckpointContents(checkpoint, CheckpointStatus.UNFINISHED, _UNFINISHED, None, objects)
