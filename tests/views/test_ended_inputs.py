"""Checkpoints after a writer ended: its channel has no barrier, and the reader reads it to its end."""

from __future__ import annotations

from dataflow.views.causes import Causes, DelayPlace
from dataflow.views.find_facts import facts_of
from dataflow.views.timeline.barriers import barrier_words
from tests.views.events_by_hand import Story, plan
from tests.views.test_sentences import CHAIN, sentences, texts

UNEVEN = plan(("short", "join", "hash"), ("long", "join", "hash"), ("join", "out", "hash"))


def uneven(mode: str = "aligned", *, queued: tuple[int, ...] = (1_317, 29)) -> Story:
    """The short source has ended, and 1,317 of its rows are queued; the long one sends its barrier."""
    story = Story(UNEVEN, mode).add("ended", "short[0]", 5).work("join", 9, busy=9).triggered(10, 1)
    return story.work("join", 11, busy=11, queued=queued).part("short", 1, 11, 11, 12).part("long", 1, 11, 11, 12)


def drained(story: Story, *, how: str = "in order") -> Story:
    """The join waits for the end of the short input before its snapshot."""
    story.barrier(("long", "join"), 1, 11, 80, ahead=29, how=how)
    story.blocked(("long", "join"), 1, 80, 1_380, "ended").work("join", 1_400, busy=1_400, queued=(0, 400))
    story.barrier(("join", "out"), 1, 1_381, 1_382).part("join", 1, 1_387, 1_388, 1_389, copy=6)
    return story.part("out", 1, 1_383, 1_384, 1_385).durable(1_410, 1)


def test_an_ended_input_that_others_waited_for_is_named_with_its_rows() -> None:
    told = [sentence.text for sentence in sentences(drained(uneven()))]
    assert told[1:] == [
        "long[0] -> join[0] was blocked for 1.30 s: join[0] had barrier 1 and waited for the end of short[0] -> "
        "join[0], whose writer had ended.",
        "It was late because join[0] took 1.30 s to read short[0] -> join[0] to its end (1,317 rows), as its writer "
        "had ended and sent no barrier; join[0] was busy 100% of that time.",
        "unaligned-persisted (exactly once) would have stored about 1,346 rows and been durable at most 1.38 s sooner, "
        "the time that barriers travelled; it would still have waited for the end of short[0] -> join[0].",
    ]


def test_without_samples_the_ended_input_is_named_all_the_same() -> None:
    story = drained(uneven(queued=()))
    story.rows = [row for row in story.rows if row["kind"] != "work"]
    assert "waited for the end of short[0] -> join[0], whose writer had ended" in texts(story, "blocked")[0]
    assert "join[0] took 1.30 s to read short[0] -> join[0] to its end, as its writer" in texts(story, "cause")[0]
    assert texts(story, "prediction")[0].endswith("rows in channels whose writers had ended are not counted.")


def test_rows_of_an_ended_writer_that_were_stored_did_not_come_before_a_last_barrier() -> None:
    story = uneven("unaligned-persisted", queued=(1_309, 8)).barrier(("long", "join"), 1, 11, 12, ahead=8, overtaken=8)
    story.barrier(("join", "out"), 1, 13, 14).work("join", 2_810, busy=2_810, queued=(0, 0))
    story.part("join", 1, 2_800, 2_801, 2_802, snapshot=13, copy=1, rows=1_317).part("out", 1, 14, 15, 16)
    story.durable(2_815, 1, rows=1_317)
    (cause,) = texts(story, "cause")
    assert cause.startswith(
        "join[0] was complete last, 2.79 s after the trigger, because join[0] took 2.79 s to read short[0] -> join[0] "
        "to its end (1,309 rows)"
    )
    assert texts(story, "stored") == [
        "It stored 1,317 rows in flight (10.5 kB): these, and 1,309 in channels whose writers had ended. A restore "
        "puts them back, each once."
    ]


def test_an_input_that_was_read_to_its_end_long_ago_holds_nothing_up() -> None:
    story = drained(uneven(queued=(0, 29)))
    assert Causes(facts_of(story.events(), 1)).delays("join[0]", 1_387_000)[0].place is DelayPlace.TASK


def test_an_alignment_that_timed_out_names_the_ended_input() -> None:
    story = uneven("aligned-timeout").barrier(("long", "join"), 1, 11, 20).barrier(("join", "out"), 1, 71, 72)
    story.blocked(("long", "join"), 1, 20, 70, "timeout").work("join", 900, busy=900, queued=(0, 0))
    story.part("join", 1, 800, 801, 802, snapshot=71, rows=1_300).part("out", 1, 72, 73, 74)
    (text,) = texts(story.durable(810, 1, rows=1_300), "blocked")
    assert text == (
        "long[0] -> join[0] was blocked for 50.0 ms, until the timeout: join[0] had barrier 1 and waited for the end "
        "of short[0] -> join[0], whose writer had ended; then barriers were allowed to overtake rows."
    )


def test_a_checkpoint_that_started_at_a_gate_after_the_timeout_overtook_and_stored_rows() -> None:
    story = Story(CHAIN, "aligned-timeout").add("ended", "in[0]", 5).triggered(10, 1)
    story.barrier(("in", "fast"), 1, None, 62, overtaken=280, how="started here").part("in", 1, 11, 11, 12)
    story.barrier(("fast", "slow"), 1, 62, 63).barrier(("slow", "out"), 1, 63, 64).part("fast", 1, 63, 63, 64, rows=280)
    story.part("slow", 1, 63, 63, 64).part("out", 1, 64, 65, 66).durable(67, 1, rows=280)
    told = {sentence.topic: sentence.text for sentence in sentences(story)}
    assert "52.0 ms after the trigger, when its alignment had timed out" in told["cause"]
    assert told["overtaken"] == "Barriers overtook 280 rows in in[0] -> fast[0]."
    assert told["stored"].startswith("It stored 280 rows in flight (2.2 kB): the ones that barriers overtook.")
    assert "prediction" not in told
    (barrier, *_) = facts_of(story.events(), 1).barriers
    assert barrier.overtakes
    assert barrier_words(barrier, 1, 0) == "all writers had ended: the checkpoint was started here, ahead of 280 rows"


def test_rows_queued_behind_ended_writers_alone_are_predicted() -> None:
    both = plan(("a", "join", "hash"), ("b", "join", "hash"), ("join", "out", "forward"))
    story = Story(both).add("ended", "a[0]", 1).add("ended", "b[0]", 2).triggered(10, 1)
    story.work("join", 13, queued=(760, 855), busy=3).part("a", 1, 11, 11, 12).part("b", 1, 11, 11, 12)
    story.part("join", 1, 1_700, 1_701, 1_702).barrier(("join", "out"), 1, 1_701, 1_702, ahead=2)
    story.work("join", 1_750, busy=1_740, queued=(0, 0)).part("out", 1, 1_703, 1_704, 1_705).durable(1_800, 1)
    assert texts(story, "prediction") == [
        "unaligned-persisted (exactly once) would have stored about 1,615 rows and been durable at most 1.69 s sooner, "
        "the time that barriers travelled; it would still have waited for 2 rows in channels that keep their order."
    ]
    assert (
        "because join[0], which still had 1,615 rows to read of tasks that had ended, took" in texts(story, "cause")[0]
    )
