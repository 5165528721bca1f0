"""From a checkpoint to tasks: what a part says about an input is what the input starts with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, OperatorContext, Snapshot
from dataflow.errors import CheckpointDamaged
from dataflow.planning.graph import Node
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.planning.specs import Read
from dataflow.protocol.events import Watermark
from dataflow.runners.binding import LIBRARY
from dataflow.runners.simulated import SimulatedRunner
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.restore.find_checkpoint import _check_states
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.task import wiring
from dataflow.runtime.task.channel_input import ChannelInput
from dataflow.runtime.task.contract_checks import build_operator
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.runtime.task.source_input import SourceInput
from tests.checkpoints import copied, task_states

PARALLELISM = 2
TABLE = pa.table({"k": [n % 5 for n in range(40)], "x": list(range(40))})


def totals() -> flow.Pipeline:
    """Two readers, and a stateful task with a channel from each."""
    with flow.Pipeline("totals") as p:
        rows = p.source(op.from_arrow(TABLE, batch_rows=1, splits=2), name="rows", parallelism=2)
        sums = rows.key_by("k").agg(col("x").sum().alias("total"), emit="final", name="sums", parallelism=1)
        sums.sink(op.collect(), name="out", parallelism=1)
    return p


def checkpointed(seed: int = 3) -> tuple[Plan, flow.MemoryStore, int]:
    """The plan of ``totals``, and a store with a checkpoint from the middle of a run."""
    pipeline, store = totals(), flow.MemoryStore()
    checkpoint = flow.Checkpointing(store, every="1ms", keep=100)
    pipeline.run(SimulatedRunner(seed=seed), parallelism=PARALLELISM, checkpoint=checkpoint)
    first = store.checkpoints()[0]
    assert not store.manifest(first).finished, f"seed {seed}: no checkpoint was taken before the end"
    return make_plan(pipeline.graph, parallelism=PARALLELISM, max_key_groups=128), store, first


def settings_of(
    store: flow.MemoryStore, restore: int | str, clock: ManualClock | None = None, run_id: str = "run"
) -> Settings:
    """The settings of a job of ``totals`` that restores a checkpoint of ``store``."""
    return Settings(
        "totals",
        run_id,
        flow.Checkpointing(store),
        restore,
        clock or ManualClock(),
        lambda lane, job: job(),
        make_id=random_id,
        library=LIBRARY,
    )


def rewritten(store: flow.MemoryStore, checkpoint: int, task: str, watermarks: Sequence[int | None]) -> int:
    """A copy of ``checkpoint`` as the newest, in which the gate of ``task`` had other ``watermarks``."""

    def change(values: Any, tables: object) -> None:
        if values["task"] == task:
            values["inlet"]["watermarks"] = list(watermarks)

    return copied(store, checkpoint, change)


def test_a_restored_gate_starts_with_the_watermarks_of_its_part() -> None:
    plan, store, checkpoint = checkpointed()
    (task,) = [task for vertex, _, task in plan.tasks() if plan.inputs(vertex.name)]
    number = rewritten(store, checkpoint, task, [30, 20])
    settings = settings_of(store, number)
    inlet = build(plan, settings).tasks[task].task_input
    assert isinstance(inlet, ChannelInput)
    assert (inlet.gate.watermarks, inlet.gate.watermark) == ((30, 20), 20)


@pytest.mark.parametrize("ahead", [-3_600_000_000, 3_600_000_000])
def test_a_restored_job_begins_at_the_greater_of_stored_time_and_wall_clock(ahead: int) -> None:
    plan, store, checkpoint = checkpointed()
    stored = store.manifest(checkpoint).time
    assert stored > 0
    clock = ManualClock(wall=stored + ahead)
    settings = settings_of(store, checkpoint, clock)
    assert build(plan, settings).clock.time() == max(stored, stored + ahead)


def test_a_split_that_was_read_to_its_end_is_not_opened_again() -> None:
    plan, store, _ = checkpointed()
    stored, built = [], []
    for number in reversed(store.checkpoints()):  # a restore deletes those that are newer
        states = task_states(store, number).values()
        stored.append([split["done"] for state in states for split in state.inlet.get("splits", ())])  # type: ignore[union-attr,index,call-overload]
        settings = settings_of(store, number)
        job = build(plan, settings)
        inputs = [task.task_input for task in job.tasks.values() if isinstance(task.task_input, SourceInput)]
        built.append([split.done for task_input in inputs for split in task_input.splits])
        job.release()
    assert built == stored
    assert {done for splits in stored for done in splits} == {True, False}


def test_the_state_of_a_channel_that_is_there_twice_is_damage() -> None:
    p = flow.Pipeline()
    p.source(op.from_arrow(TABLE), name="in").rebalance().sink(op.collect(), name="out")
    flying = ChannelState("out", "out[0]", "in[0] -> out[0]", [Watermark(1)])
    states = {
        "in[0]": TaskState("in[0]", inlet={"splits": []}),
        "out[0]": TaskState("out[0]", inlet={"watermarks": [None]}, in_flight=[flying, flying]),
    }
    with pytest.raises(CheckpointDamaged, match="a channel has two states in flight"):
        _check_states(states, make_plan(p.graph))


def test_the_checkpoints_of_earlier_runs_count_among_those_to_keep() -> None:
    plan, store, _ = checkpointed()
    settings = settings_of(store, "auto")
    assert build(plan, settings).coordinator.completed == tuple(store.checkpoints())
    assert len(store.checkpoints()) > 1


def test_a_restore_checks_each_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store, checkpoint = checkpointed()
    (source,) = (node.spec.source for node in plan.graph if isinstance(node.spec, Read))
    checked: list[str] = []
    monkeypatch.setattr(type(source), "check", lambda source, split: checked.append(split.id))
    settings = settings_of(store, checkpoint)
    build(plan, settings)
    assert sorted(checked) == sorted(split.id for split in source.splits())


def test_a_restore_makes_each_operator_from_its_state_once(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, store, checkpoint = checkpointed()
    restored: list[Operator] = []

    def spying(node: Node, context: OperatorContext, task: str) -> Operator:
        operator = build_operator(node, context, task)
        if context.restored is not None and context.restored != Snapshot():
            restored.append(operator)
        return operator

    monkeypatch.setattr(wiring, "build_operator", spying)
    settings = settings_of(store, checkpoint)
    nodes = build(plan, settings).tasks["sums[0]"].chain.nodes
    assert [node.operator for node in nodes if node.name in ("sums", "out")] == restored


class Ticking(ManualClock):
    """Every look at it takes a microsecond."""

    def now(self) -> int:
        self.advance(1)
        return super().now()


def test_a_report_says_how_long_it_took_to_build_the_job() -> None:
    plan, store, checkpoint = checkpointed()
    settings = settings_of(store, checkpoint, Ticking())
    report = build(plan, settings).restore_report
    assert report is not None
    assert report.duration is not None
    assert report.duration > 0


def test_a_restore_removes_the_parts_that_no_manifest_names() -> None:
    plan, store, checkpoint = checkpointed()
    store.write(store.highest_id() + 1, "sums[0]", b"never committed")
    settings = settings_of(store, checkpoint, run_id="again")
    build(plan, settings).close()
    assert store.remove_orphans() == []
