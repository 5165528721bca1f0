"""Shapes with windows of every kind: over keys and over all rows, behind each other, with late and partly late rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import dataflow as flow
import operators as op
from dataflow import col
from tests.agreement.shapes.scene import Scene, Shape
from tests.agreement.shapes.timed import TIMES, clicks, timed

__all__ = ["WINDOWED"]

EDGES = ("window_start", "window_end")
OF_USER = ("user", *EDGES)
AGGREGATES: dict[str, Any] = {
    "n": op.count(),
    "s": col("value").sum(),
    "least": col("value").min(),
    "first": col("row").first("row"),
    "last": col("row").last("row"),
}


@dataclass(frozen=True)
class EachAndAll(flow.Window):
    """A kind of a user's: every row is in a window of three seconds, and in one of twelve."""

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        seconds = np.repeat(times // 1_000_000, 2)
        sizes = np.tile([3, 12], len(times))
        starts = seconds // sizes * sizes
        return flow.Assigned(starts * 1_000_000, (starts + sizes) * 1_000_000, np.repeat(np.arange(len(times)), 2))


def hopping(scene: Scene) -> None:
    """Windows that overlap, over times of two units, nobody late."""
    table = clicks(rows=scene.clicks)
    hops = {TIMES[0]: "3s", TIMES[2]: "1500ms"}
    for type_ in hops:
        table = table.append_column(str(type_), clicks(rows=scene.clicks, type_=type_)["ts"])
    source = scene.read(op.from_arrow(table, batch_rows=40, splits=2))
    for type_, every in hops.items():
        rows = source.with_watermark(str(type_), delay="60s")
        cut = rows.key_by("user").window(op.hopping("10s", every=every, offset="1s"))
        scene.show(cut.agg(AGGREGATES), str(type_))


def unmerged(scene: Scene) -> None:
    """Aggregates whose records cannot be merged: rows are folded into each window."""
    cut = timed(scene, splits=2, delay="60s").key_by("user").window(op.hopping("4s", every="1s"))
    scene.show(cut.agg(AGGREGATES, values=col("value").count_distinct()))


def cumulate(scene: Scene) -> None:
    """Windows that grow."""
    cut = timed(scene, splits=2, delay="60s").key_by("user").window(op.cumulate("12s", every="3s", offset="5s"))
    scene.show(cut.agg(AGGREGATES))


def partly_late(scene: Scene) -> None:
    """Rows that some windows still take."""
    for label, window in {"hop": op.hopping("6s", every="2s"), "grow": op.cumulate("6s", every="1s")}.items():
        found = timed(scene, "1s").key_by("user").window(window).agg(AGGREGATES, name=f"partly late {label}")
        scene.show(found, label, late=True)
        scene.show(found.side("late"), f"late {label}", late=True)


def allowed(scene: Scene) -> None:
    """Lateness: results again, or once."""
    cut = timed(scene, "1s").key_by("user").window(op.hopping("6s", every="2s"), lateness="3s")
    scene.show(cut.agg(AGGREGATES, name="hops again"), last=OF_USER, late=True)
    scene.show(cut.agg(AGGREGATES, emit="final", name="hops once"), "once", late=True)
    patient = timed(scene, "1s", splits=2).key_by("user").window(op.hopping("6s", every="2s"), lateness="60s")
    scene.show(patient.agg(AGGREGATES), "patient", last=OF_USER)


def signed(scene: Scene) -> None:
    """Signed changes of windows whose rows come late, but are taken; and what is computed from them."""
    rows = timed(scene, "1s", splits=2)
    for label, window in {
        "hop": op.hopping("6s", every="2s"),
        "tumble": op.tumbling("3s"),
        "own": EachAndAll(),
    }.items():
        found = (
            rows.key_by("user").window(window, lateness="60s").agg(AGGREGATES, emit="changes", name=f"signed {label}")
        )
        scene.show(found, label)
        if label == "hop":
            kinds = {"users": op.count(), "most": col("n").max(), "kinds": col("least").count_distinct()}
            scene.show(found.key_by(*EDGES).agg(kinds, emit="final", name="of changes"), "again")
    over_all = rows.window(op.cumulate("6s", every="2s"), lateness="60s")
    scene.show(over_all.agg(op.count(), texts=col("value").count_distinct(), emit="changes"), "all rows")


def all_rows(scene: Scene) -> None:
    """Aggregates and windows without keys, also over no rows."""
    rows = timed(scene, splits=2, delay="60s")
    counts = {"n": op.count(), "s": col("value").sum(), "values": col("value").count_distinct()}
    scene.show(rows.agg(counts), "all")
    scene.show(rows.agg(n=op.count(), emit="updates"), "updates", last=())
    scene.show(rows.filter(col("row") < 0).agg(counts), "none")
    scene.show(rows.window(op.hopping("9s", every="3s")).agg(AGGREGATES), "windows")
    scene.show(rows.filter(col("row") < 0).window(op.tumbling("4s")).agg(counts), "no windows")


def behind(scene: Scene) -> None:
    """Windows behind windows, in the windows that their rows came out of."""
    rows = timed(scene, splits=2, delay="60s")
    counts = rows.key_by("user").window(op.hopping("10s", every="2s")).agg(n=op.count(), name="counts")
    most = counts.window(op.same_window()).agg(most=col("n").max(), users=op.count(), name="most")
    scene.show(most, "most")
    scene.show(counts.key_by("n").window(op.same_window()).agg(u=col("user").max()), "by count")
    scene.show(most.window(op.cumulate("20s", every="10s")).agg(m=col("most").sum()), "after that")


def own_kind(scene: Scene) -> None:
    """A kind of a user's."""
    cut = timed(scene, splits=2, delay="60s").key_by("user").window(EachAndAll())
    scene.show(cut.agg(AGGREGATES))
    late = timed(scene, "0s").key_by("user").window(EachAndAll()).agg(AGGREGATES, name="own and late")
    scene.show(late, "late windows", late=True)
    scene.show(late.side("late"), "late", late=True)


def sliding(scene: Scene) -> None:
    """A result for each row: times of all units, nobody late, also over all rows and behind other windows."""
    table = clicks(rows=scene.clicks)
    for type_ in TIMES:
        table = table.append_column(str(type_), clicks(rows=scene.clicks, type_=type_)["ts"])
    source = scene.read(op.from_arrow(table, batch_rows=40, splits=2)).select("row", "user", "value", *map(str, TIMES))
    for type_ in TIMES:
        cut = source.with_watermark(str(type_), delay="60s").key_by("user").window(op.sliding("4s"))
        scene.show(cut.agg(AGGREGATES, values=col("value").count_distinct()), str(type_))
    rows = timed(scene, splits=2, delay="60s")
    texts = {"texts": col("user").count_distinct(), "text": col("user").max(), "who": col("user").last("row")}
    scene.show(rows.window(op.sliding("900ms")).agg(AGGREGATES | texts), "all")
    scene.show(rows.filter(col("row") < 0).window(op.sliding("4s")).agg(AGGREGATES), "none")
    counts = rows.key_by("user").window(op.tumbling("2s")).agg(n=op.count(), name="two seconds")
    recent = counts.key_by("user").window(op.sliding("10s")).agg(recent=col("n").sum(), name="recent")
    scene.show(recent, "behind a window")
    scene.show(recent.key_by("user").window(op.tumbling("8s")).agg(most=col("recent").max()), "before a window")


def sliding_late(scene: Scene) -> None:
    """Rows that are late, and results that late rows change."""
    once = timed(scene, "1s").key_by("user").window(op.sliding("4s")).agg(AGGREGATES, name="slid")
    scene.show(once, late=True)
    scene.show(once.side("late"), "late", late=True)
    again = timed(scene, "1s").key_by("user").window(op.sliding("4s"), lateness="2s")
    scene.show(again.agg(AGGREGATES, emit="changes", name="slid again"), "changes", late=True)
    patient = timed(scene, "0s", splits=2).key_by("user").window(op.sliding("4s"), lateness="60s")
    changes = patient.agg(n=op.count(), s=col("value").sum(), text=col("user").min(), emit="changes", name="patient")
    scene.show(changes, "patient")
    scene.show(changes.key_by("n").agg(rows=op.count()), "counted")


WINDOWED: list[Shape] = [hopping, unmerged, cumulate, partly_late, allowed, signed, all_rows, behind, own_kind]
WINDOWED += [sliding, sliding_late]
