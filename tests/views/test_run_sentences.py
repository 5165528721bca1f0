"""Sentences on a whole run, from events that are written by hand."""

from __future__ import annotations

from dataclasses import replace

from dataflow.views.run_sentences import run_sentences
from tests.views.events_by_hand import JOIN, Story, plan


def texts(story: Story) -> list[str]:
    return [sentence.text for sentence in run_sentences(story.events())]


def test_a_run_has_its_checkpoints_its_slowest_one_and_the_channel_blocked_longest() -> None:
    story = (
        Story(JOIN, missed=1_203).triggered(0, 1).durable(20, 1).triggered(30, 2).barrier(("check", "join"), 2, 31, 50)
    )
    story.blocked(("orders", "join"), 2, 32, 50).durable(80, 2).triggered(90, 3)
    story.blocked(("orders", "join"), 3, 91, 95, "aborted").failed(95, 3, "expired")
    story.attempt = 2
    assert texts(story.add("started", "job", 0)) == [
        "2 checkpoints were durable, in mode aligned (exactly once); 1 failed; the slowest, checkpoint 2, took 50.0 "
        "ms.",
        "orders[0] -> join[0] was blocked longest: for 22.0 ms in all, 18.0 ms of it in checkpoint 2, where it waited "
        "for the barrier of check[0] -> join[0].",
        "The job was started 2 times.",
        "1,203 events of the run are missing.",
    ]


def test_a_run_without_checkpoints_or_on_spark_says_so() -> None:
    spark = Story(plan(("in", "out", "hash"), engine="spark")).triggered(0, 1).durable(20, 1)
    assert texts(spark) == [
        "1 checkpoint was durable, in mode aligned (exactly once); the slowest, checkpoint 1, took 20.0 ms.",
        "Barriers and blocked inputs are not measured on Spark.",
    ]
    story = Story(JOIN)
    story.recorded = replace(story.recorded, mode="")
    assert texts(story) == ["The job took no checkpoints."]
