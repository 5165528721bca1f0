"""A restart may use another checkpoint mode: each checkpoint is told in the mode of its own attempt."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.runners.faults import Faults
from dataflow.views.attempt_mode import mode_of
from dataflow.views.find_facts import facts_of
from dataflow.views.sentences import sentences_of
from tests.views.events_by_hand import Story, plan

TWO = plan(("in", "out", "hash"))


def story(*modes: str | None, recorded: str = "aligned") -> Story:
    """Attempts in ``modes``, each with a checkpoint; None: the event does not have the mode."""
    told = Story(TWO, recorded, start=False)
    for told.attempt, mode in enumerate(modes, start=1):
        n = told.attempt
        told.add("started", "job", 0, detail=mode, value=n * 1_000_000).triggered(1, n)
        told.barrier(("in", "out"), n, 2, 3).part("in", n, 2, 2, 4).part("out", n, 3, 3, 4).durable(10, n)
        told.add("repeats", "out[0]", 3, n, operator="out", rows=7)
    return told


def test_sentences_tell_a_checkpoint_in_the_mode_of_its_attempt() -> None:
    events = story("unaligned", "aligned").events()
    first, second = ([sentence.text for sentence in sentences_of(facts_of(events, n))] for n in (1, 2))
    assert "checkpoint 1 was durable, in mode unaligned (at least once)" in first[0]
    assert first[-1] == "A restore would deliver 7 rows twice at out."
    assert "checkpoint 2 was durable, in mode aligned (exactly once)" in second[0]
    assert second[-1].startswith("unaligned-persisted (exactly once) would have stored")


def test_the_table_has_the_mode_and_its_guarantee() -> None:
    table = story("unaligned", "aligned", "").events().checkpoints
    assert table["mode"].to_pylist() == ["unaligned", "aligned", None]
    assert table["guarantee"].to_pylist() == ["at least once", "exactly once", None]


def test_the_timelines_of_a_run_name_all_its_modes() -> None:
    events = story("unaligned", "aligned", "unaligned").events()
    html, svg = events.timeline("all").html(), events.timeline("all").svg()
    modes = "The mode changed: attempts 1 and 3 unaligned (at least once); attempt 2 aligned (exactly once)."
    assert modes in html
    assert "checkpoint 1, in mode unaligned (at least once): durable" in svg
    assert "checkpoint 2, in mode aligned (exactly once): durable" in svg
    assert "the job began again from the beginning, in mode aligned (exactly once)." in html
    assert "Mode unaligned (at least once): no input is blocked" in events.timeline(1).html()
    same = flow.compare_timelines({"a": events, "b": events}, 2).html()
    assert same.count("Mode aligned (exactly once): an input") == 2


def test_a_mode_that_is_not_recorded_is_the_one_of_the_metadata() -> None:
    assert mode_of(story(None, recorded="unaligned").events(), 1) == ("unaligned", "at least once")


@pytest.mark.parametrize(
    ("mode", "recorded", "guarantee", "expected"),
    [
        ("unaligned", "aligned", "exactly once", "unaligned (at least once)"),
        ("aligned", "unaligned", "at least once", "aligned (exactly once)"),  # what sinks do is not known
        ("aligned", "unaligned-persisted", "at least once", "aligned (exactly once), end to end at least once"),
        ("aligned", "unaligned", "at most once", "aligned (exactly once), end to end at most once"),
        ("unaligned", "aligned", "at most once", "unaligned (at least once), end to end at most once"),
        ("aligned", "aligned", "at least once", "aligned (exactly once), end to end at least once"),
        ("", "aligned", "exactly once", "no checkpoints"),
        ("forged", "aligned", "exactly once", "forged"),
        ("aligned", "forged", "exactly once", "aligned (exactly once)"),
    ],
)
def test_the_guarantee_is_the_one_of_the_mode_as_far_as_it_is_known(
    mode: str, recorded: str, guarantee: str, expected: str
) -> None:
    told = story(mode, recorded=recorded)
    told.recorded = replace(told.recorded, guarantee=guarantee)
    assert mode_of(told.events(), 1).text == expected


def test_after_a_crash_in_the_simulator_each_attempt_has_its_mode() -> None:
    with flow.Pipeline("two") as p:
        left = p.source(op.from_arrow(pa.table({"id": range(90)}), batch_rows=3), name="left")
        right = p.source(op.from_arrow(pa.table({"id": range(90)}), batch_rows=3), name="right")
        left.union(right, name="both").sink(op.collect(), name="out")
    store = flow.MemoryStore()
    first, then = (flow.Checkpointing(store, every="5ms", mode=mode) for mode in ("unaligned", "aligned"))
    runner = flow.SimulatedRunner(2, Faults(crashes=1, restart_with=[then]))
    events = p.run(runner, checkpoint=first).events
    modes = {(row["attempt"], row["mode"]) for row in events.checkpoints.to_pylist()}
    assert modes == {(1, "unaligned"), (2, "aligned")}
