"""What a task did in an interval, from spans between two samples; and which task took none of its rows."""

from __future__ import annotations

import pytest

from dataflow.views.causes import Causes
from dataflow.views.checkpoint_facts import WorkSpan
from dataflow.views.find_facts import facts_of
from dataflow.views.work_spans import activity
from tests.views.events_by_hand import Story, plan


def span(begin: int, end: int, busy: int, waiting: int = 0, blocked: int = 0, full: int = 0) -> WorkSpan:
    return WorkSpan(begin, end, busy, waiting, blocked, full, 0, 0)


def test_shares_of_whole_spans_add_up_to_one_with_the_time_without_a_thread() -> None:
    did = activity([span(0, 50, 25, 15), span(50, 100, 5, 0, 20, 10)], 0, 100)
    assert did is not None
    assert (did.busy, did.waiting, did.blocked, did.back_pressured) == (0.3, 0.15, 0.2, 0.1)
    assert did.ready == pytest.approx(0.25)


def test_a_step_that_is_counted_later_gives_no_share_above_one() -> None:
    did = activity([span(0, 100, 150, 50)], 0, 100)
    assert did is not None
    assert (did.busy, did.waiting, did.ready) == (0.75, 0.25, 0)


def test_spans_that_are_of_one_kind_tell_about_any_part_of_them() -> None:
    did = activity([span(0, 1_000, 1_000)], 400, 410)
    assert did is not None
    assert did.busy == 1


@pytest.mark.parametrize(
    "spans",
    [[], [span(20, 90, 70)], [span(0, 90, 90)], [span(0, 200, 100, 100)], [span(0, 60, 60), span(60, 160, 50, 50)]],
    ids=["none", "begins late", "ends early", "too far apart", "too far apart at the end"],
)
def test_samples_that_are_missing_or_too_far_apart_leave_it_unknown(spans: list[WorkSpan]) -> None:
    assert activity(spans, 10, 100) is None


def test_an_empty_interval_has_no_shares() -> None:
    assert activity([span(0, 100, 100)], 50, 50) is None


def test_of_several_receivers_the_one_that_waited_least_for_input_left_no_room() -> None:
    fan_out = plan(("in", "idle", "hash"), ("in", "slow", "hash"))
    story = Story(fan_out).triggered(0, 1).work("in", 100, full=100)
    story.work("idle", 100, busy=10, waiting=90).work("slow", 100, busy=95, waiting=5).durable(100, 1)
    ((task, did),) = Causes(facts_of(story.events(), 1)).downstream("in[0]", 0, 100_000)
    assert task == "slow[0]"
    assert did is not None
    assert did.busy == 0.95


def test_a_receiver_without_room_passes_the_blame_on() -> None:
    chain = plan(("in", "a", "hash"), ("a", "b", "hash"), ("b", "c", "hash"), ("c", "a", "hash"))
    story = Story(chain).triggered(0, 1)
    story.work("a", 100, full=100).work("b", 100, full=90, busy=10).work("c", 100, full=80, busy=20).durable(100, 1)
    path = Causes(facts_of(story.events(), 1)).downstream("in[0]", 0, 100_000)
    assert [task for task, _ in path] == ["a[0]", "b[0]", "c[0]"]


def test_a_step_that_a_sample_tells_of_was_busy_to_its_end() -> None:
    chain = plan(("in", "out", "hash"))
    story = Story(chain).work("in", 100, busy=10, waiting=90).triggered(650, 1)
    story.work("in", 850, busy=160, waiting=690, lasted=150).work("in", 850, busy=160, waiting=690).durable(900, 1)
    facts = facts_of(story.events(), 1)
    whole = activity(facts.work["in[0]"], 700_000, 850_000)
    assert whole is not None
    assert whole.busy == 1
    before = activity(facts.work["in[0]"], 650_000, 700_000)
    assert before is not None
    assert (before.busy, before.waiting) == (0, 1)


def test_a_step_longer_than_the_time_between_two_samples_fills_it() -> None:
    story = Story(plan(("in", "out", "hash"))).triggered(0, 1).work("in", 100, busy=20, waiting=80)
    story.work("in", 150, busy=70, waiting=80, lasted=90).durable(150, 1)
    (_, *spans) = facts_of(story.events(), 1).work["in[0]"]
    assert [(each.begin, each.end, each.busy) for each in spans] == [(100_000, 150_000, 50_000)]
