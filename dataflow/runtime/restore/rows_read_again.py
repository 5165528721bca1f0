"""Count the rows that a restore reads a second time, as a lower bound.

Every checkpoint counts the rows read from each split so far. Nothing records what a dying process had already read, but
later checkpoints left traces: checkpoints that are passed over or abandoned, and parts that were written without a
manifest. The difference to the latest trace is a lower bound, because rows read after it left no trace.

A count belongs to an offset, not to a run of the job: the rows before an offset are the same in every run. So traces of
several runs can be compared.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from dataflow.errors import CheckpointError
from dataflow.planning.physical_plan import vertex_of
from dataflow.runtime.task.parts import TaskState
from dataflow.store.base import CheckpointStore
from dataflow.store.manifest import STATE

if TYPE_CHECKING:
    from dataflow.store.files import Buffer

__all__ = ["open_splits", "rows_read_again"]

log = logging.getLogger("dataflow.restore")


def open_splits(states: Mapping[str, TaskState]) -> dict[str, Mapping[str, Any]]:
    """Return the splits that were not read to their end, by "source/split"."""
    return {
        key: split
        for task, state in states.items()
        for key, split in _splits(task, state.inlet).items()
        if not split["done"]
    }


def rows_read_again(
    store: CheckpointStore, checkpoint: int, states: Mapping[str, TaskState], limit: int | None = None
) -> dict[str, int]:
    """Return, per "source/split", the least number of rows read after ``checkpoint``, which will be read again.

    Call it while the traces exist: before newer checkpoints are retired and orphans removed. Traces of more than
    ``limit`` bytes are not read.
    """
    restored = {key: split["rows"] for key, split in open_splits(states).items()}
    latest = dict(restored)
    for task in _readers(store, checkpoint, states):
        for n, data in _traces(store, task, checkpoint, limit):
            for key, rows in _rows_read(task, n, data).items():
                if key in latest:
                    latest[key] = max(latest[key], rows)
    return {key: rows - restored[key] for key, rows in latest.items()}


def _readers(store: CheckpointStore, above: int, states: Mapping[str, TaskState]) -> list[str]:
    """Return the source tasks that may have read more rows, also at the parallelism of later checkpoints."""
    sources = {vertex_of(task): None for task, state in states.items() if "splits" in state.inlet}
    tasks = {task: None for task in states if vertex_of(task) in sources}
    for n in store.checkpoints():
        if n > above:
            try:
                tasks |= {part.task: None for part in store.manifest(n).parts if vertex_of(part.task) in sources}
            except CheckpointError as error:
                log.debug("cannot read the tasks of checkpoint %d: %s", n, error)
    return list(tasks)


def _splits(task: str, inlet: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    source = vertex_of(task)
    return {f"{source}/{split['id']}": split for split in inlet.get("splits", ())}


def _traces(store: CheckpointStore, task: str, above: int, limit: int | None) -> Iterator[tuple[int, Buffer]]:
    """Yield the readable parts of ``task`` in later checkpoints, complete or not, with the checkpoints' ids."""
    for n in store.checkpoints():
        if n > above:
            try:
                if limit is not None and store.manifest_size(n) > limit:
                    continue
                parts = [part for part in store.manifest(n).parts if part.task == task and part.part == STATE]
                yield from [(n, store.read(n, part)) for part in parts if limit is None or part.size <= limit]
            except CheckpointError as error:
                log.debug("cannot read from checkpoint %d how far %s had read: %s", n, task, error)
    yield from store.remains(task, above) if limit is None else store.remains(task, above, limit)


def _rows_read(task: str, checkpoint: int, data: Buffer) -> dict[str, int]:
    """Return the rows read per split in a trace; none if it is unreadable, because a report must not stop a restore."""
    try:
        splits = _splits(task, TaskState.decode(data).inlet)
        return {key: split["rows"] for key, split in splits.items()}
    except Exception as error:
        log.debug("cannot read from the remains of checkpoint %d how far %s had read: %s", checkpoint, task, error)
        return {}
