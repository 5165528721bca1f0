"""Rows put back into inputs of operators: they are checked like the rows of channels, and read like these."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.planning.graph import schema_json
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.protocol.events import Data
from dataflow.runners.binding import LIBRARY
from dataflow.runtime.restore.in_flight import put_back
from dataflow.runtime.task.parts import ChannelState, TaskState
from dataflow.runtime.task.put_back import PutBack
from dataflow.state.partition import hash_partition

ROWS = pa.record_batch({"k": ["a", "b", "c", "d", "e", "f"], "x": list(range(6))})


def plan_of() -> Plan:
    """in -> both (a filter of it, on a rebalance edge) -> kept (chained) -> sums (hash) -> out (chained)."""
    with flow.Pipeline("p") as p:
        rows = p.source(op.from_arrow(pa.Table.from_batches([ROWS])), name="in")
        both = rows.filter(col("x") >= 0, name="near").union(rows.rebalance(), name="both")
        kept = both.filter(col("x") < 9, name="kept")
        kept.key_by("k").agg(n=col("x").sum(), name="sums").sink(op.collect(), name="out")
    return make_plan(p.graph, parallelism=2)


class Restored:
    """What ``put_back`` reads of a restored checkpoint."""

    class manifest:  # noqa: N801
        checkpoint = 7

    def __init__(self, plan: Plan, *flying: ChannelState) -> None:
        self.states = {task: TaskState(task) for _, _, task in plan.tasks()}
        for one in flying:
            self.states[one.task] = TaskState(one.task, in_flight=[*self.states[one.task].in_flight, one])


def flown(plan: Plan, operator: str, task: str, rows: Any = ROWS, port: int = 0, generation: int = 1) -> ChannelState:
    nodes = {node.name: node for node in plan.graph}
    inputs = nodes[operator].inputs if operator in nodes else nodes["kept"].inputs
    columns = schema_json(plan.graph.declared_of(inputs[min(port, len(inputs) - 1)]))
    return ChannelState(operator, task, "put back", [Data(rows)], columns, port=port, generation=generation)


def back(plan: Plan, *flying: ChannelState) -> dict[str, PutBack]:
    restored: Any = Restored(plan, *flying)
    return dict(put_back(restored, plan, {}, LIBRARY))


def taken(rows: PutBack) -> list[tuple[str, int, list[int]]]:
    found = []
    while rows:
        operator, port, data = rows.take()
        batch: Any = data.rows
        found.append((operator, port, batch["x"].to_pylist()))
    return found


def own(plan: Plan, subtask: int) -> Any:
    """The rows that a subtask gets on a hash edge by k."""
    return hash_partition(ROWS, ["k"], 2, plan.max_key_groups)[subtask]


def test_operators_downstream_come_first_and_then_lower_generations_and_ports() -> None:
    plan = plan_of()
    task = next(vertex.name for vertex in plan.vertices.values() if "kept" in [node.name for node in vertex.nodes])
    assert task == "both"
    flying = [
        flown(plan, "both", "both[1]", ROWS.slice(0, 1), generation=2),
        flown(plan, "both", "both[1]", ROWS.slice(1, 1), port=1),
        flown(plan, "kept", "both[1]", ROWS.slice(2, 1), generation=3),
        flown(plan, "both", "both[1]", ROWS.slice(3, 1)),
        flown(plan, "both", "both[1]", ROWS.slice(4, 1)),
    ]
    (found,) = back(plan, *flying).items()
    assert found[0] == "both[1]"
    names = [state.channel for state in found[1].in_flight("both[1]")]
    assert names == [
        "(put back 3) -> kept[1]",
        "(put back 1) -> both[1]",
        "(put back 1) -> both[1] (input 1)",
        "(put back 2) -> both[1]",
    ]
    assert taken(found[1]) == [
        ("kept", 0, [2]), ("both", 0, [3]), ("both", 0, [4]), ("both", 1, [1]), ("both", 0, [0])
    ]  # fmt: skip


def test_rows_on_a_hash_edge_are_those_of_their_subtask() -> None:
    plan = plan_of()
    for subtask in (0, 1):
        (rows,) = back(plan, flown(plan, "sums", f"sums[{subtask}]", own(plan, subtask))).values()
        assert rows.rows == own(plan, subtask).num_rows
    with pytest.raises(CheckpointMismatch, match="were not partitioned by k, as they are now"):
        back(plan, flown(plan, "sums", "sums[0]", own(plan, 1)))


@pytest.mark.parametrize(
    ("operator", "port", "rows", "kind", "message"),
    [
        ("gone", 0, ROWS, CheckpointMismatch, "task 'both.1.' has no input 0 of an operator 'gone'"),
        ("sums", 0, ROWS, CheckpointMismatch, "task 'both.1.' has no input 0 of an operator 'sums'"),
        ("kept", 1, ROWS, CheckpointMismatch, "task 'both.1.' has no input 1 of an operator 'kept'"),
        ("both", 1, ROWS.select(["k"]), CheckpointDamaged, "rows in flight on 'put back' have the columns"),
        ("kept", 0, ROWS.select(["x", "k"]), CheckpointDamaged, "rows in flight on 'put back' have the columns"),
    ],
)
def test_rows_that_do_not_fit_their_input_are_refused(
    operator: str, port: int, rows: Any, kind: type[Exception], message: str
) -> None:
    plan = plan_of()
    with pytest.raises(kind, match=message):
        back(plan, flown(plan, operator, "both[1]", rows, port))


def test_rows_of_other_columns_than_the_input_had_are_refused_with_both() -> None:
    plan = plan_of()
    one = flown(plan, "kept", "both[1]")
    other = ChannelState("kept", "both[1]", "put back", one.elements, [["y", "int64"]], port=0, generation=1)
    with pytest.raises(CheckpointMismatch, match=r"columns \[\['y', 'int64'\]\]; now the channel has \[\['k'"):
        back(plan, other)


def test_a_start_without_put_back_rows_has_none() -> None:
    assert back(plan_of()) == {}
