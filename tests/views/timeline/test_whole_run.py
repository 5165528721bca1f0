"""The picture of a whole run has all checkpoints and attempts, and what each input was blocked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

import dataflow as flow
from dataflow.errors import ConfigurationError, EventsError
from dataflow.views.timeline.run_facts import run_facts_of
from tests.views.events_by_hand import JOIN, Story
from tests.views.timeline.drawn import texts, titles, wrong
from tests.views.timeline.runs import simulated
from tests.views.timeline.stories import failed, on_spark, skewed_join, three_attempts


def test_each_input_has_the_sum_of_what_it_was_blocked_for():
    shown = texts(skewed_join().events().timeline("all"))
    assert {"340.0 ms", "335.0 ms", "58.5 ms", "blocked in all"} <= set(shown)


def test_the_sums_are_those_of_the_events():
    events = simulated("aligned")
    run = run_facts_of(events)
    sums, expected = Counter(), Counter()
    for blocked in run.blocked:
        sums[blocked.channel] += blocked.end - blocked.begin
    for row in events.table.select(["kind", "channel", "duration"]).to_pylist():
        if row["kind"] == "unblocked":
            expected[row["channel"]] += row["duration"]
    assert sums == expected


def test_attempts_are_apart_as_their_wall_clocks_say_but_a_long_gap_is_cut():
    first, second, third = run_facts_of(three_attempts().events()).attempts
    assert (first.outcome, second.outcome, second.error, third.outcome) == (
        "crashed", "failed", "ValueError at join", "finished"
    )  # fmt: skip
    assert second.begin + second.left_out == 3_600_000_000
    assert second.begin - first.end < first.end - first.begin
    assert third.begin + third.left_out - second.end - second.left_out == 700_000


def test_crashes_and_restores_are_marked():
    timeline = three_attempts().events().timeline("all")
    assert {"crashed", "failed: ValueError at join", "restored 2, 60.0 min later", "1 h"} <= set(texts(timeline))
    assert "Attempt 1 crashed after 3.00 s; 60.0 min later the job began again from checkpoint 2." in timeline.sentences
    assert "restored 4, 700.0 ms later" in titles(timeline)


def test_an_input_that_was_blocked_when_its_attempt_ended_is_not_blocked_in_the_next_one():
    run = run_facts_of(three_attempts().events())
    assert max(blocked.end for blocked in run.blocked) == run.attempts[0].end


def test_a_wall_clock_that_goes_back_does_not_put_an_attempt_before_another():
    story = Story(JOIN).triggered(10, 1).durable(20, 1)
    story.rows[0]["value"] = 10**15
    story.attempt = 2
    story.add("started", "job", 0, value=5).triggered(10, 2).durable(20, 2)
    first, second = run_facts_of(story.events()).attempts
    assert second.begin == first.end


def test_a_failed_checkpoint_is_counted_and_named():
    timeline = failed().events().timeline("all")
    assert timeline.sentences[0] == "No checkpoint was durable, and 1 failed."
    name = "checkpoint 3, in mode aligned (exactly once)"
    assert f"{name}: failed after 500.0 ms: checkpoint 3: timed out after 500 ms" in titles(timeline)


def test_on_spark_lanes_say_what_is_not_measured():
    shown = texts(on_spark().events().timeline("all"))
    assert shown.count("not measured on Spark") == len(on_spark().recorded.plan.tasks) - 1
    assert "blocked in all" not in shown


def test_a_run_of_crashes_is_drawn_whole():
    assert wrong(simulated("aligned", 2, crashes=1).timeline("all")) == []


def test_hundreds_of_checkpoints_are_drawn_with_a_bounded_number_of_elements():
    story = Story(JOIN)
    for n in range(1, 501):
        at = n * 20
        story.triggered(at, n)
        for channel in JOIN.channels:
            story.barrier((channel.source, channel.target), n, at + 0.5, at + 1)
        story.durable(at + 5, n)
    svg = story.events().timeline("all").svg()
    assert svg.count('<line x1="') + svg.count("<line class=") < 1_400
    assert len(svg) < 500_000


def test_a_run_without_checkpoints_is_a_picture_and_has_no_checkpoint():
    story = Story(JOIN, mode="").add("work", "orders[0]", 900, totals=[0, 10, 500, 0, 0, 0])
    story.triggered(900, 1, "final").barrier(("orders", "join"), 1, 905, 910).durable(920, 1)
    events = story.events()
    timeline = events.timeline("all")
    assert timeline.sentences == ("The run took no checkpoints: it had no checkpoint=.",)
    assert "rows/s out of sources" in texts(timeline)
    assert not any("durable" in text for text in (*texts(timeline), *titles(timeline)))
    for checkpoint in (None, 1):
        with pytest.raises(EventsError, match="ran without checkpoints"):
            events.timeline(checkpoint)


def test_the_error_that_ended_a_job_is_told():
    story = Story(JOIN).triggered(10, 1).durable(30, 1)
    story.add("error", "join[0]", 2_000, detail="ValueError", operator="join").add(
        "state", "job", 2_000, detail="failed"
    )
    assert "The job failed after 2.00 s: ValueError at join." in story.events().timeline("all").sentences


def test_a_job_that_has_not_begun_is_refused():
    events = Story(JOIN, start=False).events()
    for checkpoint in (None, "all", 1):
        with pytest.raises(EventsError, match="has not begun"):
            events.timeline(checkpoint)


def test_runs_of_one_pipeline_are_drawn_at_one_scale():
    timeline = flow.compare_timelines({"slow": skewed_join().events(), "fast": skewed_join(scale=0.1).events()})
    shown = texts(timeline)
    assert wrong(timeline) == []
    assert shown.count("500 ms") == 2
    assert timeline.title == "What one checkpoint does to 'orders-payments'"
    assert [sentence.partition(":")[0] for sentence in timeline.sentences] == ["slow"] * 5 + ["fast"] * 5
    assert timeline.html().count("<svg") == 2


def test_runs_of_modes_are_compared():
    runs = {mode: simulated(mode) for mode in ("aligned", "unaligned-persisted")}
    assert [wrong(flow.compare_timelines(runs, checkpoint)) for checkpoint in (None, 1, "all")] == [[], [], []]


def test_runs_of_other_pipelines_are_refused():
    other = Story(JOIN).triggered(1, 1).durable(2, 1)
    other.recorded = replace(other.recorded, pipeline="shipping")
    with pytest.raises(ConfigurationError, match="'a' is of 'orders-payments', and 'b' of 'shipping'"):
        flow.compare_timelines({"a": skewed_join().events(), "b": other.events()})


def test_an_error_of_a_comparison_names_the_run():
    with pytest.raises(EventsError, match="run 'b': checkpoint 2 is not in the events"):
        flow.compare_timelines({"a": skewed_join().events(), "b": failed().events()}, 2)


def test_of_a_job_that_keeps_crashing_the_last_attempts_are_shown():
    story = Story(JOIN)
    for attempt in range(2, 104):
        story.attempt = attempt
        story.add("started", "job", 0).add("state", "job", 5, detail="running")
    timeline = story.events().timeline("all")
    assert "3 earlier attempts not shown." in timeline.sentences


def test_the_parts_of_a_checkpoint_are_those_of_the_table() -> None:
    story = Story(JOIN).triggered(10, 1)
    for number, vertex in enumerate(("payments", "orders", "check", "join", "sums")):
        story.part(vertex, 1, 11 + number, 12 + number, 20 + number)
    whole = run_facts_of(story.durable(30, 1).events()).checkpoints
    assert [(span.travelled, span.written) for span in whole] == [(15_000, 24_000)]
    story.rows = [row for row in story.rows if (row["kind"], row["task"]) != ("complete", "sums[0]")]
    assert [(span.travelled, span.written) for span in run_facts_of(story.events()).checkpoints] == [(None, None)]
