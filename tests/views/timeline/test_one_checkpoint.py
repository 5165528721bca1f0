"""The picture of one checkpoint says who was blocked, by whose barrier, and where that was held up."""

from __future__ import annotations

import pytest

from dataflow.errors import ConfigurationError, EventsError
from dataflow.events.plan_shape import PlanShape, VertexShape
from tests.seeds import each_once_with_seeds
from tests.views.events_by_hand import Story
from tests.views.timeline.drawn import legend, texts, titles, wrong
from tests.views.timeline.runs import simulated
from tests.views.timeline.stories import failed, join_plan, on_spark, skewed_join

MODES = ("aligned", "unaligned", "unaligned-persisted", "aligned-timeout")


def test_a_picture_says_which_input_waited_for_whom_and_why_that_was_late():
    timeline = skewed_join().events().timeline()
    assert timeline.title == "Checkpoint 2 of 'orders-payments'"
    assert {
        "checkpoint 2", "barriers travel 397.0 ms", "durable after 506.0 ms, committed after 512.0 ms",
        "blocked 340.0 ms, waits for check[0]", "barrier 2: 325.4 ms in the queue, behind 678 rows", "busy 100%",
        "from payments[0]", "trigger", "500 ms",
    } <= set(texts(timeline))  # fmt: skip


def test_only_the_culprit_is_bold():
    svg = skewed_join().events().timeline().svg()
    assert [line for line in svg.splitlines() if "%</tspan>" in line and "strong" in line] == [
        line for line in svg.splitlines() if ">busy 100%</tspan>" in line
    ]


def test_blocks_are_in_the_order_of_the_graph():
    shown = texts(skewed_join().events().timeline())
    tasks = [name for name in shown if name in join_plan().tasks]
    assert tasks == ["orders[0]", "payments[0]", "check[0]", "join[0]", "join[1]", "per-id[0]", "per-id[1]"]


def test_a_share_is_never_above_100_percent():
    story = skewed_join().work("per-id", 1_000, busy=0).work("per-id", 2_500, busy=5_000)
    assert "busy 100%" in texts(story.events().timeline())


def test_a_failed_checkpoint_shows_where_it_stopped():
    timeline = failed().events().timeline()
    shown = texts(timeline)
    assert {
        "failed after 500.0 ms", "barrier 3 has not arrived after 499.0 ms, behind 678 rows",
        "blocked 498.0 ms, until the checkpoint was aborted",
    } <= set(shown)  # fmt: skip
    assert shown.count("no snapshot") == 5
    assert any("timed out after 500 ms" in sentence for sentence in timeline.sentences)


def test_a_declined_checkpoint_says_which_task_declined_it():
    story = failed().add("declined", "join[1]", 590, 3, detail="out of memory")
    assert "declined: out of memory" in texts(story.events().timeline())


def test_what_is_not_measured_on_spark_is_never_drawn_as_nothing():
    timeline = on_spark().events().timeline()
    shown = texts(timeline)
    assert shown.count("not measured on Spark") == len(join_plan().tasks) - 1
    assert "micro-batch 1.50 s" in shown
    assert [text for text in shown if "%" in text or text.startswith(("from ", "blocked"))] == ["busy 40%"]


def test_a_checkpoint_whose_events_are_missing_says_so_and_is_one_bar():
    story = Story(join_plan(), missed=1_234).triggered(0, 1).durable(80, 1)
    timeline = story.events().timeline()
    assert {"parts not known 80.0 ms", "not sampled"} <= set(texts(timeline))
    assert any("1,234 events were dropped" in sentence for sentence in timeline.sentences)


def test_a_checkpoint_under_way_is_drawn_until_its_last_event():
    story = Story(join_plan()).triggered(0, 1).barrier(("orders", "join"), 1, 1, 2)
    story.blocked(("orders", "join"), 1, 2, None).add("state", "job", 60, detail="running")
    shown = texts(story.events().timeline())
    assert any("not durable yet" in text for text in shown)
    assert "blocked 58.0 ms, still waits" in shown


def test_a_checkpoint_of_no_time_and_one_task_is_drawn():
    plan = PlanShape("local", vertices=(VertexShape("only", 1, ("only",)),))
    story = Story(plan).triggered(5, 1).part("only", 1, 5, 5, 5).durable(5, 1)
    timeline = story.events().timeline()
    assert wrong(timeline) == []
    assert "only[0]" in texts(timeline)


def test_an_overtaking_barrier_says_what_it_overtook():
    story = skewed_join()
    ends = ("payments[0]", "check[0]")
    story.triggered(3_000, 3).barrier(ends, 3, 3_001, 3_020, ahead=600, overtaken=600)
    story.part("check", 3, 3_020, 3_021, 3_030, rows=677).durable(3_040, 3)
    timeline = story.events().timeline(3)
    assert {"overtook 600 rows", "677 rows in flight stored"} <= set(texts(timeline))
    assert "overtaken" in legend(timeline)


def test_rows_that_a_restore_repeats_are_said_for_each_operator():
    story = skewed_join().add("repeats", "join[0]", 2_330, 2, operator="join", rows=1_203)
    assert "a restore repeats 1,203 rows at join" in texts(story.events().timeline())


def test_the_axis_ends_with_the_checkpoint_if_the_commit_comes_much_later():
    story = skewed_join()
    story.rows = [row for row in story.rows if row["kind"] != "committed"]
    story.add("committed", "job", 90_000, 3)
    shown = texts(story.events().timeline())
    assert "durable after 506.0 ms, committed after 1.5 min" in " ".join(shown)
    assert "500 ms" in shown


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(60, MODES, default=2))
def test_pictures_of_runs_are_whole(seed, mode):
    events = simulated(mode, seed)
    last = events.checkpoints["checkpoint"].to_pylist()[-1]
    assert [wrong(events.timeline(checkpoint)) for checkpoint in (None, last, "all")] == [[], [], []]


@pytest.mark.parametrize("name", ["<img src=x onerror=alert(1)>", "n" * 300, "ümläut 列名 \u202e\n\x00", "&amp;]]>-->"])
def test_any_name_is_text_and_has_room(name):
    names = [f"{name}{number}" for number in range(5)]
    timeline = skewed_join(names).events().timeline()
    assert wrong(timeline) == []
    assert f"{name[:3]}" not in timeline.html() or "<img" not in timeline.html()
    assert "onerror=alert(1)>[" not in timeline.svg() + timeline.html()


@pytest.mark.parametrize("scale", [1e-4, 0.01, 1.0, 50.0, 10_000.0, 1_000_000.0])
def test_any_length_of_time_has_room(scale):
    events = skewed_join(scale=scale).events()
    assert wrong(events.timeline()) == []
    assert wrong(events.timeline("all")) == []


def test_a_checkpoint_that_is_not_there_is_refused():
    with pytest.raises(EventsError, match=r"checkpoint 9 is not in the events, which have 2"):
        skewed_join().events().timeline(9)


@pytest.mark.parametrize("checkpoint", ["2", "ALL", 2.0, True, b"all"])
def test_what_is_no_checkpoint_is_refused(checkpoint):
    with pytest.raises(ConfigurationError, match='checkpoint must be an id, "all" or None, got'):
        skewed_join().events().timeline(checkpoint)


def test_titles_have_what_pictures_cut():
    name = "n" * 300
    assert any(title and f"{name}0[0]" in title for title in titles(skewed_join([f"{name}{i}" for i in range(5)])
                                                                  .events().timeline()))  # fmt: skip


def test_a_timeline_is_text_a_picture_and_html(tmp_path):
    timeline = skewed_join().events().timeline()
    timeline.save(tmp_path / "one.svg")
    timeline.save(tmp_path / "one.html")
    assert (tmp_path / "one.svg").read_text() == timeline.svg()
    assert (tmp_path / "one.html").read_text() == timeline.html()
    assert str(timeline).splitlines() == [timeline.title, *timeline.sentences]
    with pytest.raises(ConfigurationError, match=r"must end in \.svg or \.html"):
        timeline.save(tmp_path / "one.png")
