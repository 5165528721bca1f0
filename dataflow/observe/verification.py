"""Read every byte of stored checkpoints, and show each object with what was found."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.drawing import printable
from dataflow.errors import NoCheckpoint
from dataflow.observe.checkpoints import store_in
from dataflow.store.status import (
    CheckpointContents,
    CheckpointStatus,
    ObjectStatus,
    StoredObject,
    contents,
    refuse_unknown,
    verified,
)

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["headline", "is_bad", "objects_table", "to_json", "verify_checkpoints"]


def verify_checkpoints(directory: Path, ids: Collection[int] = ()) -> Iterator[CheckpointContents]:
    """Yield the checkpoints of ``directory``, oldest first, after reading every byte of each.

    A checkpoint is pinned while it is read, so that a running job does not delete it. One that a job deletes before it
    is read is left out.

    Args:
        directory: the location of a ``Checkpointing``.
        ids: read only these checkpoints; none: all.

    Raises: NoCheckpoint if there is no such directory or checkpoint; StoreError if the directory cannot be read.

    >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
    >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
    >>> with tempfile.TemporaryDirectory() as path:
    ...     rows = numbers.collect(checkpoint=flow.Checkpointing(path))
    ...     [(found.id, str(found.status)) for found in verify_checkpoints(Path(path))]
    [(1, 'whole')]
    """
    store = store_in(directory)
    refuse_unknown(store, ids)  # before the others are read
    for checkpoint in sorted(ids) or [found.id for found in contents(store)]:
        try:
            yield verified(store, checkpoint)
        except NoCheckpoint:
            if ids:
                raise


def is_bad(found: CheckpointContents) -> bool:
    """Return whether a checkpoint should be whole and is not; an unfinished one may still be written."""
    return found.status in (CheckpointStatus.INCOMPLETE, CheckpointStatus.DAMAGED)


def headline(found: CheckpointContents) -> str:
    """Return one line with the status of a checkpoint."""
    size = sum(one.size for one in found.objects)
    reason = "" if found.reason is None else f": {found.reason}"
    what = found.manifest.kind if found.manifest is not None else "checkpoint"
    return printable(f"{what} {found.id}: {len(found.objects)} objects, {size:,} bytes, {found.status}{reason}")


def objects_table(found: CheckpointContents) -> Table:
    """Return a table with one row per object."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("task", "part", "bytes", "of checkpoint", "file", "status"):
        right = heading in ("bytes", "of checkpoint")
        result.add_column(heading, justify="right" if right else "left", overflow="fold")
    for one in found.objects:
        of = "this one" if one.checkpoint == found.id else str(one.checkpoint)
        cells = [one.task or "?", one.part or "?", f"{one.size:,}", of, one.file]
        bad = one.status in (ObjectStatus.MISSING, ObjectStatus.DAMAGED)
        status = one.status if one.reason is None else printable(f"{one.status}: {one.reason}")
        result.add_row(*[Text(printable(cell)) for cell in cells], Text(status, style="red" if bad else ""))
    return result


def to_json(found: CheckpointContents) -> dict[str, Any]:
    """Return the status of a checkpoint and of its objects as JSON values."""
    return {
        "id": found.id,
        "status": found.status.value,
        "reason": found.reason,
        "objects": [_object(one) for one in found.objects],
    }


def _object(one: StoredObject) -> dict[str, Any]:
    return {
        "task": one.task,
        "part": one.part,
        "bytes": one.size,
        "checkpoint": one.checkpoint,
        "file": one.file,
        "status": one.status.value,
        "reason": one.reason,
    }
