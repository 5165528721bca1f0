"""Where the time went, per subtask and per channel, while a job runs and after it."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointMismatch
from dataflow.runners.simulated import SimulatedRunner

NUMBERS = pa.table({"n": range(400)})


def counted(p: flow.Pipeline, *, batch_rows: int = 10) -> flow.Stream:
    source = p.source(op.from_arrow(NUMBERS, batch_rows=batch_rows, splits=2), name="numbers")
    return source.key_by("n").agg(op.count().alias("c"), emit="updates", name="counts")


def test_a_channel_knows_how_long_its_writer_waited_for_room() -> None:
    with flow.Pipeline("waits") as p:
        counted(p).sink(op.collect(), name="out")
    result = p.run(SimulatedRunner(seed=1), parallelism=2, channel_credit=1)
    channels = {c.name: c for task in result.metrics for c in task.channels}
    waited = {task.task: task.meter.back_pressured for task in result.metrics}
    assert sum(c.rows for c in channels.values()) == 400
    assert 0 < channels["numbers[0] -> counts[1]"].back_pressured <= waited["numbers[0]"]


def test_channels_between_the_same_tasks_have_names_of_their_own() -> None:
    with flow.Pipeline("twins") as p:
        stream = p.source(op.from_arrow(NUMBERS), name="numbers")
        stream.union(stream, name="twice").sink(op.collect(), name="out")
    result = p.run(SimulatedRunner(seed=1))
    names = [c.name for task in result.metrics for c in task.channels]
    assert names == ["numbers[0] -> twice[0] (input 0)", "numbers[0] -> twice[0] (input 1)"]
    assert result.table("out").num_rows == 800


def test_a_running_job_shows_its_metrics() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def gate(batch: pa.RecordBatch) -> pa.RecordBatch:
        reached.set()
        assert go_on.wait(30), "nobody opened the gate"
        return batch

    with flow.Pipeline("gated") as p:
        p.source(op.from_arrow(NUMBERS.slice(0, 100)), name="numbers").map_batches(gate, name="gate").sink(
            op.collect(), name="out"
        )
    with p.start() as job:
        assert reached.wait(30), "no batch came"
        rows_in = {o.operator: o.rows_in for task in job.metrics() for o in task.operators}
        go_on.set()
        job.wait()
    assert rows_in == {"numbers": 100, "gate": 100, "out": 0}


def test_the_number_of_key_groups_is_fixed_by_the_first_checkpoint(tmp_path: Path) -> None:
    with flow.Pipeline("groups") as p:
        counted(p).sink(op.collect(), name="out")
    p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"), max_key_groups=16)
    with pytest.raises(CheckpointMismatch, match=r"'counts': max_key_groups were 16, now 32"):
        p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"), max_key_groups=32)


def test_operators_without_keys_have_nothing_to_do_with_key_groups(tmp_path: Path) -> None:
    def run(total: str, groups: int) -> None:
        with flow.Pipeline("mixed") as p:
            p.source(op.from_arrow(NUMBERS.slice(0, 100)), name="numbers").map_batches(
                lambda batch: batch, name="same"
            ).key_by("n").agg(op.count().alias(total), name="counts").sink(op.collect(), name="out")
        p.run(checkpoint=flow.Checkpointing(tmp_path / "ckpt"), max_key_groups=groups)

    run("c", 16)
    with pytest.raises(CheckpointMismatch) as caught:
        run("c", 32)
    assert str(caught.value).count("max_key_groups") == 1
    assert "operator 'counts': max_key_groups were 16, now 32" in str(caught.value)
