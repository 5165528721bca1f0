"""What a result says about the writing behind its checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.protocol.events import BarrierKind
from dataflow.runners.checkpoint_writes import Persistence
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord, CheckpointTotals
from dataflow.runtime.task.messages import TaskStats


def record(*tasks: TaskStats) -> CheckpointRecord:
    stats = {f"t[{i}]": task for i, task in enumerate(tasks)}
    return CheckpointRecord(1, BarrierKind.CHECKPOINT, 50, sum(task.size for task in tasks), stats)


SLOW = record(
    TaskStats(alignment=4, copy=1, queued=30, write=5, size=10, copy_cpu=1, write_cpu=4, in_flight_rows=2),
    TaskStats(alignment=3, copy=8, queued=20, write=9, size=100, copy_cpu=6, write_cpu=9, in_flight_rows=5),
)


def test_a_record_has_the_worst_of_its_tasks() -> None:
    assert (SLOW.alignment, SLOW.copy, SLOW.queued, SLOW.write) == (4, 8, 30, 9)
    assert (record().alignment, record().copy, record().queued, record().write) == (0, 0, 0, 0)


def test_the_cpu_times_of_tasks_add_up() -> None:
    assert (SLOW.copy_cpu, SLOW.write_cpu) == (7, 13)


def test_only_checkpoints_that_stored_rows_count_for_the_median() -> None:
    records = [SLOW, record(TaskStats(size=1)), record(TaskStats(queued=40, in_flight_rows=900))]
    found = Persistence.of(records, CheckpointTotals().with_checkpoints(records))
    assert found == Persistence(111, 40, 9, in_flight=(7, 900), stored_rows=2, most_in_flight=900)
    assert str(found).endswith("in-flight rows of 2: at most 900, median 900")


def numbers(**options: object) -> flow.RunResult:
    with flow.Pipeline("numbers") as p:
        p.source(op.from_arrow(pa.table({"x": range(60)}), batch_rows=2), name="in").sink(op.collect(), name="out")
    return p.run(SimulatedRunner(1), **options)  # type: ignore[arg-type]


def test_a_result_says_in_one_line_what_was_persisted() -> None:
    store = flow.MemoryStore()
    result = numbers(checkpoint=flow.Checkpointing(store, every="1ms", keep=1_000))
    handles = [part for checkpoint in store.checkpoints() for part in store.manifest(checkpoint).parts]
    sizes = [part.size for part in handles if not part.checkpoint]
    (line,) = [line for line in str(result).splitlines() if "writer: " in line]
    assert line.startswith(f"  writer: {sum(sizes):,} bytes persisted, longest wait ")


def test_a_run_without_checkpoints_has_no_such_line() -> None:
    assert "writer: " not in str(numbers())


def test_a_run_that_completed_no_checkpoint_has_none_either() -> None:
    result = numbers(checkpoint=flow.Checkpointing(flow.MemoryStore()))
    assert "writer: " in str(result)
    assert "writer: " not in str(replace(result, checkpoints=()))
