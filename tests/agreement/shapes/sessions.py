"""Shapes with sessions: final and signed results, over keys and over all rows, split ones, and windows behind them."""

from __future__ import annotations

from typing import Any

import operators as op
from dataflow import col
from tests.agreement.shapes.scene import Scene, Shape
from tests.agreement.shapes.timed import TIMES, clicks, timed

__all__ = ["SESSIONS"]

AGGREGATES: dict[str, Any] = {
    "n": op.count(),
    "s": col("value").sum(),
    "least": col("value").min(),
    "first": col("row").first("row"),
    "last": col("row").last("row"),
}
KEPT: dict[str, Any] = {
    "values": col("value").count_distinct(),
    "list": col("row").to_list(),
    "middle": col("value").quantile(0.5, where=col("row") % 3 != 0),
    "most": col("user").max(),
}
"""Aggregates whose records cannot be merged."""


def sessions(scene: Scene) -> None:
    """Sessions of times of two units, nobody late."""
    table = clicks(rows=scene.clicks)
    gaps = {TIMES[0]: "2s", TIMES[2]: "1500ms"}
    for type_ in gaps:
        table = table.append_column(str(type_), clicks(rows=scene.clicks, type_=type_)["ts"])
    source = scene.read(op.from_arrow(table, batch_rows=40, splits=2))
    for type_, gap in gaps.items():
        rows = source.with_watermark(str(type_), delay="60s")
        scene.show(rows.key_by("user").window(op.session(gap)).agg(AGGREGATES), str(type_))


def unmerged(scene: Scene) -> None:
    """Aggregates that keep the rows of open sessions."""
    cut = timed(scene, splits=2, delay="60s").key_by("user").window(op.session("1s"))
    scene.show(cut.agg(AGGREGATES, **KEPT))


def changes(scene: Scene) -> None:
    """Sessions that are taken back when rows merge with them; nobody is late."""
    cut = timed(scene, "0s", splits=2).key_by("user").window(op.session("1s"), lateness="60s")
    scene.show(cut.agg(AGGREGATES, emit="changes"), "merged")
    scene.show(cut.agg(KEPT, n=op.count(), emit="changes"), "kept")
    by_size = cut.agg(n=op.count(), emit="changes").key_by("n").agg(sessions=op.count(), emit="changes")
    scene.show(by_size, "by size")


def once(scene: Scene) -> None:
    """Sessions that wait for late rows, and windows behind them, in which nothing is late."""
    cut = timed(scene, "0s", splits=2).key_by("user").window(op.session("1s"), lateness="60s")
    found = cut.agg(AGGREGATES, emit="final", name="patient")
    scene.show(found)
    scene.show(found.key_by("n").window(op.tumbling("7s")).agg(s=op.count()), "behind")
    scene.show(found.window(op.same_window()).agg(users=op.count()), "same")


def panes(scene: Scene) -> None:
    """Sums of the panes of sessions. How rows fall into panes is not settled, and of what is shown the sums are."""
    rows = timed(scene, "0s", splits=2)
    triggers: dict[str, dict[str, Any]] = {
        "rows": {"early": op.after_rows(2)},
        "clock": {"early": op.after_time("2ms"), "late": op.after_rows(2)},
        "times": {"early": op.at_times("1s"), "late": op.after_time("1ms")},
    }
    for label, each in triggers.items():
        cut = rows.key_by("user").window(op.session("1s"), lateness="60s", panes="discarding", **each)
        sums = {"n": col("n").sum(), "s": col("s").sum(), "last": col("last").max(), "end": col("window_end").max()}
        found = cut.agg(AGGREGATES, name=f"panes by {label}")
        scene.show(found.key_by("user").agg(sums, emit="final", name=f"sums by {label}"), label)
    kept = rows.key_by("user").window(op.session("1s"), lateness="60s", panes="discarding", early=op.after_rows(3))
    values = kept.agg(values=col("row").to_list(), n=op.count(), name="lists").key_by("user")
    scene.show(values.agg(n=col("n").sum(), emit="final", name="sums of lists"), "lists")


def late(scene: Scene) -> None:
    """Late rows, and sessions that are split or taken back."""
    cut = timed(scene, "1s").key_by("user")
    split = cut.window(op.session("1s")).agg(AGGREGATES, name="split")
    scene.show(split, "split", late=True)
    scene.show(split.side("late"), "late", late=True)
    again = cut.window(op.session("1s"), lateness="2s").agg(AGGREGATES, emit="changes", name="again")
    scene.show(again, "again", late=True)


def all_rows(scene: Scene) -> None:
    """Sessions without keys, also over no rows."""
    rows = timed(scene, splits=2, delay="60s")
    busy = rows.filter(col("value") == 3)
    scene.show(busy.window(op.session("1s")).agg(AGGREGATES), "all")
    scene.show(rows.filter(col("row") < 0).window(op.session("1s")).agg(n=op.count()), "none")


SESSIONS: list[Shape] = [sessions, unmerged, changes, once, panes, late, all_rows]
