"""Joins that keep other rows have other details, which a restore compares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op

Side = Callable[[flow.Stream], flow.Stream]
US = pa.timestamp("us")
SCHEMA = pa.schema({"k": pa.int64(), "ended": US, "other": US})


def spec_of(join: Callable[[flow.Stream, flow.Stream], flow.Stream], *times: Side) -> Any:
    """Return the spec of a join of two inputs, which get their event times by ``times``."""
    p = flow.Pipeline()
    sides = [p.source(op.from_arrow(SCHEMA.empty_table()), name=name) for name in "lr"]
    return join(*[time(side) for time, side in zip(times, sides, strict=True)])._node.spec


def by(column: str) -> Side:
    return lambda stream: stream.with_watermark(column)


def windows(stream: flow.Stream) -> flow.Stream:
    counts = stream.with_watermark("other").key_by("k").window(op.tumbling("1s")).agg(n=op.count())
    return counts.select("k", ended=flow.col("window_end"))


JOINS: dict[str, Callable[[flow.Stream, flow.Stream], flow.Stream]] = {
    "window": lambda left, right: left.join(right, on="k", window=op.tumbling("1s")),
    "within": lambda left, right: left.join(right, on="k", within=("-1s", "1s")),
    "ttl": lambda left, right: left.join(right, on="k", ttl="1s"),
    "backward": lambda left, right: left.join_asof(right, by="k", tolerance="1s"),
    "forward": lambda left, right: left.join_asof(right, by="k", strategy="forward", tolerance="1s"),
}


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
def test_a_join_goes_by_columns_and_by_whether_they_are_ends_of_windows(join: Any) -> None:
    sides = [by("ended"), by("other"), windows]
    found = [spec_of(join, time, by("ended")).detail() for time in sides]
    assert found[0] != found[1]
    assert found[0] != found[2]
    assert found[0] == spec_of(join, by("ended"), by("ended")).detail()


def test_joins_whose_reach_differs_by_nanoseconds_are_different() -> None:
    times = by("other"), by("other")
    expiring = spec_of(lambda left, right: left.join(right, on="k", ttl="5us"), *times).in_batch()
    interval = spec_of(lambda left, right: left.join(right, on="k", within=("-4us", "4us")), *times)
    assert (expiring.high, interval.high) == (4999, 4000)
    assert expiring.detail() != interval.detail()
    for strategy in ("backward", "forward"):
        ttl, tolerance = [
            spec_of(lambda left, right, how=how: left.join_asof(right, by="k", strategy=strategy, **how), *times)  # noqa: B023
            for how in ({"ttl": "5us", "tolerance": "1h"}, {"tolerance": "4us"})
        ]
        assert (ttl.reach, tolerance.reach) == (4999, 4000)
        assert ttl.detail() != tolerance.detail()


def test_an_inner_join_does_not_go_by_when_lone_rows_come_out() -> None:
    bounded, endless = [
        spec_of(
            lambda left, right, emit=emit: left.join(right, on="k", how="left", emit=emit), by("other"), by("other")
        )
        for emit in ("final", "changes")
    ]
    assert bounded.detail() != endless.detail()
    assert replace(bounded, how="inner").detail() == replace(endless, how="inner").detail()
    assert "emit" not in replace(bounded, how="inner").detail()
