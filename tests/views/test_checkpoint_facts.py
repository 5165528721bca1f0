"""Facts of checkpoints, their table, and the choice of one, from events that are written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dataflow.errors import EventsDamaged, EventsError
from dataflow.events.kinds import Arrival, Unblocked
from dataflow.views.blocked_channels import BlockedChannel, blocked_channels
from dataflow.views.checkpoint_facts import BlockedInput, CheckpointFacts
from dataflow.views.checkpoint_table import slowest
from dataflow.views.choose_checkpoint import choose, why_chosen
from dataflow.views.find_facts import facts_of
from tests.views.events_by_hand import JOIN, Story, channel, plan

TWO = plan(("in", "out", "hash"))


def facts(story: Story, checkpoint: int = 1, attempt: int | None = None) -> CheckpointFacts:
    return facts_of(story.events(), checkpoint, attempt)


def quick(story: Story, n: int, at: float, took: float = 10) -> Story:
    """A durable checkpoint of plan ``TWO``, whose barrier arrives."""
    story.triggered(at, n).barrier(("in", "out"), n, at + 1, at + 2)
    return story.part("in", n, at + 1, at + 1, at + 3).part("out", n, at + 2, at + 2, at + 4).durable(at + took, n)


def test_facts_have_each_time_of_each_task_and_barrier() -> None:
    story = Story(TWO).triggered(10, 1, "savepoint").barrier(("in", "out"), 1, 11, 15, ahead=7, overtaken=5)
    story.part("in", 1, 12, 13, 16, copy=1, bytes=70).part("out", 1, 18, 20, 25, snapshot=17, rows=9).durable(
        30, 1, rows=9
    )
    found = facts(story.add("committed", "job", 33, 1))
    assert (found.kind, found.triggered, found.travelled, found.written, found.ended) == (
        "savepoint",
        10_000,
        18_000,
        25_000,
        30_000,
    )
    assert (found.committed, found.rows_in_flight, found.bytes, found.is_durable) == (33_000, 9, 500, True)
    task = found.tasks["out[0]"]
    assert (task.snapshot, task.complete, task.part_begin, task.part_end) == (17_000, 18_000, 20_000, 25_000)
    (barrier,) = found.barriers
    assert (barrier.sent, barrier.arrived, barrier.rows_ahead, barrier.overtaken) == (11_000, 15_000, 7, 5)
    assert barrier.how is Arrival.OVERTAKING


def test_a_checkpoint_has_travelled_only_when_every_task_that_had_not_ended_is_complete() -> None:
    story = Story(JOIN).add("ended", "orders[0]", 5).triggered(10, 1)
    for task in ("payments", "check", "join"):
        story.part(task, 1, 12, 12, 13)
    assert facts(story).travelled is None
    assert facts(story.part("sums", 1, 14)).travelled == 14_000
    assert facts(story).written is None


def test_a_blocked_input_waited_for_the_barrier_that_came_last_before_it_was_unblocked() -> None:
    wide = plan(("in", "out", "hash"), **{"in": 3})
    story = Story(wide).triggered(0, 1)
    for subtask, arrived in enumerate((2, 9, 5)):
        story.barrier((f"in[{subtask}]", "out"), 1, 1, arrived)
    story.blocked(("in[0]", "out"), 1, 2, 9).blocked(("in[2]", "out"), 1, 5, 6, "timeout")
    assert facts(story).blocked == (
        BlockedInput(channel("in[2]", "out"), "out[0]", 5_000, 6_000, Unblocked.TIMEOUT),
        BlockedInput(channel("in[0]", "out"), "out[0]", 2_000, 9_000, Unblocked.COMPLETE, channel("in[1]", "out")),
    )


def test_an_id_that_occurs_in_several_attempts_means_the_last() -> None:
    story = quick(Story(TWO), 1, 10, took=20)
    story.attempt = 2
    quick(story.add("started", "job", 0), 1, 50, took=30)
    assert [facts(story).attempt, facts(story, attempt=1).attempt] == [2, 1]
    assert story.events().checkpoints["duration"].to_pylist() == [20_000, 30_000]


def test_work_is_the_difference_of_totals_and_begins_with_the_last_sample_before() -> None:
    story = Story(TWO).work("in", 20, busy=5).work("in", 60, busy=30, waiting=20).work("out", 900, busy=1)
    quick(story, 1, 100).work("in", 130, busy=100, rows=7)
    spans = facts(story).work["in[0]"]
    assert [(span.begin, span.end, span.busy, span.waiting, span.rows_in) for span in spans] == [
        (60_000, 130_000, 70_000, 0, 7)
    ]
    assert set(facts(story).work) == {"in[0]", "out[0]"}
    assert [span.begin for span in facts(story).work["out[0]"]] == [0]


def test_the_slowest_checkpoint_with_a_barrier_on_each_input_is_chosen() -> None:
    story = quick(quick(Story(TWO), 1, 0, took=10), 2, 20, took=30)
    story.add("ended", "in[0]", 60).triggered(70, 3).barrier(("in", "out"), 3, None, 71, how="started here")
    story.part("out", 3, 71, 71, 72).durable(170, 3).triggered(200, 4).failed(900, 4, "expired")
    assert choose(story.events()) == (1, 2)
    assert why_chosen(story.events()) == "the slowest of 2 checkpoints in which every input still had a barrier"
    assert [row.checkpoint for row in slowest(story.events(), 2)] == [3, 2]


def test_without_such_a_checkpoint_the_slowest_is_chosen_and_a_durable_one_rather_than_a_failed_one() -> None:
    failed = Story(TWO).triggered(0, 1).failed(900, 1, "expired").triggered(1_000, 2).failed(1_100, 2, "expired")
    assert choose(failed.events()) == (1, 1)
    assert why_chosen(failed.events()) == "the slowest of 2 checkpoints that failed"
    late = failed.triggered(2_000, 3).durable(2_005, 3).events()
    assert (choose(late), why_chosen(late)) == ((1, 3), "the only checkpoint that became durable")
    none = Story(TWO).triggered(0, 1).triggered(5, 2).events()
    assert (choose(none), why_chosen(none)) == ((1, 2), "the last of 2 checkpoints, of which none has ended")
    assert why_chosen(quick(Story(TWO), 1, 0).events()) == ""


def test_a_blocked_channel_tells_what_ended_its_wait() -> None:
    wide = plan(("in", "out", "hash"), **{"in": 4})
    story = Story(wide).triggered(0, 1).barrier(("in[0]", "out"), 1, 1, 2).barrier(("in[1]", "out"), 1, 1, 3)
    story.add("ended", "in[2]", 1).add("ended", "in[3]", 40).blocked(("in[1]", "out"), 1, 3, 50, "ended")
    story.triggered(60, 2).blocked(("in[0]", "out"), 2, 62, 102, "timeout")
    assert [each.waited_for for each in blocked_channels(story.events())] == [
        "the end of in[3] -> out[0]",
        "in[1] -> out[0], until the timeout",
    ]
    early = Story(wide).triggered(0, 1).add("ended", "in[2]", 1).add("ended", "in[3]", 1)
    assert blocked_channels(early.blocked(("in[0]", "out"), 1, 3, 5, "ended").events())[0].awaited == ()
    one = Story(JOIN).triggered(0, 1).add("ended", "check[0]", 1).blocked(("orders", "join"), 1, 3, 5, "ended")
    assert blocked_channels(one.events())[0].waited_for == "the end of check[0] -> join[0]"
    one = Story(JOIN).triggered(0, 1).add("ended", "check[0]", 1).blocked(("orders", "join"), 1, 3, 5, "timeout")
    assert blocked_channels(one.events())[0].waited_for == "check[0] -> join[0], until the timeout"
    failed = Story(JOIN).triggered(0, 1).blocked(("orders", "join"), 1, 3, 5, "aborted")
    assert blocked_channels(failed.events())[0].waited_for == "check[0] -> join[0], until it was aborted"


def test_the_table_has_a_row_for_each_checkpoint_with_its_state_and_its_parts() -> None:
    story = quick(Story(TWO), 1, 0).add("committed", "job", 11, 1)
    quick(story, 2, 20).triggered(40, 3).failed(50, 3, "expired").triggered(60, 4)
    story.attempt = 2
    story.add("started", "job", 0).triggered(5, 5)
    table = story.events().checkpoints
    assert table["state"].to_pylist() == ["committed", "durable", "failed", "abandoned", "under way"]
    assert table["checkpoint"].to_pylist() == [1, 2, 3, 4, 5]
    parts = [table[name].to_pylist() for name in ("travel", "write", "manifest", "duration")]
    assert list(zip(*parts, strict=True)) == [
        (2_000, 2_000, 6_000, 10_000),
        (2_000, 2_000, 6_000, 10_000),
        (None, None, None, 10_000),
        *[(None, None, None, None)] * 2,
    ]
    assert table["failure"].to_pylist() == [None, None, "expired", None, None]


def test_blocked_channels_tell_their_longest_wait_and_their_sum() -> None:
    story = Story(JOIN).triggered(0, 1).barrier(("check", "join"), 1, 1, 30).blocked(("orders", "join"), 1, 2, 30)
    story.triggered(40, 2).barrier(("orders", "join"), 2, 41, 45).blocked(("check", "join"), 2, 43, 45)
    story.triggered(50, 3).blocked(("orders", "join"), 3, 55, 60, "ended")
    orders, check, came = channel("orders", "join"), channel("check", "join"), Unblocked.COMPLETE
    assert blocked_channels(story.events()) == (
        BlockedChannel(orders, 28_000, 1, 1, came, (check,), 33_000),
        BlockedChannel(check, 2_000, 1, 2, came, (orders,), 2_000),
    )
    assert blocked_channels(Story(JOIN).events()) == ()
    table = story.events().checkpoints
    assert table["blocked"].to_pylist() == [28_000, 2_000, 5_000]
    assert table["longest_blocked_time"].to_pylist() == [28_000, 2_000, 5_000]
    assert table["longest_blocked"].to_pylist()[1:] == [channel("check", "join"), channel("orders", "join")]


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are() -> None:
    story = quick(quick(quick(Story(TWO), 3, 0), 4, 20), 9, 40)
    with pytest.raises(EventsError, match=r"checkpoint 7 is not in the events, which have 3, 4, 9$"):
        facts(story, 7)
    with pytest.raises(EventsError, match=r"checkpoint 3 is not in the events of attempt 2, which have none$"):
        facts(story, 3, attempt=2)
    story.missed = 1_203
    with pytest.raises(EventsError, match="1,203 events were dropped, the oldest first: record= keeps all in a file"):
        facts(story, 1)


def test_events_without_any_checkpoint_are_refused_with_the_reason() -> None:
    with pytest.raises(EventsError, match="the job of 'orders-payments' has not begun"):
        choose(Story(TWO, start=False).events())
    with pytest.raises(EventsError, match=r"no checkpoint of 'orders-payments' was triggered; let it run longer"):
        choose(Story(TWO).events())
    with pytest.raises(EventsError, match="in the events: 5 were dropped"):
        choose(Story(TWO, missed=5).events())
    story = Story(TWO)
    story.recorded = replace(story.recorded, mode="")
    with pytest.raises(EventsError, match=r"ran without checkpoints; run it with checkpoint=Checkpointing"):
        choose(story.events())


@pytest.mark.parametrize(
    ("field", "name"), [("channel", "in[0] -> <img src=x>[0]"), ("task", "out[7]"), ("totals", "3 totals")]
)
def test_events_that_contradict_their_plan_are_damaged(field: str, name: str) -> None:
    story = quick(Story(TWO), 1, 0)
    if field == "totals":
        story.add("work", "in[0]", 5, totals=[1, 2, 3])
    else:
        story.rows = [{**row, field: name} if row["kind"] in ("sent", "complete") else row for row in story.rows]
    with pytest.raises(EventsDamaged) as error:
        facts(story)
    assert name in str(error.value)


def test_a_sample_of_no_task_is_left_out() -> None:
    story = quick(Story(TWO), 1, 0).work("in", 5, busy=5)
    story.rows.append({**story.rows[-1], "task": None, "time": 6})
    assert facts(story).work["in[0]"][0].busy == 5_000
