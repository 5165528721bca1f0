"""The state of an operator with other settings is refused by the plan: operators store and compare none of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.errors import CheckpointMismatch
from dataflow.planning.physical_plan import Plan, make_plan
from dataflow.runtime.restore.find_checkpoint import refuse_another

TABLE = pa.table({"k": ["a"], "x": [1], "at": pa.array([0], pa.timestamp("us"))})
SUM = {"n": col("x").sum()}
ROWS = op.after_rows(2)
Make = Callable[[flow.KeyedStream], flow.Stream]


@dataclass(frozen=True)
class Visits(flow.Window):
    """Windows that merge, all of them of one length."""

    length: int

    merges = True

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times, times + self.length)


def of(window: Any, aggregates: Any = None, emit: Any = None, **options: Any) -> Make:
    """Return what adds windows with these options to a stream."""
    aggregates = aggregates or {"n": op.count()}
    return lambda rows: rows.window(window, **options).agg(**aggregates, emit=emit, name="it")


TEN, SESSION, SLIDING = op.tumbling("10s"), op.session("1s"), op.sliding("1s")
THREE, VISITS = op.count_window(3), Visits(5)
OTHERS = {
    "windows": (of(TEN), of(op.tumbling("20s")), "window"),
    "windows of another step": (of(op.hopping("10s", every="5s")), of(op.hopping("10s", every="2s")), "window"),
    "aggregates": (of(TEN), of(TEN, SUM), "aggregations"),
    "lateness": (of(TEN, lateness="1s"), of(TEN, lateness="2s"), "lateness"),
    "changes": (of(TEN, emit="updates", lateness="1s"), of(TEN, emit="changes", lateness="1s"), "emit"),
    "waiting": (of(TEN, emit="updates", lateness="1s"), of(TEN, emit="final", lateness="1s"), "emit"),
    "trigger": (of(TEN, early=ROWS), of(TEN, early=op.after_rows(3)), "early"),
    "late trigger": (of(TEN, early=ROWS, lateness="1s"), of(TEN, early=ROWS, late=ROWS, lateness="1s"), "late"),
    "panes": (of(TEN, early=ROWS), of(TEN, early=ROWS, panes="discarding"), "panes"),
    "gap": (of(SESSION), of(op.session("2s")), "window"),
    "aggregates of sessions": (of(SESSION), of(SESSION, SUM), "aggregations"),
    "panes of sessions": (
        of(SESSION, early=ROWS, panes="discarding"),
        of(SESSION, early=op.after_rows(3), panes="discarding"),
        "early",
    ),
    "windows that merge": (of(VISITS), of(Visits(6)), "window"),
    "aggregates of windows that merge": (of(VISITS), of(VISITS, SUM), "aggregations"),
    "period": (of(SLIDING), of(op.sliding("2s")), "period"),
    "aggregates of sliding windows": (of(SLIDING), of(SLIDING, SUM), "aggregations"),
    "windows of rows": (of(THREE), of(op.count_window(3, every=2)), "window"),
    "aggregates of windows of rows": (of(THREE), of(THREE, SUM), "aggregations"),
    "aggregates of all rows": (of(op.global_window()), of(op.global_window(), SUM), "aggregations"),
    "triggers of all rows": (of(op.global_window(), early=ROWS), of(op.global_window()), "early"),
}
"""Two pipelines, and the setting of the operator in which they differ."""


def planned(make: Make) -> Plan:
    with flow.Pipeline("p") as p:
        rows = p.source(op.from_arrow(TABLE), name="in").with_watermark("at")
        make(rows.key_by("k")).sink(op.collect(), name="out")
    return make_plan(p.graph)


@pytest.mark.parametrize("name", OTHERS)
def test_the_state_of_other_settings_is_refused(name: str) -> None:
    before, after, setting = OTHERS[name]
    saved = planned(before)
    nodes, tasks = saved.describe(), [task for _, _, task in saved.tasks()]
    refuse_another(nodes, tasks, "checkpoint 1", "p", planned(before))
    with pytest.raises(CheckpointMismatch, match=f"operator 'it': {setting} (was|were) "):
        refuse_another(nodes, tasks, "checkpoint 1", "p", planned(after))
