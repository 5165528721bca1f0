"""Flights and bids: rows as they come in life, out of order, many of them too late, through several stages."""

from __future__ import annotations

import operators as op
from dataflow import col
from dataflow.demo.flights import prepare
from tests.agreement.shapes.scene import Scene, Shape

__all__ = ["REAL"]

FLIGHTS, BIDS = 9_000, 5_000


def flights(scene: Scene) -> None:
    """Six hours of airlines, weeks of those, what came too late for them, and delays by route."""
    files = prepare(scene.folder, limit=FLIGHTS)
    source = op.read_parquet([files.fast, files.slow], batch_rows=100, dictionary=["carrier"])
    rows = scene.read(source).with_watermark("scheduled", delay="1min")
    quarters = rows.key_by("carrier", "origin").window(op.tumbling("6h"))
    asked = {"flights": op.count(), "departed": col("departure").count(), "worst": col("delay").max()}
    quarter = quarters.agg(**asked, mean=col("delay").mean(), last=col("scheduled").max(), name="quarters")
    scene.show(quarter, "quarters", late=True)
    scene.show(quarter.side("late"), "late", late=True)
    weeks = quarter.key_by("carrier").window(op.tumbling("7d", offset="4d"))
    weekly = weeks.agg(days=op.count(), flights=col("flights").sum(), worst=col("worst").max(), name="weeks")
    scene.show(weekly, "weeks", late=True)
    busy = weekly.filter(col("flights") > 50).key_by("window_start").agg(airlines=op.count(), emit="final")
    scene.show(busy, "airlines of a week", late=True)
    departed = rows.filter(col("departure").is_not_null()).with_columns(late=col("delay") > 15, at=col("departure"))
    hours = departed.with_columns(hour=col("at").dt.hour()).key_by("origin", "hour", "late")
    scene.show(hours.agg(n=op.count(), m=col("delay").sum(), first=col("at").min(), emit="final"), "hours")
    patient = departed.with_watermark("scheduled", delay="24h", name="a day").key_by("carrier")
    scene.show(patient.window(op.tumbling("6h")).agg(n=op.count(), sd=col("delay").stddev()), "six hours", near=True)
    scene.show(departed.key_by("carrier").agg(n=op.count(), emit="updates"), "running", last=("carrier",))


def bids(scene: Scene) -> None:
    """Generated bids, some beyond the watermark, some beyond the lateness that is allowed them."""
    recipes = {
        "auction": op.integers(0, 40),
        "bidder": op.normal(1_000, 200),
        "price": op.integers(1, 100_000),
        "channel": op.choice(["web", "app", "phone", None], weights=[6, 3, 1, 1]),
        "at": op.event_times("2026-01-01T00:00:00+00:00", rate="100/s", disorder="3s"),
    }
    rows = scene.read(op.generate(recipes, rows=BIDS, seed=11, batch_rows=60))
    hasty = rows.with_watermark("at", delay="500ms", name="hasty")
    short = hasty.key_by("auction").window(op.tumbling("2s"))
    found = short.agg(n=op.count(), most=col("price").max(), winner=col("bidder").arg_max("price"), name="auctions")
    scene.show(found, "auctions", late=True)
    scene.show(found.side("late"), "late", late=True)
    best = found.key_by("n").window(op.tumbling("10s")).agg(times=op.count(), most=col("most").max(), name="best")
    scene.show(best, "best", late=True)
    missed = found.side("late").key_by("channel").agg(n=op.count(), lost=col("price").sum(), emit="final")
    scene.show(missed, "missed", late=True)
    lenient = hasty.key_by("channel").window(op.tumbling("1s"), lateness="1s").agg(n=op.count(), name="lenient")
    scene.show(lenient, "lenient", last=("channel", "window_start"), late=True)
    scene.show(lenient.side("late"), "too late", late=True)
    several = rows.with_watermark("at", delay="3s", name="patient").key_by("auction", "channel")
    scene.show(several.window(op.tumbling("5s")).agg(n=op.count(), paid=col("price").sum()), "nobody late")


REAL: list[Shape] = [flights, bids]
