"""Delete stored checkpoints: what depends on them is found first, and what was deleted is found afterwards.

The caller holds the store open, so no job runs and nothing else changes the directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dataflow.drawing import printable_lines
from dataflow.errors import CheckpointError, ConfigurationError
from dataflow.protocol.events import BarrierKind
from dataflow.store.directory import DirectoryStore
from dataflow.store.folder import folder_name
from dataflow.store.status import CheckpointContents, CheckpointStatus, contents, contents_of, verified

__all__ = ["Deleted", "Removal", "delete", "planned", "text", "to_json"]


@dataclass(frozen=True, slots=True)
class Removal:
    """The checkpoints to delete, and what a job resumes from before and after.

    Attributes:
        location: the directory.
        checkpoints: those to delete, oldest first.
        newest: the checkpoint that ``restore="auto"`` finds now; None: there is none.
        newest_left: the one that it finds afterwards, every byte of which was read; None: there is none.
        savepoints: the whole savepoints that are left, which are restored only if they are named.
        loses_last: a whole checkpoint is deleted, and afterwards there is none to resume from, or to restore at all.
    """

    location: str
    checkpoints: tuple[CheckpointContents, ...]
    newest: int | None
    newest_left: int | None
    savepoints: tuple[int, ...]
    loses_last: bool

    def refuse_the_last(self) -> None:
        """Raise ConfigurationError if a job could not resume afterwards."""
        if self.loses_last:
            left = f" (savepoints {list(self.savepoints)} are restored only if named)" if self.savepoints else ""
            raise ConfigurationError(
                f"nothing was deleted: without {_names(self.checkpoints)} no whole checkpoint is left in "
                f"{self.location} for a job to resume from{left}, so it would have to start from the beginning; give "
                "--yes to delete nevertheless"
            )


@dataclass(frozen=True, slots=True)
class Deleted:
    """The files that were deleted with one checkpoint, and their sizes. Names begin with the folder."""

    checkpoint: CheckpointContents
    files: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        """The sum of their sizes."""
        return sum(size for _, size in self.files)


def planned(store: DirectoryStore, ids: Iterable[int]) -> Removal:
    """Return what deleting the checkpoints ``ids`` means. Nothing is deleted.

    Raises: NoCheckpoint if one does not exist, naming those that do; StoreError.

    >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
    >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
    >>> with tempfile.TemporaryDirectory() as path:
    ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
    ...     removal = planned(flow.DirectoryStore(path), [1])
    >>> removal.newest, removal.newest_left, removal.loses_last
    (1, None, True)
    """
    chosen = {checkpoint: contents_of(store, checkpoint) for checkpoint in sorted(set(ids))}
    found = contents(store)
    left = [one for one in found if one.id not in chosen]
    newest_left = _newest(store, left)
    deletes_whole = [one for one in chosen.values() if one.status is CheckpointStatus.WHOLE]
    savepoints = tuple(one.id for one in left if one.status is CheckpointStatus.WHOLE and _is_savepoint(one))
    none_to_resume = newest_left is None and not all([_is_savepoint(one) for one in deletes_whole])
    none_at_all = newest_left is None and not savepoints
    return Removal(
        location=store.location,
        checkpoints=tuple(chosen.values()),
        newest=max([one.id for one in found if _resumes(one)], default=None),
        newest_left=newest_left,
        savepoints=savepoints,
        loses_last=bool(deletes_whole) and (none_to_resume or none_at_all),
    )


def delete(store: DirectoryStore, removal: Removal) -> list[Deleted]:
    """Delete the checkpoints of ``removal``, oldest first; return what was deleted.

    A crash at any moment leaves every other checkpoint whole. The next job removes objects that it left.

    Raises: CheckpointPinned if a checkpoint is being read; DirectoryInUse if a job has taken over; StoreError. A note
    names what had been deleted before.
    """
    deleted: list[Deleted] = []
    for checkpoint in removal.checkpoints:
        before = store.files()
        try:
            store.retire(checkpoint.id)
        except CheckpointError as error:
            if deleted:
                error.add_note(f"deleted before: {_names([one.checkpoint for one in deleted])}")
            raise
        gone = {name: size for name, size in before.items() if name not in store.files()}
        files = tuple((f"{folder_name(n)}/{file}", size) for (n, file), size in sorted(gone.items()))
        deleted.append(Deleted(checkpoint, files))
    return deleted


def text(removal: Removal, deleted: Sequence[Deleted]) -> str:
    """Return what was deleted as lines, one per file."""
    lines = []
    for one in deleted:
        lines.append(f"deleted {_name(one.checkpoint)}, {one.checkpoint.status}: {one.bytes:,} bytes freed")
        lines += [f"  {file}  {size:,} bytes" for file, size in one.files]
    ids = [one.id for one in removal.checkpoints]
    if removal.newest in ids:
        now = "no checkpoint is left that a job can resume from"
        if removal.newest_left is not None:
            now = f"a job resumes from checkpoint {removal.newest_left}, and takes back rows that were committed later"
        lines.append(f"checkpoint {removal.newest} was the newest whole one: {now}")
    if len(deleted) > 1:
        lines.append(f"{sum(one.bytes for one in deleted):,} bytes freed in all")
    return printable_lines("\n".join(lines))


def to_json(removal: Removal, deleted: Sequence[Deleted]) -> dict[str, Any]:
    """Return what was deleted as JSON values."""
    return {
        "deleted": [
            {
                "id": one.checkpoint.id,
                "kind": None if one.checkpoint.manifest is None else one.checkpoint.manifest.kind,
                "status": one.checkpoint.status.value,
                "files": [{"file": file, "bytes": size} for file, size in one.files],
                "bytes": one.bytes,
            }
            for one in deleted
        ],
        "bytes": sum(one.bytes for one in deleted),
        "resumes_from": {"before": removal.newest, "after": removal.newest_left},
    }


def _resumes(found: CheckpointContents) -> bool:
    """Return whether ``restore="auto"`` would take a checkpoint, judged by the existence of its objects."""
    return found.status is CheckpointStatus.WHOLE and not _is_savepoint(found)


def _is_savepoint(found: CheckpointContents) -> bool:
    return found.manifest is not None and found.manifest.kind == BarrierKind.SAVEPOINT.value


def _newest(store: DirectoryStore, found: Sequence[CheckpointContents]) -> int | None:
    """Return the newest of these checkpoints that a job can resume from; its bytes are read, because others go."""
    for one in reversed(found):
        if _resumes(one) and verified(store, one.id).status is CheckpointStatus.WHOLE:
            return one.id
    return None


def _name(found: CheckpointContents) -> str:
    return f"{'savepoint' if _is_savepoint(found) else 'checkpoint'} {found.id}"


def _names(found: Sequence[CheckpointContents]) -> str:
    return ", ".join(map(_name, found))
