"""Sessions in panes against a model: rows in any order, late ones, merging sessions, all triggers, and restores."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dataflow.contracts.panes import AfterRows, AfterTime, AtTimes, Trigger
from dataflow.errors import CheckpointDamaged
from dataflow.state.hashing import key_group_range
from operators.windows.triggered_sessions import TriggeredSessionOperator
from tests.operators.windows.session_panes import MERGED, UNMERGED, PanedSessions, SessionPanel
from tests.operators.windows.sessioned import drawn_rows
from tests.operators.windows.windowed import END, SCHEMA, plain
from tests.seeds import each_once_with_seeds

TRIGGERS: list[tuple[Trigger | None, Trigger | None]] = [
    (None, None),
    (AfterRows(3), None),
    (AfterRows(1), AfterRows(2)),
    (AfterTime(25), AfterRows(2)),
    (AtTimes(4), AfterTime(30)),
    (None, AfterTime(9)),
    (AfterTime(8), AfterTime(40)),
    (AfterRows(2), AtTimes(15)),
]


@pytest.mark.parametrize(("seed", "triggers", "kept"), each_once_with_seeds(60, TRIGGERS, ["records", "rows"]))
def test_a_long_walk_gives_the_panes_of_the_model(seed: int, triggers: tuple[Any, Any], kept: str) -> None:
    draw, aggregations = Random(f"{seed} {triggers}"), MERGED if kept == "records" else UNMERGED
    gap, keyed, lateness = draw.choice([1, 4, 10, 10, 50]), draw.random() < 0.8, draw.choice([0, 15, 15, 70])
    w = PanedSessions(gap, *triggers, lateness=lateness, keyed=keyed, aggregations=aggregations)
    model = SessionPanel(gap, *triggers, lateness, keyed, aggregations is UNMERGED)
    watermark, shown = -100, []
    for step in range(30):
        now = step * draw.choice([1, 3])
        rows = drawn_rows(draw, now, gap)
        watermark = max(watermark, now - draw.choice([0, 0, gap, 60]))
        for ours, expected in (
            (w.feed(*rows), model.feed(*rows)),
            (w.wait(7), model.wait(7)),
            (w.advance(watermark), model.advance(watermark)),
        ):
            assert in_order(ours) == in_order(expected)
            shown += ours
        if draw.random() < 0.2:
            w.checkpoint()
        if draw.random() < 0.2:
            w.restore()
    shown += w.advance(END)
    model.advance(END)
    assert (w.counts(), len(w.operator._cells)) == ((model.late, 0), 0)
    assert summed(shown, model, keyed=keyed, panes=triggers[0] is not None) == model.sums()


def in_order(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=lambda row: row[:5])


def summed(shown: list[Any], model: SessionPanel, *, keyed: bool, panes: bool) -> list[tuple[Any, ...]]:
    """Return the sums of the panes that lie within each session of a batch job."""
    at = 2 + keyed + 2 * panes
    sums = []
    for key, start, end, _, _ in model.sums():
        own = [row for row in shown if start <= row[keyed] <= row[keyed + 1] <= end and (not keyed or row[0] == key)]
        sums.append((key, start, end, sum(row[at] for row in own), sum(row[at + 1] or 0 for row in own)))
    assert sum(row[at] for row in shown) == sum(each[3] for each in sums)
    return sums


def panes_of(results: list[Any]) -> list[tuple[Any, ...]]:
    """Return start, end, pane, number and count of each pane."""
    return [row[1:6] for row in results]


def test_the_pane_at_the_end_comes_even_if_nothing_is_new() -> None:
    w = PanedSessions(10, AfterRows(1), aggregations=UNMERGED)
    assert w.feed(("a", 5, 1)) == [("a", 1, 11, "early", 0, 1, 5, 5, 5, [5])]
    assert w.advance(11) == []
    assert w.advance(12) == [("a", 1, 11, "on_time", 1, 0, None, None, None, None)]


def test_the_numbers_of_panes_do_not_repeat_when_sessions_merge() -> None:
    w = PanedSessions(10, AfterRows(1))
    assert panes_of(w.feed(("a", 1, 0), ("a", 2, 15))) == [(0, 10, "early", 0, 1), (15, 25, "early", 0, 1)]
    assert panes_of(w.feed(("a", 3, 7))) == [(0, 25, "early", 2, 1)]
    assert panes_of(w.advance(26)) == [(0, 25, "on_time", 3, 0)]


def test_a_session_that_becomes_longer_in_time_has_another_pane_at_its_end() -> None:
    w = PanedSessions(10, AfterRows(9))
    w.feed(("a", 1, 0))
    assert panes_of(w.advance(15)) == [(0, 10, "on_time", 0, 1)]
    assert w.feed(("a", 2, 8)) == []
    assert panes_of(w.advance(19)) == [(0, 18, "on_time", 1, 1)]


def test_a_late_row_that_leaves_the_session_complete_is_in_a_late_pane() -> None:
    w = PanedSessions(10, AfterRows(9), AfterRows(2), lateness=100)
    w.feed(("a", 1, 0))
    w.advance(50)
    assert w.feed(("a", 2, 8)) == []
    assert panes_of(w.feed(("a", 3, 9))) == [(0, 19, "late", 1, 2)]
    assert w.advance(60) == []


def test_a_session_whose_first_row_comes_after_its_end_has_late_panes_only() -> None:
    w = PanedSessions(10, AfterRows(9), AfterRows(2), lateness=100)
    w.advance(50)
    assert w.feed(("a", 1, 0)) == []
    assert panes_of(w.advance(END)) == [(0, 10, "late", 0, 1)]


def test_rows_that_wait_for_a_late_trigger_wait_for_the_early_one_after_the_session_grew() -> None:
    w = PanedSessions(10, AfterTime(5), AfterTime(50), lateness=100)
    w.feed(("a", 1, 0))
    w.advance(15)
    assert w.feed(("a", 2, 1)) == []
    assert w.wait(6) == []
    assert w.feed(("a", 3, 9)) == []
    assert panes_of(w.wait(0)) == [(0, 19, "early", 1, 2)]


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
def test_a_session_that_never_ends_has_few_cells(aggregations: Any) -> None:
    w = PanedSessions(10, AfterRows(3), AfterTime(5), lateness=30, aggregations=aggregations)
    most = 0
    for time in range(0, 1400, 7):
        w.feed(("a", 1, time))
        w.advance(time)
        w.wait(1)
        most = max(most, len(w.operator._cells))
    assert most < 12
    assert len(w.operator._cells.waiting._heap) < 200
    assert panes_of(w.advance(END))[0][:2] == (0, 1393 + 10)


def test_a_job_with_many_sessions_keeps_few_due_times() -> None:
    w = PanedSessions(10, AfterTime(5))
    for time in range(0, 12_000, 100):
        w.feed(("a", 1, time))
        w.advance(time)
        w.wait(10)
    assert len(w.operator._cells) <= 2
    assert w.operator._cells.waiting._size <= 2
    assert len(w.due) <= 2


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
def test_state_can_be_divided_by_key(aggregations: Any) -> None:
    options: dict[str, Any] = {"lateness": 50, "aggregations": aggregations}
    rows = [(key, number, 7 * number) for number, key in enumerate("abcdefgh")]
    whole = PanedSessions(10, AfterRows(2), **options)
    whole.feed(*rows)
    whole.feed(*[(key, x, time + 3) for key, x, time in rows[:4]])
    whole.feed(*[(key, x, time + 4) for key, x, time in rows[:6]])
    state = whole.checkpoint()
    parts = [
        PanedSessions(10, AfterRows(2), **options, groups=key_group_range(i, 3, 128), restored=state) for i in range(3)
    ]
    assert in_order([row for part in parts for row in part.advance(END)]) == in_order(whole.advance(END))


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
@pytest.mark.parametrize("early", [AfterRows(1), AfterRows(9)], ids=str)
def test_a_checkpoint_has_the_panes_of_its_moment_when_it_is_written_later(early: Trigger, aggregations: Any) -> None:
    w = PanedSessions(10, early, aggregations=aggregations)
    w.feed(("a", 1, 0), ("a", 2, 10))
    write = w.begin_checkpoint()
    results = w.advance(21)
    assert len(results) == 1
    again = PanedSessions(10, early, aggregations=aggregations, restored=write())
    assert again.advance(21) == results


@pytest.mark.parametrize("word", ["new rows", "panes"])
def test_cells_with_fewer_than_no_rows_or_panes_are_refused(word: str) -> None:
    w = PanedSessions(10, AfterRows(9))
    w.feed(("a", 1, 5))
    good = w.checkpoint()
    (part,) = good.logs["state"]
    (name,) = [name for name in part["keys"].column_names if word in name]
    table = part["keys"].set_column(part["keys"].column_names.index(name), name, pa.array([-1]))
    with pytest.raises(CheckpointDamaged, match=r"op: .*fewer than no rows or panes"):
        PanedSessions(10, AfterRows(9), restored=replace(good, logs={"state": [{"keys": table}]}))


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
def test_the_state_is_shown_as_sessions_with_the_rows_that_were_not_shown(aggregations: Any) -> None:
    w = PanedSessions(10, AfterRows(2), aggregations=aggregations)
    w.feed(("a", 1, 0), ("a", 2, 3), ("b", 3, 5))
    state = TriggeredSessionOperator.show(w.shown_as, w.checkpoint(), [SCHEMA], w.context.output_schema)
    rows = [tuple(map(plain, row.values()))[:7] for row in state.tables["rows"].to_pylist()]
    assert sorted(rows) == [("a", 0, 13, 0, None, None, None), ("b", 5, 15, 1, 3, 3, 3)]
