"""Triggers of windows against a model: early, on time and late panes, accumulating, discarding and signed."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes, Panes, Trigger
from dataflow.contracts.window_kinds import Hopping, Tumbling
from dataflow.contracts.windows import Window
from dataflow.errors import CheckpointDamaged
from dataflow.planning.aggregate_specs import Emit
from tests.operators.operating import stored
from tests.operators.windows.test_signed_windows import Shown
from tests.operators.windows.triggering import Panel, Triggered
from tests.operators.windows.windowed import END
from tests.seeds import each_once

WINDOWS = [Tumbling(10, 3), Hopping(10, 4, 1)]
TRIGGERS: list[tuple[Trigger | None, Trigger | None]] = [
    (AfterRows(3), None),
    (AfterTime(25), AfterRows(2)),
    (AtTimes(4), AfterTime(30)),
    (AfterRows(1), AtTimes(15)),
]
LATE_ALONE: list[tuple[Trigger | None, Trigger | None]] = [(None, AfterRows(3)), (None, AfterTime(9))]


class Walk:
    """One random walk through an operator and the model; ``restore`` at every fifth step or so."""

    def __init__(self, window: Window, early: Trigger | None, late: Trigger | None, **options: Any) -> None:
        self.draw = Random(f"{window} {early} {late}")
        self.options = {"early": early, "late": late, "lateness": 20, **options}
        self.window = window
        self.operator = Triggered(window, **self.options)
        discards = options.get("panes") is Panes.DISCARDING
        self.model = Panel(window, early, late, 20, discards)

    def steps(self) -> Any:
        """Yield what the operator and the model give in each step."""
        draw = self.draw
        for step in range(40):
            rows = [(draw.choice("abc"), draw.randrange(9), step + draw.randrange(9)) for _ in range(draw.randrange(4))]
            rows += [(draw.choice("abc"), 7, step - draw.randrange(35)) for _ in range(draw.randrange(3))]
            if rows:
                yield self.operator.feed(*rows), self.model.feed(*rows)
            yield self.operator.advance(step), self.model.advance(step)
            yield self.operator.wait(5), self.model.wait(5)
            if draw.random() < 0.2:
                snapshot, clock = stored(self.operator.operator.snapshot()), self.operator.clock
                self.operator = Triggered(self.window, **self.options, restored=snapshot, clock=clock)
        yield self.operator.advance(END), self.model.advance(END)


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row[:5])


@pytest.mark.parametrize(("panes", "window", "triggers"), each_once(list(Panes), WINDOWS, TRIGGERS))
def test_panes_are_those_of_the_model(window: Window, triggers: tuple[Any, Any], panes: Panes) -> None:
    for ours, expected in Walk(window, *triggers, panes=panes).steps():
        assert in_order(ours) == in_order(expected)


@pytest.mark.parametrize(("window", "triggers"), each_once(WINDOWS, [*TRIGGERS, *LATE_ALONE]))
def test_signed_changes_show_the_last_pane(window: Window, triggers: tuple[Any, Any]) -> None:
    shown, last = Shown(), {}
    for changes, panes in Walk(window, *triggers, emit=Emit.CHANGES).steps():
        shown.apply(changes, keys=1)
        last.update({tuple(pane[:3]): [*pane[:3], *pane[5:]] for pane in panes})
        assert shown.rows == last


@pytest.mark.parametrize("triggers", LATE_ALONE, ids=str)
@pytest.mark.parametrize("panes", Panes)
def test_without_early_panes_there_are_no_columns_for_them(triggers: tuple[Any, Any], panes: Panes) -> None:
    for ours, expected in Walk(WINDOWS[0], *triggers, panes=panes).steps():
        assert in_order(ours) == in_order([(*row[:3], *row[5:]) for row in expected])


def test_the_pane_at_the_end_comes_even_if_nothing_is_new() -> None:
    w = Triggered(Tumbling(10), AfterRows(1), panes=Panes.DISCARDING)
    assert w.feed(("a", 5, 1)) == [("a", 0, 10, "early", 0, 1, 5, [5])]
    assert w.advance(10) == [("a", 0, 10, "on_time", 1, 0, None, None)]


def test_an_accumulating_pane_at_the_end_repeats_the_last_one() -> None:
    w = Triggered(Tumbling(10), AfterRows(1))
    w.feed(("a", 5, 1))
    assert w.advance(10) == [("a", 0, 10, "on_time", 1, 1, 5, [5])]


def test_signed_changes_of_a_pane_with_nothing_new_are_none() -> None:
    w = Triggered(Tumbling(10), AfterRows(1), emit=Emit.CHANGES)
    assert w.feed(("a", 5, 1)) == [("a", 0, 10, 1, 5, [5], 1)]
    assert w.advance(10) == []


def test_rows_that_no_trigger_showed_come_when_the_window_is_over() -> None:
    w = Triggered(Tumbling(10), None, AfterRows(9), lateness=5)
    w.feed(("a", 1, 1))
    w.advance(10)
    assert w.feed(("a", 2, 2)) == []
    assert w.advance(15) == [("a", 0, 10, 2, 3, [1, 2])]


def test_state_of_windows_that_are_over_is_dropped() -> None:
    w = Triggered(Hopping(10, 2), AfterTime(5), AfterTime(5), lateness=20)
    for step in range(0, 450, 3):
        w.feed(("a", 1, step), ("b", 2, max(0, step - 12)))
        w.advance(step)
        w.wait(3)
    assert w.operator._windows.live == w.operator._state.live < 50
    assert len(w.operator._by_number) < 20
    assert len(w.due) < 5


@pytest.mark.parametrize("table", ["state", "windows"])
def test_a_checkpoint_whose_parts_contradict_each_other_is_refused(table: str) -> None:
    w = Triggered(Tumbling(10), AfterRows(9))
    w.feed(("a", 1, 1), ("b", 1, 2))
    good = stored(w.operator.snapshot())
    logs: dict[str, Any] = dict(good.logs)
    logs[table] = [{"keys": logs[table][0]["keys"].slice(0, 1)}]
    with pytest.raises(CheckpointDamaged, match="op: "):
        Triggered(Tumbling(10), AfterRows(9), restored=replace(good, logs=logs))


@pytest.mark.parametrize("change", [lambda shown: shown.slice(0, 0), lambda shown: pa.concat_tables([shown, shown])])
def test_shown_rows_of_other_windows_are_refused(change: Any) -> None:
    options: dict[str, Any] = {"late": AfterRows(5), "lateness": 50, "emit": Emit.CHANGES}
    w = Triggered(Tumbling(10), **options)
    w.feed(("a", 1, 1), ("b", 1, 2))
    w.advance(20)
    w.feed(("a", 1, 3))
    good = stored(w.operator.snapshot())
    Triggered(Tumbling(10), **options, restored=good)
    with pytest.raises(CheckpointDamaged, match="op: shown: the shown rows of the checkpoint belong to other keys"):
        Triggered(Tumbling(10), **options, restored=replace(good, tables={"shown": change(good.tables["shown"])}))


def test_panes_over_all_rows_reach_a_sink_of_one_subtask_in_order() -> None:
    table = pa.table({"at": pa.array(range(40), pa.timestamp("s"))})
    with flow.Pipeline("panes") as p:
        rows = p.source(op.from_arrow(table, batch_rows=4), name="in").with_watermark("at")
        windows = rows.window(op.tumbling("20s"), early=op.after_rows(4), panes="discarding")
        windows.agg(n=op.count(), name="counts").sink(op.collect(), name="out", parallelism=1)
    panes = p.run(parallelism=4).table("out").to_pylist()
    for end in (20, 40):
        assert [row["pane_index"] for row in panes if row["window_end"].second == end] == list(range(6))
