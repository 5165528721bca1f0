"""Sentences on checkpoints whose events are written by hand: each kind of cause has its words and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from dataflow.events.plan_shape import OperatorShape, PlanShape
from dataflow.events.repeat_precision import Precision
from dataflow.views.causes import Causes
from dataflow.views.choose_checkpoint import choose
from dataflow.views.find_facts import facts_of
from dataflow.views.sentence import Sentence, Strong
from dataflow.views.sentences import sentences_of
from tests.views.events_by_hand import JOIN, Story, plan

FORWARD = plan(("in", "slow", "rebalance"), ("slow", "out", "forward"))
CHAIN = plan(("in", "fast", "hash"), ("fast", "slow", "hash"), ("slow", "out", "hash"))


def sentences(story: Story, checkpoint: int | None = None) -> Sequence[Sentence]:
    events = story.events()
    return sentences_of(facts_of(events, checkpoint or choose(events)[1]))


def texts(story: Story, topic: str, checkpoint: int | None = None) -> list[str]:
    return [sentence.text for sentence in sentences(story, checkpoint) if sentence.topic == topic]


def skewed_join(mode: str = "aligned", plan: PlanShape = JOIN) -> Story:
    """Checkpoint 2: orders are blocked at the join, because a barrier queues behind payments at a busy check."""
    story = Story(plan, mode).work("check", 0).triggered(1_000, 2)
    story.barrier(("orders", "join"), 2, 1_001, 1_002).part("orders", 2, 1_001, 1_002, 1_010)
    story.barrier(("payments", "check"), 2, 1_002, 1_328, ahead=678).part("payments", 2, 1_002, 1_003, 1_010)
    story.work("check", 1_328, busy=1_328)
    story.barrier(("check", "join"), 2, 1_329, 1_343, ahead=15).part("check", 2, 1_329, 1_330, 1_340)
    story.blocked(("orders", "join"), 2, 1_002, 1_344).part("join", 2, 1_345, 1_350, 1_470)
    story.barrier(("join", "sums"), 2, 1_344, 1_397).part("sums", 2, 1_397, 1_410, 1_496)
    return story.durable(1_506, 2)


def test_a_skewed_join_is_explained_as_in_a_talk() -> None:
    assert [sentence.text for sentence in sentences(skewed_join())] == [
        "Barriers travelled for 397.0 ms of the 506.0 ms until checkpoint 2 was durable, in mode aligned (exactly "
        "once); after that, state was written for 99.0 ms and the manifest for 10.0 ms.",
        "orders[0] -> join[0] was blocked for 342.0 ms: join[0] had barrier 2 and waited for the one of check[0] -> "
        "join[0].",
        "It was late because it spent 326.0 ms in payments[0] -> check[0], behind 678 rows; check[0] was busy 100% of "
        "that time.",
        "unaligned-persisted (exactly once) would have stored about 693 rows and been durable at most 397.0 ms sooner, "
        "the time that barriers travelled.",
    ]


def test_names_and_figures_are_strong_and_figures_are_given_as_numbers() -> None:
    blocked, cause = sentences(skewed_join())[1:3]
    assert [word.text for word in cause.words if isinstance(word, Strong)][:3] == [
        "326.0 ms",
        "payments[0] -> check[0]",
        "678 rows",
    ]
    assert dict(blocked.figures) == {"blocked": 342_000}
    assert dict(cause.figures) == {"delay": 326_000, "rows_ahead": 678, "busy": 100}


def one_part(begin: float, end: float) -> Story:
    """A task is complete at 12 ms, and its part is written from ``begin`` to ``end``; another one from 11 to 41 ms."""
    story = Story(plan(("in", "out", "hash"))).triggered(10, 1).barrier(("in", "out"), 1, 10, 12)
    story.part("in", 1, 11, 11, 41).part("out", 1, 12, begin, end, bytes=2_500_000)
    return story.durable(max(41, end) + 1, 1)


def test_a_slow_write_is_told_first() -> None:
    assert texts(one_part(13, 90), "parts") == [
        "State was written for 78.0 ms of the 81.0 ms until checkpoint 1 was durable, in mode aligned (exactly once): "
        "the part of out[0] (2.5 MB) took 77.0 ms to write, after it had waited 1.0 ms for the writer. Before that, "
        "barriers travelled for 2.0 ms; the manifest took 1.0 ms."
    ]


def test_a_long_wait_for_the_writer_is_told_apart_from_writing() -> None:
    (text,) = texts(one_part(41, 51), "parts")
    assert (
        "the part of out[0] (2.5 MB) waited 29.0 ms for the writer, which wrote the part of in[0] for 29.0 ms of "
        "that time; it took 10.0 ms to write" in text
    )


def test_a_slow_manifest_is_told_first() -> None:
    story = Story(plan(("in", "out", "hash"))).triggered(0, 1, "final").barrier(("in", "out"), 1, 1, 2)
    (text,) = texts(story.part("in", 1, 1, 1, 2).part("out", 1, 2, 2, 3).durable(20, 1), "parts")
    assert text.startswith(
        "The manifest took 17.0 ms of the 20.0 ms until the final checkpoint 1 was durable, in mode "
    )


def test_a_source_in_a_long_step_is_a_first_cause() -> None:
    story = (
        Story(plan(("in", "out", "hash")))
        .work("in", 10, waiting=10)
        .triggered(10, 1)
        .work("in", 210, busy=200, waiting=10)
    )
    story.barrier(("in", "out"), 1, 210, 211).part("in", 1, 210, 211, 212).part("out", 1, 211, 212, 213)
    assert texts(story.durable(215, 1), "cause") == [
        "out[0] was complete last, 201.0 ms after the trigger, because the source in[0] took its snapshot only "
        "200.0 ms after the trigger; in[0] was busy 100% of that time."
    ]


def test_a_task_without_room_downstream_leads_to_the_task_that_takes_no_rows() -> None:
    story = Story(CHAIN).work("fast", 101, busy=101).work("slow", 101, busy=101).triggered(100, 1)
    story.barrier(("in", "fast"), 1, 101, 301, ahead=1).part("in", 1, 101, 102, 103)
    story.work("fast", 301, busy=141, full=160).work("slow", 400, busy=400)
    story.barrier(("fast", "slow"), 1, 301, 391, ahead=1_203).part("fast", 1, 301, 302, 303)
    story.barrier(("slow", "out"), 1, 391, 391).part("slow", 1, 391, 392, 393).part("out", 1, 391, 392, 393)
    assert texts(story.durable(400, 1), "cause") == [
        "slow[0] was complete last, 291.0 ms after the trigger, because its barrier spent 200.0 ms in in[0] -> "
        "fast[0], behind 1 row; fast[0] was busy 20% of that time, and had no room downstream 80%, because of slow[0], "
        "which was busy 100% of it.",
        "After that, it spent 90.0 ms in fast[0] -> slow[0], behind 1,203 rows; slow[0] was busy 100% of that time.",
    ]


def test_missing_samples_are_said_to_be_missing() -> None:
    story = Story(JOIN)
    story.rows = [row for row in skewed_join().rows if row["kind"] != "work"]
    (text,) = texts(story, "cause", 2)
    assert text.endswith("; what check[0] did in that time is unknown: samples are missing, or too far apart.")


def test_shares_are_never_above_100_percent() -> None:
    story = Story(JOIN)
    story.rows = [{**row, "totals": [0, 0, 9_000_000, 0, 0, 0]} if row["kind"] == "work" and row["time"] else row
                  for row in skewed_join().rows]  # fmt: skip
    (text,) = texts(story, "cause", 2)
    assert text.endswith("; check[0] was busy 100% of that time.")


def test_a_circle_ends_where_it_comes_round() -> None:
    story = Story(plan(("a", "b", "hash"), ("b", "a", "hash"))).triggered(0, 1)
    story.barrier(("a", "b"), 1, 30, 40).barrier(("b", "a"), 1, 25, 29, ahead=4)
    story.part("a", 1, 30, 30, 31).part("b", 1, 41, 41, 42).durable(50, 1)
    first, second = texts(story, "cause")
    assert first == (
        "b[0] was complete last, 41.0 ms after the trigger, because its barrier came round to b[0] again, 25.0 ms "
        "after the trigger."
    )
    assert second.startswith("After that, it spent 10.0 ms in a[0] -> b[0], with no row ahead of it;")


def test_a_sender_is_blamed_for_the_barrier_it_took_before_it_sent_and_not_for_later_ones() -> None:
    both = plan(("near", "both", "hash"), ("far", "both", "hash"), ("both", "out", "hash"))
    story = Story(both, "unaligned-persisted").triggered(0, 1).barrier(("near", "both"), 1, 1, 11)
    story.barrier(("both", "out"), 1, 11, 91, ahead=5).barrier(("far", "both"), 1, 1, 90)
    for task, snapshot, complete in (("near", 1, 1), ("far", 1, 1), ("both", 11, 90), ("out", 91, 91)):
        story.part(task, 1, complete, 91, 92, snapshot=snapshot)
    assert [text.split(";")[0] for text in texts(story.durable(95, 1), "cause")] == [
        "out[0] was complete last, 91.0 ms after the trigger, because its barrier spent 80.0 ms in both[0] -> out[0], "
        "behind 5 rows"
    ]
    causes = Causes(facts_of(story.events(), 1))
    assert [delay.duration for delay in causes.delays("out[0]", 91_000)] == [80_000, 10_000, 1_000]


def test_a_task_that_a_barrier_waits_for_lacks_no_input_but_a_thread() -> None:
    story = Story(plan(("in", "out", "hash"))).work("out", 10, waiting=10).triggered(10, 1)
    story.barrier(("in", "out"), 1, 10, 60).part("in", 1, 10, 10, 11).work("out", 60, waiting=60).part(
        "out", 1, 60, 60, 61
    )
    assert texts(story.durable(62, 1), "cause") == [
        "out[0] was complete last, 50.0 ms after the trigger, because its barrier spent 50.0 ms in in[0] -> out[0], "
        "with no row ahead of it; out[0] waited for a thread 100% of that time."
    ]


def test_a_long_copy_and_a_delay_of_many_places_have_words_of_their_own() -> None:
    story = Story(plan(("in", "out", "hash"))).triggered(0, 1).barrier(("in", "out"), 1, 1, 2).part("in", 1, 1, 1, 2)
    (text,) = texts(story.part("out", 1, 82, 83, 84, snapshot=80, copy=75).durable(90, 1), "cause")
    assert "because out[0] took 80.0 ms to complete its snapshot, of which the copy of its state took 75.0 ms." in text
    names = [f"t{n}" for n in range(12)]
    story = Story(plan(*[(a, b, "hash") for a, b in pairwise(names)])).triggered(0, 1)
    for n, ends in enumerate(pairwise(names)):
        story.barrier(ends, 1, n + 1, n + 2).part(ends[0], 1, n + 1, n + 1, n + 2)
    (text, *_) = texts(story.part("t11", 1, 12, 12, 13).durable(14, 1), "cause")
    assert (
        "because its barrier passed 12 places that each took some time; the longest: the source t0[0] took its" in text
    )


def test_channels_that_cannot_be_overtaken_are_no_part_of_the_prediction() -> None:
    story = Story(FORWARD).triggered(0, 1).barrier(("in", "slow"), 1, 1, 20, ahead=7)
    story.barrier(("slow", "out"), 1, 20, 25, ahead=1).part("in", 1, 1, 2, 3).part("slow", 1, 20, 20, 21)
    assert texts(story.part("out", 1, 25, 25, 26).durable(30, 1), "prediction") == [
        "unaligned-persisted (exactly once) would have stored about 7 rows and been durable at most 25.0 ms sooner, "
        "the time that barriers travelled; it would still have waited for 1 row in channels that keep their order."
    ]


@pytest.mark.parametrize(
    ("mode", "kind"), [("unaligned", "checkpoint"), ("unaligned-persisted", "checkpoint"), ("aligned", "savepoint")]
)
def test_only_an_aligned_checkpoint_is_compared_with_an_unaligned_one(mode: str, kind: str) -> None:
    story = skewed_join(mode)
    story.rows[2]["detail"] = kind
    assert not texts(story, "prediction")


def overtaking(stored: int, mode: str = "unaligned-persisted", *overtaken: int) -> Story:
    story = Story(JOIN, mode).triggered(0, 1).barrier(("payments", "check"), 1, 1, 2, ahead=600, overtaken=overtaken[0])
    for ends, rows in zip((("orders", "join"), ("check", "join"), ("join", "sums")), overtaken[1:], strict=True):
        story.barrier(ends, 1, 2, 5, ahead=rows, overtaken=rows)
    story.part("orders", 1, 2, 2, 3).part("payments", 1, 1, 2, 3).part("check", 1, 2, 2, 3, rows=stored)
    return story.part("join", 1, 5, 5, 6).part("sums", 1, 5, 5, 6).durable(9, 1, rows=stored)


def test_rows_stored_and_rows_overtaken_differ_by_those_that_came_after_the_snapshot() -> None:
    story = overtaking(677, "unaligned-persisted", 600, 0, 6, 10)
    assert texts(story, "overtaken") + texts(story, "stored") == [
        "Barriers overtook 616 rows, 600 of them in payments[0] -> check[0].",
        "It stored 677 rows in flight (5.4 kB): these, and 61 that came between the snapshot of a task and its last "
        "barrier. A restore puts them back, each once.",
    ]


def test_one_row_is_no_rows() -> None:
    story = overtaking(1, "unaligned-persisted", 1, 0, 0, 0)
    assert texts(story, "overtaken") == ["Barriers overtook 1 row in payments[0] -> check[0]."]
    assert texts(story, "stored") == [
        "It stored 1 row in flight (8 bytes): the one that a barrier overtook. A restore puts it back once."
    ]


def test_rows_that_came_twice_are_counted_at_each_operator_and_never_added_up() -> None:
    story = skewed_join("unaligned")
    story.add("repeats", "join[0]", 1_345, 2, operator="join", rows=1_200)
    story.add("repeats", "join[0]", 1_345, 2, operator="out", rows=40).add(
        "repeats", "sums[0]", 1_397, 2, operator="join", rows=3
    )
    assert texts(story, "repeats") == [
        "A restore would deliver 1,203 rows twice at join, and 40 at out; each operator counts for itself, so these do "
        "not add up."
    ]
    assert texts(skewed_join("unaligned"), "repeats") == ["A restore would deliver no row twice."]


def inexact(*names: str, **precisions: Precision) -> PlanShape:
    """The plan of the skewed join, with operators of which counts of repeated rows are not exact."""
    named = {**dict.fromkeys(names, Precision.EXACT), **precisions}
    operators = [OperatorShape(name, "kind", repeat_precision=precision) for name, precision in named.items()]
    return msgspec.structs.replace(JOIN, operators=tuple(operators))


def test_a_count_of_repeated_rows_that_is_not_exact_is_not_told_as_if_it_were() -> None:
    plan = inexact("join", most=Precision.UPPER_BOUND, low=Precision.MAY_BE_TOO_LOW, out=Precision.MAY_BE_TOO_LOW)
    story = skewed_join("unaligned", plan)
    assert texts(story, "repeats") == ["A restore would deliver no row twice."]
    for operator, rows in {"low": 460, "most": 9, "join": 180}.items():  # the most rows are not the first to be told
        story.add("repeats", "join[0]", 1_345, 2, operator=operator, rows=rows)
    assert texts(story, "repeats") == [
        "A restore would deliver 180 rows twice at join, at most 9 at most, perhaps more than 460 at low, and perhaps "
        "some at out; each operator counts for itself, so these do not add up."
    ]


def test_all_operators_are_named_at_which_rows_come_twice() -> None:
    names = [f"step-{n}" for n in range(14)]
    story = skewed_join("unaligned", inexact(*names))
    for name in reversed(names):
        story.add("repeats", "join[0]", 1_345, 2, operator=name, rows=7)
    (text,) = texts(story, "repeats")
    assert text.startswith("A restore would deliver 7 rows twice at step-0, 7 at step-1, ")
    assert ", 7 at step-11, and some at 2 other operators; each" in text


def timed_out() -> Story:
    story = Story(JOIN, "aligned-timeout").triggered(0, 1).barrier(("orders", "join"), 1, 1, 2)
    story.barrier(("payments", "check"), 1, 1, 52, ahead=600, overtaken=590).blocked(
        ("orders", "join"), 1, 2, 51, "timeout"
    )
    story.barrier(("check", "join"), 1, 52, 53).barrier(("join", "sums"), 1, 51, 52)
    for task, complete in {"orders": 1, "payments": 1, "check": 52, "join": 53, "sums": 52}.items():
        story.part(task, 1, complete, 54, 55, rows=590 if task == "check" else 0)
    return story.durable(60, 1, rows=590)


def test_an_input_unblocked_by_the_timeout_blames_no_barrier_that_came_later() -> None:
    assert texts(timed_out(), "blocked") == [
        "orders[0] -> join[0] was blocked for 49.0 ms, until the timeout: join[0] had barrier 1 and waited for the one "
        "of check[0] -> join[0]; then barriers were allowed to overtake rows."
    ]
    assert not texts(timed_out(), "prediction")
    (cause,) = texts(timed_out(), "cause")
    assert "spent 51.0 ms in payments[0] -> check[0], where it overtook 590 rows after the timeout" in cause


def test_an_alignment_without_timeout_is_compared_with_an_unaligned_checkpoint() -> None:
    assert texts(skewed_join("aligned-timeout"), "prediction") == texts(skewed_join(), "prediction")


def test_a_checkpoint_that_started_at_a_gate_has_no_sender_to_blame() -> None:
    story = Story(CHAIN).add("ended", "in[0]", 5).triggered(10, 1)
    story.barrier(("in", "fast"), 1, None, 31, overtaken=9, how="started here").part("in", 1, 11, 11, 12)
    story.barrier(("fast", "slow"), 1, 31, 32).barrier(("slow", "out"), 1, 32, 33)
    story.part("fast", 1, 31, 31, 32).part("slow", 1, 32, 32, 33).part("out", 1, 33, 33, 34)
    assert texts(story.durable(35, 1), "cause") == [
        "out[0] was complete last, 23.0 ms after the trigger, because no task sent its barrier: all tasks that write "
        "to fast[0] had ended, so the checkpoint started there, 21.0 ms after the trigger."
    ]


def test_a_failed_checkpoint_shows_where_it_stopped_and_why() -> None:
    story = Story(JOIN).work("check", 0).triggered(1_000, 3)
    story.barrier(("orders", "join"), 3, 1_001, 1_002).part("orders", 3, 1_001, 1_002, 1_010)
    story.barrier(("payments", "check"), 3, 1_002, None, ahead=678).part("payments", 3, 1_002, 1_003, 1_010)
    story.blocked(("orders", "join"), 3, 1_002, 2_001, "aborted").work("check", 2_100, busy=2_100)
    story.failed(2_000, 3, "checkpoint 3: expired: no acknowledgement from check[0] after 1.00 s")
    story.add("declined", "join[0]", 2_001, 3, detail="cancel")
    assert [sentence.text for sentence in sentences(story)] == [
        "Checkpoint 3, in mode aligned (exactly once), failed after 1.00 s: expired: no acknowledgement from check[0] "
        "after 1.00 s.",
        "join[0] declined it: cancel.",
        "Not complete: check[0], join[0] and sums[0]; barriers or snapshots were missing there.",
        "orders[0] -> join[0] was blocked for 999.0 ms: join[0] had barrier 3 and waited for the one of check[0] -> "
        "join[0], until the checkpoint was aborted.",
        "Where it stopped: the barrier was still in payments[0] -> check[0], 998.0 ms after it was sent, behind 678 "
        "rows; check[0] was busy 100% of that time.",
        "unaligned-persisted (exactly once) would not have waited for the 678 rows queued ahead of barriers.",
    ]


def test_a_failed_checkpoint_may_lack_a_part_or_only_its_manifest() -> None:
    story = Story(plan(("in", "out", "hash"))).triggered(0, 1).barrier(("in", "out"), 1, 1, 2).part("in", 1, 1, 1, 2)
    assert texts(story.part("out", 1, 2).failed(9, 1, "io: disk full"), "stopped") == [
        "All tasks were complete. Not written: the part of out[0]."
    ]
    assert texts(story.add("part", "out[0]", 8, 1, duration=1, bytes=9), "stopped") == [
        "The parts of all tasks were written; the manifest was not."
    ]


def test_a_checkpoint_under_way_has_no_outcome_yet() -> None:
    story = Story(JOIN).triggered(10, 1).barrier(("orders", "join"), 1, 11, 12).blocked(("orders", "join"), 1, 12, None)
    story.work("check", 30)
    assert [sentence.text for sentence in sentences(story)][:3] == [
        "Checkpoint 1, in mode aligned (exactly once), was still under way at the last event, 20.0 ms after its "
        "trigger.",
        "Not complete: payments[0], check[0], orders[0] and 2 more tasks; barriers or snapshots were missing there.",
        "orders[0] -> join[0] was blocked for 18.0 ms and still was: join[0] had barrier 1 and waited for the one of "
        "check[0] -> join[0].",
    ]


def test_events_that_were_dropped_are_said_to_be_missing() -> None:
    story = skewed_join()
    story.rows = [row for row in story.rows if row["kind"] not in ("complete", "part") or row["task"] != "sums[0]"]
    story.missed = 1_203
    assert texts(story, "parts") == [
        "Checkpoint 2, in mode aligned (exactly once), was durable after 506.0 ms; how that time passed is unknown, "
        "because events are missing."
    ]
    assert texts(story, "missing") == ["Events of this checkpoint are missing, because 1,203 events were dropped."]


def test_what_spark_does_not_measure_is_not_shown_as_zero() -> None:
    story = Story(plan(("in", "out", "hash"), engine="spark")).triggered(10, 1).durable(1_510, 1, bytes=None)
    assert [sentence.text for sentence in sentences(story)] == [
        "Checkpoint 1, in mode aligned (exactly once), was durable after 1.50 s.",
        "Barriers, blocked inputs, rows in flight and the parts of tasks are not measured on Spark.",
    ]
    table = story.events().checkpoints
    assert [table[name].to_pylist() for name in ("blocked", "travel", "rows_in_flight", "barriers", "bytes")] == [
        [None]
    ] * 5
    story.recorded = replace(story.recorded, mode="", guarantee="at most once")
    assert texts(story, "parts") == [
        "Checkpoint 1, of a run without checkpoint= (at most once), was durable after 1.50 s."
    ]


def test_a_guarantee_weaker_than_that_of_the_mode_is_shown_with_it() -> None:
    story = Story(JOIN)
    story.recorded = Story(JOIN, "unaligned").recorded
    object.__setattr__(story.recorded, "mode", "aligned")
    story.rows = skewed_join().rows
    assert "in mode aligned (exactly once), end to end at least once;" in texts(story, "parts")[0]
