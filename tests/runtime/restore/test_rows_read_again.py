"""Rows that a restore reads again: counted from what later checkpoints left, and never too many."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.restore.rows_read_again import rows_read_again
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.parts import TaskState
from dataflow.store.base import CheckpointStore
from dataflow.store.files import Buffer
from dataflow.store.manifest import STATE, part_file

ROWS = 60
SOURCE = "in[0]"


def pipeline(function: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch) -> flow.Pipeline:
    """Two splits of 30 rows, read one after the other; an offset of theirs is the number of rows before it."""
    with flow.Pipeline("rows") as p:
        rows = p.source(op.from_arrow(pa.table({"x": range(ROWS)}), batch_rows=2, splits=2), name="in")
        rows.map_batches(function).rebalance().sink(op.collect(), name="out")
    return p


def run(store: CheckpointStore, restore: object = "auto", **options: Any) -> flow.RunResult:
    checkpointing = flow.Checkpointing(store, every="1ms", keep=1_000)
    return pipeline().run(SimulatedRunner(1, **options), checkpoint=checkpointing, restore=restore)


def restored(store: CheckpointStore, restore: object = "auto") -> flow.RestoreReport:
    report = run(store, restore).restore_report
    assert report is not None
    return report


def offsets(store: CheckpointStore, checkpoint: int) -> dict[str, int]:
    """How many rows of each split were read when ``checkpoint`` was taken, by the source's own account."""
    (part,) = [part for part in store.manifest(checkpoint).parts if part.task == SOURCE and part.part == STATE]
    splits: Any = TaskState.decode(store.read(checkpoint, part)).inlet["splits"]
    return {f"in/{split['id']}": split["offset"] or 0 for split in splits}


def between(store: CheckpointStore, older: int, newer: int) -> dict[str, int]:
    """Rows read from ``older`` to ``newer``, of the splits that ``older`` had not read to their end."""
    before, after = offsets(store, older), offsets(store, newer)
    return {split: after[split] - before[split] for split in before if before[split] < ROWS // 2}


@pytest.fixture
def store(tmp_path: Path) -> flow.DirectoryStore:
    """Several checkpoints of a job that ran to its end."""
    made = flow.DirectoryStore(tmp_path / "ckpt")
    run(made)
    assert len(made.checkpoints()) >= 4
    return made


def orphaned(store: flow.DirectoryStore, *checkpoints: int) -> Path:
    """Take the manifests away, as if the process had died before it wrote them; the part of the source in the last."""
    for checkpoint in checkpoints:
        (store.folder(checkpoint).path / "manifest.json").unlink()
    return store.folder(checkpoints[-1]).path / part_file(SOURCE, 1)


def test_an_older_checkpoint_that_is_asked_for_counts_from_the_newest(store: flow.DirectoryStore) -> None:
    first, *_, last = store.checkpoints()
    expected = between(store, first, last)
    assert restored(store, restore=first).replayed == expected
    assert sum(expected.values()) > 0


def test_one_later_checkpoint_is_enough(store: flow.DirectoryStore) -> None:
    pairs = [pair for pair in pairwise(store.checkpoints()) if pair[0] + 1 == pair[1]]
    older, newer = max(pair for pair in pairs if sum(between(store, *pair).values()))
    expected = between(store, older, newer)
    for later in store.checkpoints():
        if later > newer:
            shutil.rmtree(store.folder(later).path)
    assert restored(store, restore=older).replayed == expected


def test_a_part_that_got_no_manifest_says_how_far_its_job_had_read(store: flow.DirectoryStore) -> None:
    *_, kept, lost, last = store.checkpoints()
    expected = between(store, kept, last)
    orphaned(store, lost, last)
    report = restored(store)
    assert (report.checkpoint, report.replayed) == (kept, expected)
    assert sum(expected.values()) == report.rows_replayed > 0


def test_what_a_restore_counted_from_is_gone_after_it(store: flow.DirectoryStore) -> None:
    *_, kept, last = store.checkpoints()
    part = orphaned(store, last)
    restored(store)
    assert not part.exists()
    assert list(store.remains(SOURCE, kept)) == []


@pytest.mark.parametrize("damage", [bytes, lambda data: data[: len(data) // 2], lambda data: b"?" * len(data)])
def test_a_part_that_cannot_be_understood_is_no_trace(
    store: flow.DirectoryStore, damage: Callable[[bytes], bytes]
) -> None:
    first, *others = store.checkpoints()
    for checkpoint in others:
        part = orphaned(store, checkpoint)
        part.write_bytes(damage(part.read_bytes()) if damage is not bytes else b"")
    report = restored(store)
    assert (report.checkpoint, report.rows_replayed) == (first, 0)
    assert report.replayed.keys() == report.offsets.keys()


@pytest.mark.filterwarnings("ignore::dataflow.errors.CheckpointSkippedWarning")
def test_a_damaged_checkpoint_that_is_passed_over_still_says_how_far_it_had_read(store: flow.DirectoryStore) -> None:
    *_, kept, last = store.checkpoints()
    expected = between(store, kept, last)
    (store.folder(last).path / part_file("out[0]", 1)).write_bytes(b"")
    report = restored(store)
    assert [skipped.checkpoint for skipped in report.passed_over] == [last]
    assert report.replayed == expected


@pytest.mark.filterwarnings("ignore::dataflow.errors.CheckpointSkippedWarning")
def test_the_part_that_is_damaged_itself_does_not_count(store: flow.DirectoryStore) -> None:
    *_, kept, last = store.checkpoints()
    part = store.folder(last).path / part_file(SOURCE, 1)
    part.write_bytes(part.read_bytes().replace(b'"rows":', b'"rows":9'))
    report = restored(store)
    assert (report.checkpoint, report.rows_replayed) == (kept, 0)


def test_nothing_came_after_the_newest_checkpoint_so_nothing_is_counted(store: flow.DirectoryStore) -> None:
    assert restored(store).rows_replayed == 0


def test_a_store_that_says_nothing_of_remains_still_restores() -> None:
    store = Silent()
    run(store)
    first, *_, last = store.checkpoints()
    expected = between(store, first, last)
    assert restored(store, restore=first).replayed == expected


class Silent(flow.MemoryStore):
    """A store of somebody who never heard of remains."""

    def remains(self, task: str, above: int) -> Iterator[tuple[int, Buffer]]:
        return CheckpointStore.remains(self, task, above)


def test_the_furthest_trace_counts_whichever_life_left_it() -> None:
    store, split = flow.MemoryStore(), {"id": "a", "info": {}, "offset": 3, "done": False}
    for checkpoint, rows in enumerate([3, 9, 5], start=1):
        state = TaskState(SOURCE, inlet={"splits": [{**split, "rows": rows}]})
        store.write(checkpoint, SOURCE, memoryview(state.encode("rows")))
    restored = TaskState(SOURCE, inlet={"splits": [{**split, "rows": 3}]})
    assert rows_read_again(store, 1, {SOURCE: restored}) == {"in/a": 6}


def counts(store: CheckpointStore, checkpoint: int) -> dict[str, int]:
    """The rows of each split by the checkpoint's own count."""
    (part,) = [part for part in store.manifest(checkpoint).parts if part.task == SOURCE and part.part == STATE]
    splits: Any = TaskState.decode(store.read(checkpoint, part)).inlet["splits"]
    return {f"in/{split['id']}": split["rows"] for split in splits}


def test_a_restored_job_goes_on_counting_where_its_checkpoint_was(store: flow.DirectoryStore) -> None:
    first = store.checkpoints()[0]
    assert any(offsets(store, first).values())
    restored(store, restore=first)
    last = store.checkpoints()[-1]
    assert counts(store, last) == offsets(store, last) == {"in/rows-0-30": 30, "in/rows-30-60": 30}


# --- against what really happened


class Reads:
    """A function of batches that counts how often each row came."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.times.update(batch["x"].to_pylist())
        return batch

    @property
    def again(self) -> int:
        return self.times.total() - len(self.times)


def lives(seed: int) -> tuple[int, int]:
    """Rows reported as read again by all restores of a run with two crashes, and rows that really were."""
    reads, faults = Reads(), Faults(crashes=2, crash_at=[Point.WRITTEN, "step"], damage=0.3)
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms")
    job = SimulatedRunner(seed, faults).start(pipeline(reads), checkpoint=settings)
    job.wait()
    reports = [attempt.restored for attempt in job.attempts]
    return sum(report.rows_replayed for report in reports if report is not None), reads.again


def test_after_real_crashes_never_more_is_reported_than_was_read_again() -> None:
    runs = [lives(seed) for seed in range(40)]
    assert [(seed, run) for seed, run in enumerate(runs) if run[0] > run[1]] == []
    assert sum(reported > 0 for reported, _ in runs) >= 10
