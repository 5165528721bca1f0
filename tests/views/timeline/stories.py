"""Checkpoints told by hand, for pictures that no run gives at will."""

from __future__ import annotations

from itertools import pairwise

from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape
from tests.views.events_by_hand import Story

__all__ = ["chain_of_all_to_all", "chain_plan", "failed", "join_plan", "on_spark", "skewed_join", "three_attempts"]

NAMES = ("orders", "payments", "check", "join", "per-id")


def join_plan(names=NAMES, engine="local"):
    """Return a plan in which two sources meet in a join, the second by a slow step."""
    orders, payments, check, join, per_id = names
    vertices = [VertexShape(name, 2 if name in (join, per_id) else 1, (name,)) for name in names]
    links = [
        LinkShape(payments, check, payments, "forward"),
        LinkShape(orders, join, orders, "hash", 0, keys=("id",)),
        LinkShape(check, join, check, "hash", 1, keys=("id",)),
        LinkShape(join, per_id, join, "hash", keys=("id",)),
    ]
    return PlanShape(engine, (), tuple(vertices), tuple(links))


def skewed_join(names=NAMES, scale=1.0, start=2_000.0):
    """Return the story of an aligned checkpoint of a join, the second input of which passes a slow step."""
    plan = join_plan(names)
    orders, payments, check, join, per_id = [f"{name}[0]" for name in names]
    join_1, per_id_1 = f"{names[3]}[1]", f"{names[4]}[1]"
    ready = {orders: 0.5, payments: 0.6, check: 326, join: 337, join_1: 342, per_id: 356, per_id_1: 397}

    def at(ms):
        return start + ms * scale

    story = Story(plan).triggered(at(0), 2)
    for channel in plan.channels:
        sent, ends = ready[channel.source], (channel.source, channel.target)
        slow = channel.target == check or channel.source == check or ends == (join_1, per_id_1)
        arrived = ready[channel.target] if slow else sent + 1.5
        story.barrier(ends, 2, at(sent), at(arrived), ahead=678 if channel.target == check else 0)
    for task in (join, join_1):
        story.blocked((orders, task), 2, at(2), at(ready[task]))
    story.blocked((join, per_id_1), 2, at(338.5), at(397))
    for task, time in ready.items():
        story.part(task, 2, at(time), at(time + 5), at(time + 55), copy=0.08 * scale, bytes=12_345)
    _add_work(story, names, at, scale)
    return story.durable(at(506), 2, bytes=120_000).add("committed", "job", at(512), 2)


def _add_work(story, names, at, scale):
    rates = {"orders": (0.2, 0.1, 0.0, 0.7), "payments": (0.1, 0.0, 0.0, 0.9), "check": (1.0, 0.0, 0.0, 0.0),
             "join": (0.3, 0.1, 0.6, 0.0), "per-id": (0.1, 0.9, 0.0, 0.0)}  # fmt: skip
    for name, kind in zip(names, NAMES, strict=True):
        busy, waiting, blocked, full = rates[kind]
        base = at(-60)
        for step in range(60):
            time = at(-60 + 10 * step)
            past = 10 * step * scale
            totals = {"busy": busy * past, "waiting": waiting * past, "blocked": blocked * past, "full": full * past}
            story.work(name, time, **totals, rows=step * 100)
        assert base < time


def chain_plan(operators, parallelism):
    """Return the plan of a long job, in which each link connects all subtasks with all."""
    names = [f"operator-{number}" for number in range(operators)]
    vertices = [VertexShape(name, parallelism, (name,)) for name in names]
    links = [LinkShape(a, b, a, "hash", keys=("k",)) for a, b in pairwise(names)]
    return PlanShape("local", (), tuple(vertices), tuple(links))


def chain_of_all_to_all(operators=100, parallelism=8, samples=40):
    """Return the story of a checkpoint of such a job, in the middle of which barriers are held up for 200 ms."""
    plan = chain_plan(operators, parallelism)
    position = {task: index for index, task in enumerate(plan.tasks)}

    def ready(task):
        vertex, subtask = divmod(position[task], parallelism)
        return 2_000 + vertex * 3 + subtask * 0.04 + (200 if vertex >= operators // 2 else 0)

    story = Story(plan).triggered(1_999.9, 2)
    for channel in plan.channels:
        is_last = channel.source.endswith("[3]")
        sent = ready(channel.source)
        arrived = ready(channel.target) if is_last else sent + 0.2
        story.barrier((channel.source, channel.target), 2, sent, arrived, ahead=40 if is_last else 0)
        if arrived < ready(channel.target):
            story.blocked((channel.source, channel.target), 2, arrived, ready(channel.target))
    for task in plan.tasks:
        story.part(task, 2, ready(task), ready(task), ready(task) + 9, copy=0.05, bytes=10_000)
        for sample in range(samples):
            time, past = 1_950 + sample * 700 / samples, sample * 700 / samples
            shares = [0.1 + 0.1 * (sample % 7), 0.2, 0.3 * (sample % 3 == 0), 0.1 * (sample % 5)]
            totals = [sample, sample, *[round(past * share * 1_000) for share in shares], 0]
            story.add("work", task, time, totals=totals)
    return story.durable(max(map(ready, plan.tasks)) + 12, 2)


def failed(reason="checkpoint 3: timed out after 500 ms"):
    """Return the story of a checkpoint that failed, because a barrier was stuck in a queue."""
    story = Story(join_plan()).triggered(100, 3)
    story.barrier(("orders[0]", "join[0]"), 3, 101, 102).barrier(("orders[0]", "join[1]"), 3, 101, 102)
    story.barrier(("payments[0]", "check[0]"), 3, 101, None, ahead=678)
    story.blocked(("orders[0]", "join[0]"), 3, 102, 600, "aborted")
    story.blocked(("orders[0]", "join[1]"), 3, 102, 600, "aborted")
    story.part("orders", 3, 101, 102, 110).part("payments", 3, 101, 102, 112)
    story.work("check", 90, busy=90).work("check", 600, busy=600)
    return story.failed(600, 3, reason)


def on_spark():
    """Return the story of two micro-batches, with the work of a task, and of one whose busy time is not measured."""
    story = Story(join_plan(engine="spark")).triggered(0, 1).durable(900, 1, bytes=None)
    for time, busy in ((1_000, 0), (2_500, 600_000)):
        story.add("work", "check[0]", time, totals=[busy, 0, busy, None, None, None])
        story.add("work", "join[0]", time, totals=[busy, 0, None, None, None, None])
    return story.triggered(1_000, 2).durable(2_500, 2, bytes=None)


def three_attempts():
    """Return the story of a job that crashed, began again after an hour, failed, and began again."""
    start, hour = 1_700_000_000_000_000, 3_600_000_000
    story = skewed_join(start=500)
    story.rows[0]["value"] = start
    story.triggered(2_600, 3).barrier(("orders[0]", "join[0]"), 3, 2_600.5, 2_601)
    story.blocked(("orders[0]", "join[0]"), 3, 2_601, None).work("orders", 3_000, busy=1_000, rows=9_000)
    story.attempt = 2
    story.add("started", "job", 0, 2, value=start + hour).add("restored", "job", 1, 2, rows=5).triggered(800, 4)
    story.durable(860, 4).work("orders", 1_200, busy=800, rows=9_000)
    story.add("error", "join[1]", 1_300, operator="join", detail="ValueError")
    story.add("state", "job", 1_300, detail="failed")
    story.attempt = 3
    story.add("started", "job", 0, 4, value=start + hour + 2_000_000).triggered(700, 5).durable(760, 5)
    return story.work("orders", 1_200, busy=300, rows=8_000).add("state", "job", 1_250, detail="finished")
