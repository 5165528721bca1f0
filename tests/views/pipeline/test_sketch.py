"""Sketches of plans: what is in a box, and what arrows say."""

from __future__ import annotations

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape
from dataflow.runners.local import LocalRunner
from dataflow.views.pipeline.sketch import SketchBox, logical_sketch, physical_sketch


def parents(box: SketchBox) -> dict[str, str]:
    """Return the name of the operator whose rows each operator of a box takes without a queue."""
    return {
        operator.name: box.operators[operator.parent].name for operator in box.operators if operator.parent is not None
    }


def test_each_operator_of_a_chain_has_its_parent_also_one_that_the_plan_adds() -> None:
    p = flow.Pipeline("p")
    rows = p.source(op.from_arrow(pa.table({"k": [1], "x": [1]})), name="rows")
    some = rows.filter(flow.col("x") > 0, name="some")
    some.filter(flow.col("x") > 1, name="fewer").sink(op.collect(), name="out")
    rows.sink(op.collect(), name="all")
    some.key_by("k").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="totals")
    sketch = physical_sketch("p", LocalRunner().shape(p, parallelism=2))
    assert parents(sketch.boxes[0]) == {
        "some": "rows",
        "fewer": "some",
        "out": "fewer",
        "counts/combine": "some",
        "all": "rows",
    }
    assert [operator.name for operator in sketch.boxes[0].operators][-1] == "all"
    (arrow,) = sketch.arrows
    assert (arrow.operator, arrow.lines) == ("counts/combine", ("hash by k, 2 x 2 channels",))


def test_arrows_say_how_rows_are_distributed_over_how_many_channels() -> None:
    vertices = (VertexShape("a", 3, ("a", "b")), VertexShape("c", 3, ("c",)), VertexShape("one", 1, ("one",)))
    links = (
        LinkShape("a", "c", "b", "forward"),
        LinkShape("a", "c", "a", "broadcast", port=1, tag="errors"),
        LinkShape("c", "one", "c", "rebalance"),
        LinkShape("c", "one", "c", "hash", port=1),
    )
    sketch = physical_sketch("p", PlanShape("local", (), vertices, links))
    assert [arrow.lines for arrow in sketch.arrows] == [
        ("forward, 3 channels",),
        ("from a, side output errors", "broadcast, 3 x 3 channels"),
        ("rebalance, 3 x 1 channels",),
        ("hash without keys, all rows to one task, 3 x 1 channels",),
    ]
    assert sketch.summary == "3 vertices, 7 tasks, 18 channels"


def test_a_plan_that_came_from_a_recording_has_a_sketch() -> None:
    p = flow.Pipeline("p")
    p.source(op.from_arrow(pa.table({"x": [1]})), name="rows").sink(op.collect(), name="out", parallelism=2)
    shape = LocalRunner().shape(p)
    assert logical_sketch("p", shape).boxes[1].operators[0].words == "sink, write, 2 subtasks"
    assert [box.task_names for box in physical_sketch("p", shape).boxes] == ["rows[0]", "out[0], out[1]"]
