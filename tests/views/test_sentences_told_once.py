"""What sentences leave out: what was told already, what is too short to matter, and causes that were none."""

from __future__ import annotations

import pytest

from dataflow.views.causes import Causes
from dataflow.views.find_facts import facts_of
from tests.views.events_by_hand import JOIN, Story, plan
from tests.views.test_sentences import CHAIN, one_part, sentences, skewed_join, texts

UNION = plan(("a", "u", "forward"), ("b", "u", "forward"), ("u", "out", "rebalance"))


def test_the_rest_of_the_way_is_told_when_both_chains_have_the_same_longest_delay() -> None:
    story = Story(UNION).triggered(0, 1).barrier(("b", "u"), 1, 1, 170).barrier(("a", "u"), 1, 1, 280, ahead=200)
    story.blocked(("b", "u"), 1, 170, 280).barrier(("u", "out"), 1, 281, 506, ahead=200)
    story.work("u", 280, busy=280).work("out", 506, busy=506)
    for task, complete in {"a": 1, "b": 1, "u": 281, "out": 506}.items():
        story.part(task, 1, complete, 507, 508)
    assert texts(story.durable(509, 1), "cause") == [
        "It was late because it spent 279.0 ms in a[0] -> u[0], behind 200 rows; u[0] was busy 100% of that time.",
        "out[0] was complete last, 506.0 ms after the trigger, also because its barrier spent 225.0 ms in u[0] -> "
        "out[0], behind 200 rows; out[0] was busy 100% of that time.",
    ]


def test_no_sentence_says_a_delay_twice_whose_barriers_were_sent_one_after_the_other() -> None:
    fan_out = plan(("in", "mid", "hash"), ("mid", "join", "hash"), ("fast", "join", "hash"), ("mid", "out", "hash"))
    story = Story(fan_out).triggered(0, 1).work("mid", 400, busy=400).barrier(("in", "mid"), 1, 1, 2)
    story.barrier(("fast", "join"), 1, 1, 2).blocked(("fast", "join"), 1, 2, 301)
    story.barrier(("mid", "join"), 1, 300, 301).barrier(("mid", "out"), 1, 300.5, 303)
    for task, complete in {"in": 1, "fast": 1, "mid": 301, "join": 302, "out": 303}.items():
        story.part(task, 1, complete, 304, 305)
    assert texts(story.durable(306, 1), "cause") == [
        "It was late because mid[0] held it for 298.0 ms; mid[0] was busy 100% of that time."
    ]


def test_delays_that_do_not_matter_beside_a_slow_write_are_left_out() -> None:
    story = (
        Story(JOIN).triggered(0, 1).barrier(("payments", "check"), 1, 0.1, 0.5).barrier(("orders", "join"), 1, 0.1, 0.2)
    )
    story.barrier(("check", "join"), 1, 0.6, 0.7).blocked(("orders", "join"), 1, 0.2, 0.7)
    story.barrier(("join", "sums"), 1, 0.8, 0.9)
    for task in ("payments", "orders", "check", "join", "sums"):
        story.part(task, 1, 0.9, 1, 300)
    assert [sentence.topic for sentence in sentences(story.durable(301, 1))] == ["parts", "blocked", "prediction"]


def test_the_longest_part_is_not_said_to_be_of_itself() -> None:
    story = Story(CHAIN).triggered(0, 1).barrier(("in", "fast"), 1, 1, 4_327).barrier(("fast", "slow"), 1, 4_327, 4_328)
    story.barrier(("slow", "out"), 1, 4_328, 4_329)
    for task, complete in {"in": 1, "fast": 4_327, "slow": 4_328, "out": 4_329}.items():
        story.part(task, 1, complete, 4_329.1, 4_329.2)
    assert texts(story.durable(4_329.5, 1), "parts")[0].startswith(
        "Barriers travelled for nearly all of the 4.33 s until"
    )


def test_a_wait_for_the_writer_is_explained_by_all_parts_or_said_not_to_be() -> None:
    story = one_part(41, 51)
    (part,) = [row for row in story.rows if row["kind"] == "part" and row["task"] == "in[0]"]
    part |= {"time": 12_268, "duration": 268}
    (text,) = texts(story, "parts")
    assert (
        "waited 29.0 ms for the writer, which wrote the part of in[0] for 268 us of that time, and was not writing "
        in text
    )
    story.rows.remove(part)
    story.part("in", 1, 11, 5, 6)
    assert "waited 29.0 ms for the writer, which wrote no other part; it took 10.0 ms" in texts(story, "parts")[0]


def test_a_checkpoint_whose_attempt_crashed_is_no_longer_under_way() -> None:
    story = Story(JOIN).triggered(10, 1).barrier(("orders", "join"), 1, 11, 12).blocked(("orders", "join"), 1, 12, None)
    story.add("ended", "sums[0]", 30).attempt = 2
    story.add("started", "job", 0)
    told = [sentence.text for sentence in sentences(story, 1)]
    assert told[0] == (
        "Checkpoint 1, in mode aligned (exactly once), was abandoned: the attempt ended 20.0 ms after its trigger."
    )
    assert told[2].startswith("orders[0] -> join[0] was blocked for 18.0 ms, until the attempt ended: join[0] had")


def test_a_checkpoint_from_which_a_later_attempt_began_was_durable() -> None:
    story = Story(JOIN).triggered(10, 1)
    story.add("ended", "sums[0]", 30).attempt = 2
    story.add("started", "job", 0).add("restored", "job", 0, 1)
    assert story.events().checkpoints["state"].to_pylist() == ["restored"]
    assert [sentence.text for sentence in sentences(story, 1)] == [
        "Checkpoint 1, in mode aligned (exactly once), was durable, because a later attempt was restored from it; its "
        "own ended 20.0 ms after the trigger, before it recorded this."
    ]


def test_a_task_that_had_ended_did_nothing_meanwhile() -> None:
    story = (
        Story(plan(("in", "out", "hash"))).add("ended", "in[0]", 1).add("ended", "out[0]", 2).triggered(3, 1, "final")
    )
    story.part("in", 1, 3, 4, 5).part("out", 1, 50, 51, 52).durable(53, 1)
    assert texts(story, "cause") == [
        "The last task to be complete: out[0], which had ended, took its snapshot only 47.0 ms after the trigger."
    ]


@pytest.mark.parametrize(
    ("out", "ahead", "did"),
    [(0, 0, "waited for a thread 100%"), (40, 0, "had no room downstream 100%"), (0, 3, "had no room downstream 100%")],
    ids=["free", "emits first", "rows ahead"],
)
def test_a_barrier_needs_no_room_unless_rows_precede_it_or_are_to_be_emitted(out: int, ahead: int, did: str) -> None:
    story = Story(CHAIN).work("fast", 1, full=1).triggered(1, 1).barrier(("in", "fast"), 1, 1, 101, ahead=ahead)
    story.work("fast", 101, full=101, out=out).part("in", 1, 1, 1, 2).part("fast", 1, 101, 102, 103)
    story.barrier(("fast", "slow"), 1, 101, 102).barrier(("slow", "out"), 1, 102, 103)
    story.part("slow", 1, 102, 103, 104).part("out", 1, 103, 104, 105).durable(106, 1)
    assert f"fast[0] {did} of that time" in texts(story, "cause")[0]


@pytest.mark.parametrize(("until", "did"), [(0, "waited for a thread 100%"), (101, "had only blocked inputs 100%")])
def test_a_blocked_input_holds_up_a_barrier_only_in_its_own_channel(until: int, did: str) -> None:
    fan_in = plan(("a", "both", "hash"), ("b", "both", "hash"))
    story = Story(fan_in).work("both", 1, blocked=1).triggered(0, 1).triggered(1, 2).barrier(("a", "both"), 2, 1, 101)
    if until:
        story.blocked(("a", "both"), 1, 0.5, until)
    story.barrier(("b", "both"), 2, 1, 2).work("both", 101, blocked=101).part("a", 2, 1, 1, 2).part("b", 2, 1, 1, 2)
    story.part("both", 2, 101, 102, 103).durable(104, 2)
    assert f"both[0] {did} of that time" in texts(story, "cause", 2)[0]


def test_a_source_needs_no_room_for_its_snapshot() -> None:
    story = Story(CHAIN).work("in", 1, full=1).triggered(1, 1).work("in", 61, full=61).durable(70, 1)
    causes = Causes(facts_of(story.events(), 1))
    did = causes.did(causes.delays("in[0]", 61_000)[0])
    assert did is not None
    assert (did.back_pressured, did.ready) == (0, 1)


def test_a_barrier_that_was_held_past_the_timeout_is_told_what_the_task_did() -> None:
    story = Story(JOIN, "aligned-timeout").triggered(0, 1).work("join", 110, busy=110)
    story.barrier(("orders", "join"), 1, 1, 2).blocked(("orders", "join"), 1, 2, 110, "timeout")
    story.barrier(("payments", "check"), 1, 1, 2).barrier(("check", "join"), 1, 3, 112).barrier(
        ("join", "sums"), 1, 110, 300
    )
    for task, complete in {"orders": 1, "payments": 1, "check": 2, "join": 112, "sums": 300}.items():
        story.part(task, 1, complete, 301, 302)
    (_, text) = texts(story.durable(310, 1), "cause")
    assert text == (
        "Before that, join[0] held it for 108.0 ms, until it saw between two steps that the alignment had timed out; "
        "join[0] was busy 100% of that time."
    )


def test_the_hand_made_join_repeats_nothing() -> None:
    told = [sentence.text for sentence in sentences(skewed_join())]
    assert len(told) == len(set(told))


def test_where_a_failed_checkpoint_stopped_is_told_beside_an_input_that_was_blocked_before() -> None:
    story = Story(JOIN).triggered(0, 1).barrier(("payments", "check"), 1, 1, 2).barrier(("orders", "join"), 1, 1, 2)
    story.blocked(("orders", "join"), 1, 2, 60).barrier(("check", "join"), 1, 3, 60, ahead=9)
    story.barrier(("join", "sums"), 1, 60, None, ahead=40).work("join", 61, busy=61).work("sums", 1_001, busy=1_001)
    for task, complete in {"payments": 1, "orders": 1, "check": 2, "join": 61}.items():
        story.part(task, 1, complete, 62, 63)
    assert texts(story.failed(1_000, 1, "expired"), "cause") == [
        "It was late because it spent 57.0 ms in check[0] -> join[0], behind 9 rows; join[0] was busy 100% of that "
        "time.",
        "Where it stopped: the barrier was still in join[0] -> sums[0], 940.0 ms after it was sent, behind 40 rows; "
        "sums[0] was busy 100% of that time.",
    ]
