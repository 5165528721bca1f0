"""List the checkpoints of a directory: each one is read and verified, and damaged ones have the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataflow.contracts.checkpointing import Mode
from dataflow.errors import CheckpointError, NoCheckpoint
from dataflow.store.base import CheckpointStore
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import Manifest

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["LEGEND", "CheckpointLine", "list_checkpoints", "sheet", "table"]


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One checkpoint of a directory.

    Attributes:
        id: the number of the checkpoint.
        damage: why it cannot be restored; None: it is whole. If the manifest is unreadable, all other values are None.
        kind: "checkpoint", "savepoint" or "final".
        pipeline: the name of the pipeline.
        mode: the checkpoint mode.
        guarantee: the guarantee from source to sink.
        created: seconds since 1970.
        tasks: number of tasks.
        bytes: size of all objects that a restore reads, older ones included.
        in_flight_rows: rows of its channel state; None: the checkpoint is older than this count.
        in_flight_bytes: bytes of its channel state; None: the checkpoint is older than this count.
        duplicated: rows that a restore delivers a second time, by operator.
        finished: the job had read all its input.
    """

    id: int
    damage: str | None = None
    kind: str | None = None
    pipeline: str | None = None
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
        return asdict(self)


def list_checkpoints(directory: Path) -> list[CheckpointLine]:
    """Return the checkpoints in ``directory``, oldest first, after reading every part of each.

    Args:
        directory: the location of a ``Checkpointing``.

    Raises:
        NoCheckpoint: there is no such directory.
        StoreError: the directory cannot be read.

    >>> import tempfile
    >>> list_checkpoints(Path(tempfile.mkdtemp()))
    []
    """
    if not directory.is_dir():
        obstacle = "a file" if directory.exists() else "nothing"
        raise NoCheckpoint(
            f"expected a checkpoint directory at {directory}, found {obstacle}; give the directory that the job has as "
            "Checkpointing(location)"
        )
    store = DirectoryStore(directory)
    return [_line(store, checkpoint) for checkpoint in store.checkpoints()]


def _line(store: CheckpointStore, checkpoint: int) -> CheckpointLine:
    try:
        manifest = store.manifest(checkpoint)
    except CheckpointError as error:
        return CheckpointLine(checkpoint, damage=str(error))
    try:
        store.verify(checkpoint)
    except CheckpointError as error:
        return _described(manifest, str(error))
    return _described(manifest, None)


def _described(manifest: Manifest, damage: str | None) -> CheckpointLine:
    return CheckpointLine(
        id=manifest.checkpoint,
        damage=damage,
        kind=manifest.kind,
        pipeline=manifest.pipeline,
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
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, justify in _HEADINGS.items():
        result.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for line in lines:
        state = Text("whole") if line.damage is None else Text(f"damaged: {line.damage}", style="red")
        result.add_row(*_cells(line, now), state)
    return result


def sheet(lines: Sequence[CheckpointLine], now: float) -> Table:
    """Return the same table for narrow terminals: a block of lines for each checkpoint, in which no cell is cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    result.add_column(no_wrap=True)
    result.add_column(overflow="fold")
    for line in lines:
        state = Text("whole") if line.damage is None else Text(f"damaged: {line.damage}", style="red")
        for heading, cell in zip(_HEADINGS, _cells(line, now), strict=False):
            result.add_row(heading, cell, style="bold" if heading == "id" else None)
        result.add_row("state", state, end_section=True)
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
    "state": "left",
}
LEGEND = {
    "kind": "checkpoint (periodic), savepoint (on request), or final (at the end of the input)",
    "in-flight rows, bytes": "rows that waited in queues and are stored in the checkpoint; a restore puts them back",
    "repeated deliveries": "rows that a restore delivers a second time, at the operator with the most",
    "finished": "whether the job had read all its input",
    "state": "whole, or why the checkpoint cannot be restored; an older one that is whole can be restored",
}
"""The meaning of the headings that need an explanation."""


def _cells(line: CheckpointLine, now: float) -> list[str]:
    if line.kind is None or line.mode is None or line.created is None:
        return [str(line.id), *["?"] * 9]
    duplicated = max((line.duplicated or {}).values(), default=0)
    counts = (line.tasks, line.bytes, line.in_flight_rows, line.in_flight_bytes, duplicated)
    numbers = ["?" if n is None else f"{n:,}" for n in counts]
    return [
        str(line.id),
        line.kind,
        _mode(line.mode, line.guarantee),
        _age(now - line.created),
        *numbers,
        "yes" if line.finished else "no",
    ]


def _mode(mode: str, guarantee: str | None) -> str:
    """Return the mode with its guarantee, and the guarantee from source to sink if it is weaker."""
    own = Mode(mode) if mode in [m.value for m in Mode] else None
    if own is None or own.guarantee.value == guarantee:
        return f"{mode} ({guarantee})"
    return f"{own}, end to end {guarantee}"


def _age(seconds: float) -> str:
    """Return a length of time as rough text.

    >>> _age(-1), _age(42.9), _age(3600), _age(400_000)
    ('0 s', '42 s', '60 min', '4 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{max(0, int(seconds)) // unit} {name}"
    return f"{int(seconds) // 86_400} days"
