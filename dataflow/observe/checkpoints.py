"""List the checkpoints of a directory, each with its status, and the reason if it is not whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dataflow.contracts.checkpointing import mode_text
from dataflow.drawing import printable
from dataflow.errors import NoCheckpoint
from dataflow.store.directory import DirectoryStore
from dataflow.store.export import SavepointStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import Parent
from dataflow.store.status import CheckpointContents, CheckpointStatus, contents

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["LEGEND", "CheckpointLine", "line_of", "list_checkpoints", "sheet", "store_in", "table"]


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One checkpoint of a directory.

    Attributes:
        id: the number of the checkpoint.
        status: "whole", "incomplete", "damaged" or "unfinished".
        reason: why it cannot be restored; None: it is whole. Without a readable manifest, all further values but
            ``bytes`` are None.
        kind: "checkpoint", "savepoint" or "final".
        pipeline: the name of the pipeline.
        job: the id of the job that took it.
        parent: the checkpoint of another directory that the job began from; None also if it began at the beginning.
        mode: the checkpoint mode.
        guarantee: the guarantee from source to sink.
        created: seconds since 1970.
        tasks: number of tasks.
        bytes: size of all objects that a restore reads, older ones included; of an unfinished one, of those found.
        in_flight_rows: rows of its channel state; None: it has none, as a batch on Spark.
        in_flight_bytes: bytes of its channel state; None: it has none, as a batch on Spark.
        duplicated: rows that a restore delivers a second time, by operator.
        finished: the job had read all its input.
    """

    id: int
    status: CheckpointStatus
    reason: str | None = None
    kind: str | None = None
    pipeline: str | None = None
    job: str | None = None
    parent: Parent | None = None
    mode: str | None = None
    guarantee: str | None = None
    created: float | None = None
    tasks: int | None = None
    bytes: int | None = None
    in_flight_rows: int | None = None
    in_flight_bytes: int | None = None
    duplicated: Mapping[str, int] | None = None
    finished: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return all attributes by name."""
        line: dict[str, Any] = msgspec.to_builtins(self)
        return line


def list_checkpoints(directory: Path) -> list[CheckpointLine]:
    """Return the checkpoints in ``directory``, oldest first, with the status that their objects' sizes show.

    No object is read: see ``dataflow.observe.verification`` for that.

    Args:
        directory: the location of a ``Checkpointing``.

    Raises:
        NoCheckpoint: there is no such directory.
        StoreError: the directory cannot be read.

    >>> import tempfile
    >>> list_checkpoints(Path(tempfile.mkdtemp()))
    []
    """
    return [line_of(found) for found in contents(store_in(directory))]


def store_in(directory: Path) -> DirectoryStore:
    """Return the store of checkpoints in ``directory``, or the one that it is, for reading.

    Raises: NoCheckpoint if there is no directory.
    """
    if not directory.is_dir():
        obstacle = "a file" if directory.exists() else "nothing"
        raise NoCheckpoint(
            f"expected a checkpoint directory at {directory}, found {obstacle}; give the directory that the job has as "
            "Checkpointing(location)"
        )
    return SavepointStore(directory) if CheckpointFolder(directory).exists else DirectoryStore(directory)


def line_of(found: CheckpointContents) -> CheckpointLine:
    """Return the line of one checkpoint."""
    manifest = found.manifest
    if manifest is None:
        size = sum(one.size for one in found.objects) if found.status is CheckpointStatus.UNFINISHED else None
        return CheckpointLine(found.id, found.status, found.reason, bytes=size)
    return CheckpointLine(
        id=found.id,
        status=found.status,
        reason=found.reason,
        kind=manifest.kind,
        pipeline=manifest.pipeline,
        job=manifest.job,
        parent=manifest.parent,
        mode=manifest.mode,
        guarantee=manifest.guarantee,
        created=manifest.created,
        tasks=len({part.task for part in manifest.parts}),
        bytes=sum(part.size for part in manifest.parts),
        in_flight_rows=manifest.summary.get("in_flight_rows"),
        in_flight_bytes=manifest.summary.get("in_flight_bytes"),
        duplicated=dict(manifest.summary.get("duplicated", {})),
        finished=manifest.finished,
    )


def table(lines: Sequence[CheckpointLine], now: float) -> Table:
    """Return a table with one row per checkpoint.

    Args:
        lines: the checkpoints.
        now: the current time in seconds since 1970, for their ages.
    """
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, justify in _HEADINGS.items():
        result.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for line in lines:
        state = _status(line)
        result.add_row(*_cells(line, now), state)
    return result


def sheet(lines: Sequence[CheckpointLine], now: float) -> Table:
    """Return the same table for narrow terminals: a block of lines for each checkpoint, in which no cell is cut."""
    from rich import box
    from rich.table import Table

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    result.add_column(no_wrap=True)
    result.add_column(overflow="fold")
    for line in lines:
        state = _status(line)
        for heading, cell in zip(_HEADINGS, _cells(line, now), strict=False):
            result.add_row(heading, cell, style="bold" if heading == "id" else None)
        result.add_row("status", state, end_section=True)
    return result


_HEADINGS = {
    "id": "right",
    "kind": "left",
    "mode": "left",
    "age": "right",
    "tasks": "right",
    "bytes": "right",
    "in-flight rows": "right",
    "in-flight bytes": "right",
    "repeated deliveries": "right",
    "finished": "left",
    "status": "left",
}
LEGEND = {
    "kind": "checkpoint (periodic, or on request by job.checkpoint() or job.stop()), savepoint (restored only if it is "
    "named), or final (at the end of the input)",
    "in-flight rows, bytes": "rows that waited in queues and are stored in the checkpoint; a restore puts them back",
    "repeated deliveries": "rows that a restore delivers a second time, at the operator with the most",
    "finished": "whether the job had read all its input",
    "status": "whole, or why the checkpoint cannot be restored: incomplete (objects are missing), damaged, or "
    "unfinished (being written, or left by a crash). The list compares the existence and the size of objects; "
    "`barrierflow checkpoints verify` reads every byte",
}
"""The meaning of the headings that need an explanation."""


def _cells(line: CheckpointLine, now: float) -> list[str]:
    if line.kind is None or line.mode is None or line.created is None:
        return [str(line.id), *["?"] * 4, "?" if line.bytes is None else f"{line.bytes:,}", *["?"] * 4]
    duplicated = max((line.duplicated or {}).values(), default=0)
    counts = (line.tasks, line.bytes, line.in_flight_rows, line.in_flight_bytes, duplicated)
    numbers = ["?" if n is None else f"{n:,}" for n in counts]
    return [
        str(line.id),
        line.kind,
        mode_text(line.mode, line.guarantee),
        _age(now - line.created),
        *numbers,
        "yes" if line.finished else "no",
    ]


def _status(line: CheckpointLine) -> Text:
    from rich.text import Text

    if line.reason is None:
        return Text(line.status)
    style = "yellow" if line.status is CheckpointStatus.UNFINISHED else "red"
    return Text(printable(f"{line.status}: {line.reason}"), style=style)


def _age(seconds: float) -> str:
    """Return a length of time as rough text.

    >>> _age(-1), _age(42.9), _age(3600), _age(400_000)
    ('0 s', '42 s', '60 min', '4 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{max(0, int(seconds)) // unit} {name}"
    return f"{int(seconds) // 86_400} days"
