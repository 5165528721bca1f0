"""Shapes with triggers: of panes only what is settled is shown, the last ones, their sums, and the net."""

from __future__ import annotations

from typing import Any

import dataflow as flow
import operators as op
from dataflow import col
from tests.agreement.shapes.scene import Scene, Shape
from tests.agreement.shapes.timed import timed

__all__ = ["TRIGGERED"]

AGGREGATES: dict[str, Any] = {
    "n": op.count(),
    "s": col("value").sum(),
    "last": col("row").last("row"),
    "kinds": col("value").count_distinct(),
}
TRIGGERS: dict[str, Any] = {
    "rows": {"early": op.after_rows(3)},
    "clock": {"early": op.after_time("2ms"), "late": op.after_rows(2)},
    "times": {"early": op.at_times("1s"), "late": op.after_time("1ms")},
    "late": {"late": op.at_times("2s")},
}
OF_USER = ("user", "window_start", "window_end")


def without_panes(stream: flow.Stream) -> flow.Stream:
    """The results without the columns that say which pane they are."""
    return stream.select(*[name for name in stream.schema.names if name not in ("pane", "pane_index")])


def accumulating(scene: Scene) -> None:
    """The last pane of each window."""
    rows = timed(scene, "1s", splits=2)
    for label, triggers in TRIGGERS.items():
        windows = rows.key_by("user").window(op.tumbling("3s"), lateness="60s", **triggers)
        scene.show(without_panes(windows.agg(AGGREGATES, name=f"panes by {label}")), label, last=OF_USER)
    hopping = rows.window(op.hopping("6s", every="2s"), lateness="60s", early=op.after_rows(4))
    scene.show(without_panes(hopping.agg(AGGREGATES)), "all rows", last=OF_USER[1:])


def discarding(scene: Scene) -> None:
    """The sums of the panes of each window."""
    rows = timed(scene, "1s", splits=2)
    for label, triggers in TRIGGERS.items():
        windows = rows.key_by("user").window(
            op.hopping("4s", every="2s"), lateness="60s", panes="discarding", **triggers
        )
        panes = windows.agg(AGGREGATES, name=f"new by {label}")
        sums = {"n": col("n").sum(), "s": col("s").sum(), "last": col("last").max()}
        scene.show(panes.key_by(*OF_USER).agg(sums, emit="final", name=f"sums by {label}"), label)


def signed(scene: Scene) -> None:
    """The net of signed changes."""
    rows = timed(scene, "1s", splits=2)
    for label, triggers in TRIGGERS.items():
        windows = rows.key_by("user").window(op.tumbling("3s"), lateness="60s", **triggers)
        scene.show(windows.agg(AGGREGATES, emit="changes", name=f"signed by {label}"), label)


def untimed(scene: Scene) -> None:
    """The one window of all rows, and windows of rows by arrival, of which the number is settled."""
    rows = timed(scene, "1s", splits=2)
    by_user = rows.key_by("user")
    scene.show(by_user.window(op.global_window()).agg(n=op.count(), s=col("value").sum(), name="global"), "global")
    early = by_user.window(op.global_window(), early=op.after_rows(5))
    scene.show(without_panes(early.agg(AGGREGATES, name="early")), "early", last=("user", "window_index"))
    scene.show(early.agg(AGGREGATES, emit="changes", name="global changes"), "changes")
    clock = rows.window(op.global_window(), early=op.after_time("1ms"), panes="discarding").agg(n=op.count())
    scene.show(clock.with_columns(all=col("n") * 0).key_by("all").agg(n=col("n").sum(), emit="final"), "clock")
    scene.show(by_user.window(op.count_window(7)).agg(n=op.count(), name="sevens"), "counts")
    one = timed(scene, "1s").key_by("user")
    scene.show(one.window(op.count_window(7, every=3)).agg(n=op.count(), name="sliding"), "sliding")


TRIGGERED: list[Shape] = [accumulating, discarding, signed, untimed]
