"""Large jobs fold: subtasks share lanes, inputs share lanes, and the rest is opened in HTML without script."""

from __future__ import annotations

import re
from functools import cache

from dataflow.views.checkpoint_facts import WorkSpan
from dataflow.views.timeline.lanes import Interest, TaskLane, choose_lanes
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, LanePlace, Sheet
from dataflow.views.timeline.strips import draw_strip
from tests.views.events_by_hand import plan
from tests.views.timeline.drawn import texts, titles, wrong
from tests.views.timeline.stories import chain_of_all_to_all, chain_plan, join_plan


@cache
def large():
    """Return the timeline of 12 operators at parallelism 8, which are joined all to all."""
    return chain_of_all_to_all(operators=12, samples=12).events().timeline()


def labels(shape, **interest):
    return [block.lane.words + block.lane.suffix for block in choose_lanes(shape, Interest(**interest)).blocks]


def test_a_small_job_has_all_lanes():
    lanes = choose_lanes(join_plan(), Interest())
    assert not lanes.is_folded
    inputs = sum(len(block.lane.inputs) for block in lanes.blocks)
    assert (len(lanes.blocks), inputs) == (len(join_plan().tasks), len(join_plan().channels))


def test_subtasks_of_a_large_job_share_a_lane_that_shows_the_slowest():
    plan = chain_plan(3, 8)
    lanes = choose_lanes(plan, Interest(slowness={"operator-1[5]": 9}))
    assert [block.lane.words + block.lane.suffix for block in lanes.blocks] == [
        f"operator-{n}, 8 tasks" for n in range(3)
    ]
    assert lanes.blocks[1].lane.shown == "operator-1[5]"


def test_the_chain_of_causes_and_what_was_blocked_longest_are_open():
    blocked = {"operator-1[0] -> operator-2[6]": 50, "operator-1[0] -> operator-2[1]": 2}
    assert labels(chain_plan(3, 8), causes={"operator-1[3]"}, blocked=blocked, least=10) == [
        "operator-0, 8 tasks", "operator-1[3]", "operator-1, 7 others", "operator-2[6]", "operator-2, 7 others",
    ]  # fmt: skip


def test_inputs_of_an_open_task_share_a_lane_but_for_the_cause_and_the_longest_blocked():
    cause, longest = "operator-0[3] -> operator-1[2]", "operator-0[5] -> operator-1[2]"
    interest = Interest(causes={"operator-1[2]", cause}, blocked={longest: 9})
    task = next(
        block.lane for block in choose_lanes(chain_plan(2, 8), interest).blocks if block.lane.shown[-3:] == "[2]"
    )
    assert [lane.words + lane.suffix for lane in task.inputs] == [
        "from operator-0[3]", "from operator-0[5]", "from operator-0, 6 inputs"
    ]  # fmt: skip


def test_of_the_barriers_between_two_lanes_the_slowest_is_drawn():
    svg = large().svg()
    assert len(re.findall(r'<line class="barrier', svg)) < 200
    drawn = [title for title in titles(large()) if title.endswith("; the slowest of 64")]
    assert drawn[0].partition(":")[0] == "operator-0[3] -> operator-1[7]"


def test_the_picture_of_a_large_job_says_where_barriers_were_held_up():
    shown = texts(large())
    assert wrong(large()) == []
    assert {"operator-5[3]", "operator-0, 8 tasks"} <= set(shown)
    assert any("in the queue, behind 40 rows" in text for text in shown)


def test_folded_subtasks_open_without_script():
    page = large().html()
    assert page.count("<details><summary>operator-") == 12
    assert "operator-5, 8 subtasks: complete 15.1 ms to 15.4 ms after the trigger" in page
    assert "<script" not in page
    assert page.count("<style>") == 2, "pictures of folded subtasks have a style sheet of their own"


def test_a_page_of_100_operators_at_parallelism_8_is_small():
    timeline = chain_of_all_to_all(samples=4).events().timeline()
    page = timeline.html()
    assert page.count("<details") == 100
    assert len(page) < 2_000_000
    assert page.count("<line") + page.count("<rect") + page.count("<text") + page.count("<path") < 12_000


def test_a_strip_of_many_samples_is_drawn_in_few_columns():
    spans = [WorkSpan(n, n + 1, n % 2, 0, 0, 1 - n % 2, 0, 0) for n in range(20_000)]
    sheet = Sheet("strip")
    draw_strip(
        sheet, LanePlace(TaskLane("a[0]", ("a[0]",), "a", "[0]"), 20, []), spans, Scale(0, 20_000, 0, CHART), 33.0
    )
    assert len(sheet.canvas.svg()) < 8_000


def test_labels_of_subtasks_differ_whatever_the_length_of_their_names():
    long = plan(("orders-of-the-web-shop", "totals-of-the-customers", "hash"), parallelism=2)
    sheet = Sheet("long names")
    sheet.place_lanes(choose_lanes(long, Interest()))
    labels = [words for _, words in sheet.canvas.texts]
    assert len(set(labels)) == 6  # four tasks, and the inputs from two
    assert all(label.endswith(("[0]", "[1]")) for label in labels)
