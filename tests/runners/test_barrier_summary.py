"""Blocked channels and the slowest checkpoints in the summary of a run, as text, tables and JSON."""

from __future__ import annotations

import io
import pickle
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest
from rich.console import Console

import dataflow as flow
import operators as op
from dataflow.runners.barrier_summary import BarrierSummary
from dataflow.runners.faults import Faults
from tests.views.events_by_hand import Story, plan


@pytest.fixture(scope="module")
def result() -> flow.RunResult:
    return _run()


def _run(mode: str = "aligned", then: str = "aligned", **faults: int) -> flow.RunResult:
    with flow.Pipeline("<b>two</b>") as p:
        left = p.source(op.from_arrow(pa.table({"k": range(90)}), batch_rows=3), name="left")
        right = p.source(op.from_arrow(pa.table({"k": range(90)}), batch_rows=3), name="right")
        left.union(right, name="both").sink(op.collect(), name="out")
    store = flow.MemoryStore()
    first, later = (flow.Checkpointing(store, every="5ms", mode=each) for each in (mode, then))
    return p.run(flow.SimulatedRunner(2, Faults(skew=0.5, restart_with=[later], **faults)), checkpoint=first)


def _tables(result: flow.RunResult) -> dict[str, list[tuple[str, ...]]]:
    return {heads[0]: rows for heads, rows in BarrierSummary(result).tables}


def test_blocked_channels_are_shown_with_the_barrier_that_they_waited_for(result: flow.RunResult) -> None:
    lines = result.to_dict()["blocked_channels"]
    assert {line["channel"] for line in lines} == set(result.blocked) != set()
    assert [line["longest_us"] for line in lines] == sorted([line["longest_us"] for line in lines], reverse=True)
    assert [row[0] for row in _tables(result)["blocked channel"]] == [line["channel"] for line in lines]
    for line in lines:
        waits = {record.checkpoint: record.blocked.get(line["channel"], 0) for record in result.checkpoints}
        assert line["blocked_us"] == result.blocked[line["channel"]] == sum(waits.values())
        assert line["longest_us"] == waits[line["checkpoint"]] == max(waits.values())
        assert line["until"] == "complete"
        assert set(line["waited_for"]) == {"left[0] -> both[0]", "right[0] -> both[0]"} - {line["channel"]}


def test_the_slowest_checkpoints_are_shown_with_their_three_parts(result: flow.RunResult) -> None:
    slowest = result.to_dict()["checkpoints"]["slowest"]
    durations = sorted([record.duration for record in result.checkpoints], reverse=True)
    assert [line["duration_us"] for line in slowest] == durations[:3]
    assert all(line["travel_us"] + line["write_us"] + line["manifest_us"] == line["duration_us"] for line in slowest)
    numbers = [f"{line['checkpoint']}{' (final)' * (line['kind'] == 'final')}" for line in slowest]
    assert [row[0] for row in _tables(result)["slowest checkpoint"]] == numbers


def test_text_terminals_and_notebooks_show_both_tables(result: flow.RunResult) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(result)
    cells = [cell for rows in _tables(result).values() for row in rows for cell in row]
    assert cells
    assert isinstance(console.file, io.StringIO)
    for shown in (str(result), console.file.getvalue(), result._repr_html_().replace("-&gt;", "->")):
        assert [cell for cell in cells if cell not in shown] == []


def test_a_run_without_checkpoints_has_neither() -> None:
    with flow.Pipeline("plain") as p:
        p.source(op.from_arrow(pa.table({"n": [1]})), name="rows").sink(op.collect(), name="out")
    done = p.run("simulated")
    assert done.to_dict()["checkpoints"]["slowest"] == done.to_dict()["blocked_channels"] == []
    assert _tables(done) == {}
    assert "<details>" not in done._repr_html_()


def test_after_a_restart_checkpoints_have_the_number_of_their_attempt() -> None:
    done = _run(crashes=1)
    assert done.restarts == 1
    assert all(" of attempt " in row[0] for row in _tables(done)["slowest checkpoint"])
    sums = Counter[str]()
    for event in done.events.table.to_pylist():
        sums[event["channel"]] += event["duration"] if event["kind"] == "unblocked" else 0
    assert {line["channel"]: line["blocked_us"] for line in done.to_dict()["blocked_channels"]} == +sums


def test_after_a_restart_in_another_mode_checkpoints_have_the_mode_of_their_attempt() -> None:
    done = _run("unaligned", crashes=1)
    modes = {row["attempt"]: row["mode"] for row in done.events.checkpoints.to_pylist()}
    assert set(modes.values()) == {"unaligned", "aligned"}
    for line, row in zip(done.to_dict()["checkpoints"]["slowest"], _tables(done)["slowest checkpoint"], strict=True):
        assert f" of attempt {line['attempt']}, {modes[line['attempt']]} (" in row[0]


def test_the_sum_of_a_channel_is_exact_though_its_events_were_dropped(result: flow.RunResult) -> None:
    without = replace(result, events=Story(result.events.plan, missed=900).events())
    rows = without.to_dict()["blocked_channels"]
    assert {row["channel"]: row["blocked_us"] for row in rows} == dict(result.blocked)
    assert {row["longest_us"] for row in rows} == {None}
    assert {row[1:4] for row in _tables(without)["blocked channel"]} == {("-", "-", "-")}


def test_on_spark_nothing_of_it_is_shown_as_zero(result: flow.RunResult) -> None:
    spark = Story(plan(("in", "sum", "hash"), engine="spark")).triggered(10, 1).durable(30, 1).events()
    done = replace(result, events=spark)
    assert "blocked channels, and the parts of a checkpoint: not measured on Spark" in str(done)
    assert _tables(done)["slowest checkpoint"] == [("1", "20.0 ms", "-", "-", "-")]
    lines = [line.split() for line in str(done).splitlines()]
    tasks = {task.task for task in done.metrics}
    assert {tuple(line[-3:]) for line in lines if line and line[0] in tasks and "->" not in line} == {("-", "-", "-")}
    assert done.to_dict()["blocked_channels"] is None
    assert {task["waiting_us"] for task in done.to_dict()["tasks"]} == {None}


def test_a_notebook_gets_the_timeline_folded(result: flow.RunResult) -> None:
    html = result._repr_html_()
    assert "<details><summary>" in html
    assert "<svg" in html
    assert "<b>two</b>" not in html


def test_events_are_pickled_without_their_log(result: flow.RunResult) -> None:
    copy = pickle.loads(pickle.dumps(result.events))
    assert copy.table.equals(result.events.table, check_metadata=True)
    assert copy.missed == result.events.missed


def test_rows_that_a_restore_delivers_twice_are_shown_with_their_operators() -> None:
    with flow.Pipeline("join") as p:
        rows = pa.table({"k": [n % 9 for n in range(90)]})
        left, right = (p.source(op.from_arrow(rows, batch_rows=3), name=name) for name in ("left", "right"))
        left.join(right, on="k", name="join").rebalance().sink(op.collect(), name="out")
    settings = flow.Checkpointing(flow.MemoryStore(), every="5ms", mode="unaligned")
    done = p.run(flow.SimulatedRunner(2, Faults(skew=0.5)), checkpoint=settings)
    shown = done.to_dict()["checkpoints"]["repeats"]
    counts = Counter[str]()
    for event in done.events.table.to_pylist():
        if event["kind"] == "repeats" and event["checkpoint"] == shown["checkpoint"]:
            counts[event["operator"]] += event["rows"]
    assert counts["join"] > 0 < counts["out"]
    assert shown["operators"] == [
        {"operator": "join", "rows": counts["join"], "precision": "exact"},
        {"operator": "out", "rows": counts["out"], "precision": "may be too low"},
    ]
    line = f"a restore of checkpoint {shown['checkpoint']} would deliver twice: {counts['join']} rows at join, perhaps "
    assert f"  {line}more than {counts['out']} rows at out" in str(done).splitlines()
    table = done.events.checkpoints
    at = table["checkpoint"].to_pylist().index(shown["checkpoint"])
    assert table["repeats"][at].as_py() == shown["operators"]
    assert f"Checkpoint {shown['checkpoint']} of" in done.timeline().title


def test_modes_that_repeat_no_row_have_no_line_about_it(result: flow.RunResult) -> None:
    assert result.to_dict()["checkpoints"]["repeats"] is None
    assert "a restore of checkpoint" not in str(result)
    known = result.events.checkpoints["repeats"].drop_null().to_pylist()
    assert known == [[]] * len(known) != []


def test_restarts_without_records_of_attempts_have_a_line(result: flow.RunResult) -> None:
    on_spark = replace(result, restarts=1, attempts=())  # where a stream begins again by itself
    assert "  restarts: 1\n" in f"{on_spark}\n"
