"""Checkpoints that tests read, copy and change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from dataflow.runtime.restore.find_checkpoint import report_on, states_of
from dataflow.runtime.restore.report import RestoreReport
from dataflow.runtime.task.parts import TaskState
from dataflow.state import codec
from dataflow.store.base import CheckpointStore
from dataflow.store.folder import CheckpointFolder
from dataflow.store.manifest import LOG, STATE, Checked, PartHandle, encode

__all__ = ["Change", "copied", "forged_object", "handle_of", "preview", "task_states"]

Change = Callable[[Any, dict[str, pa.Table]], object]
"""Changes the values and tables of an object in place."""


def task_states(store: CheckpointStore, checkpoint: int) -> Mapping[str, TaskState]:
    """Return the state of each task, with its logs."""
    return states_of(store.manifest(checkpoint), lambda part: store.read(checkpoint, part))


def preview(store: CheckpointStore, checkpoint: int) -> RestoreReport:
    """Return the report that a restore of ``checkpoint`` would give now."""
    return report_on(store, store.manifest(checkpoint), task_states(store, checkpoint))


def handle_of(store: CheckpointStore, checkpoint: int, task: str, part: int = STATE) -> PartHandle:
    """Return the handle of the state of ``task``, or of the only object of its logs."""
    (handle,) = [h for h in store.manifest(checkpoint).parts if h.task == task and h.part == part]
    return handle


def copied(
    store: CheckpointStore, checkpoint: int, change: Change = lambda values, tables: None, *, whole: bool = False
) -> int:
    """Copy a checkpoint as the newest, with a change in the state of each task; return its id.

    ``whole``: with copies of its logs, which must be bases, instead of references to them.
    """
    manifest, number = store.manifest(checkpoint), store.highest_id() + 1
    parts = []
    for part in manifest.parts:
        if part.part == LOG and whole:
            values, tables = codec.decode(memoryview(store.read(checkpoint, part)))
            pieces = codec.stream({**values, "checkpoint": number}, tables)
            parts.append(store.write(number, part.task, pieces, LOG))
        elif part.part == LOG:
            parts.append(msgspec.structs.replace(part, checkpoint=part.checkpoint or checkpoint))
        else:
            values, tables = codec.decode(memoryview(store.read(checkpoint, part)))
            change(values, tables)
            parts.append(store.write(number, part.task, codec.stream(values, tables)))
    store.commit(msgspec.structs.replace(manifest, checkpoint=number, parts=tuple(parts)))
    return number


def forged_object(folder: Path, handle: PartHandle, change: Change) -> None:
    """Change an object of the checkpoint in ``folder``, and the checksums with it."""
    manifest = CheckpointFolder(folder).manifest()
    path = folder / handle.file
    values, tables = codec.decode(path.read_bytes())
    change(values, tables)
    content = Checked(codec.encode(values, tables).to_pybytes())
    path.write_bytes(b"".join(content))
    forged = content.handle(handle.task, part=handle.part)
    changed = msgspec.structs.replace(handle, size=forged.size, xxh3=forged.xxh3)
    parts = tuple(changed if part == handle else part for part in manifest.parts)
    (folder / "manifest.json").write_bytes(encode(msgspec.structs.replace(manifest, parts=parts)))
