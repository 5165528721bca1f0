"""What is in a checkpoint directory: every checkpoint read and verified, the damaged ones with the reason."""

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

__all__ = ["CheckpointLine", "list_checkpoints", "sheet", "table"]


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One checkpoint. ``damage`` says why it cannot be restored; without a readable manifest nothing else is known.

    ``created`` is in seconds since 1970, ``bytes`` is the size of its parts, ``duplicated`` counts by operator
    the rows that a restore delivers twice, ``in_flight_rows`` and ``in_flight_bytes`` are its channel state (None: it
    is older than these counts).
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
        return asdict(self)


def list_checkpoints(directory: Path) -> list[CheckpointLine]:
    """The checkpoints in ``directory``, oldest first. Every part is read, to see whether it is whole.

    Raises: NoCheckpoint where there is no such directory; StoreError where it cannot be read.
    """
    if not directory.is_dir():
        found = "a file" if directory.exists() else "nothing"
        raise NoCheckpoint(f"a checkpoint directory is expected at {directory}, found {found}")
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
        tasks=len(manifest.parts),
        bytes=sum(part.size for part in manifest.parts),
        in_flight_rows=manifest.summary.get("in_flight_rows"),
        in_flight_bytes=manifest.summary.get("in_flight_bytes"),
        duplicated=dict(manifest.summary.get("duplicated", {})),
        finished=manifest.finished,
    )


def table(lines: Sequence[CheckpointLine], now: float) -> Table:
    """One row a checkpoint; ``now``, in seconds since 1970, is what ages are counted from."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, justify in _HEADINGS.items():
        found.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for line in lines:
        state = Text("whole") if line.damage is None else Text(f"damaged: {line.damage}", style="red")
        found.add_row(*_cells(line, now), state)
    return found


def sheet(lines: Sequence[CheckpointLine], now: float) -> Table:
    """Return the same for narrow terminals: a block of lines for each checkpoint, in which nothing is cut."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    found = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=False)
    found.add_column(no_wrap=True)
    found.add_column(overflow="fold")
    for line in lines:
        state = Text("whole") if line.damage is None else Text(f"damaged: {line.damage}", style="red")
        for heading, cell in zip(_HEADINGS, _cells(line, now), strict=False):
            found.add_row(heading, cell, style="bold" if heading == "id" else None)
        found.add_row("state", state, end_section=True)
    return found


_HEADINGS = {
    "id": "right",
    "kind": "left",
    "mode": "left",
    "age": "right",
    "tasks": "right",
    "bytes": "right",
    "in-flight rows": "right",
    "in-flight bytes": "right",
    "duplicated rows": "right",
    "finished": "left",
    "state": "left",
}


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
    """The mode with its own guarantee; what sources and sinks weaken is said behind it."""
    own = Mode(mode) if mode in [m.value for m in Mode] else None
    if own is None or own.guarantee.value == guarantee:
        return f"{mode} ({guarantee})"
    return f"{own}, end to end {guarantee}"


def _age(seconds: float) -> str:
    """A length of time, roughly.

    >>> _age(-1), _age(42.9), _age(3600), _age(400_000)
    ('0 s', '42 s', '60 min', '4 days')
    """
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if seconds < limit:
            return f"{max(0, int(seconds)) // unit} {name}"
    return f"{int(seconds) // 86_400} days"
