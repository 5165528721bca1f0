"""Late rows of every operator that has some: the keys of one batch may go by different watermarks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.declared_state import Passed
from dataflow.contracts.window_kinds import Hopping
from dataflow.planning.operator_table import operator_class
from dataflow.protocol.watermarks import MAX_WATERMARK
from operators.stateful.late_rows import LateRows
from operators.stateful.time_units import TimeUnit
from tests.operators.operating import Emitted, context_of, drained
from tests.operators.windows.windowed import Windowed

REACHED = {"a": 30, "b": 55, "c": 80}
"""The watermark that each key goes by; that of the operator is the least of them."""
COLUMNS = pa.schema({"k": pa.string(), "at": pa.timestamp("us"), "x": pa.int64()})
Row = tuple[str, int, int]


@dataclass(frozen=True)
class Around(flow.Window):
    """A window of 10 us around each row; they merge."""

    merges = True

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times - 5, times + 5)


@dataclass(frozen=True)
class UpToTwo(flow.Window):
    """By the time of a row it has no window, one of 30 us, or also one of 10 us."""

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        rows = np.repeat(np.arange(len(times)), times % 3)
        return flow.Assigned(times[rows], times[rows] + np.where(np.diff(rows, prepend=-1), 30, 10), rows)


def windows(window: flow.Window, *, emit: str | None = None, **options: Any) -> Callable[..., flow.Stream]:
    return lambda rows, _: rows.key_by("k").window(window, **options).agg(n=op.count(), sum=col("x").sum(), emit=emit)


def by_window(window: flow.Window, **options: Any) -> Callable[..., flow.Stream]:
    return lambda rows, _: rows.key_by("k").window(window, **options).agg(distinct=col("x").count_distinct())


KINDS: Mapping[str, Callable[..., flow.Stream]] = {
    "by slice": windows(op.tumbling("10us")),
    "by slice, overlapping": windows(op.hopping("20us", every="5us"), lateness="7us"),
    "by window": by_window(op.hopping("20us", every="5us"), lateness="7us"),
    "kind of a user": by_window(UpToTwo()),
    "merging": windows(Around(), lateness="7us"),
    "triggered": windows(op.tumbling("10us"), lateness="7us", late=op.after_rows(2), panes="discarding"),
    "sessions": windows(op.session("5us"), lateness="7us", emit="final"),
    "panes of sessions": windows(op.session("5us"), lateness="7us", panes="discarding"),
    "sliding": windows(op.sliding("10us"), lateness="7us", emit="changes"),
    "top of windows": lambda rows, _: rows.key_by("k").window(op.hopping("20us", every="10us")).top(2, by="x"),
    "join of windows": lambda a, b: a.join(b, on="k", window=op.hopping("20us", every="10us"), lateness="7us"),
    "join by time": lambda a, b: a.join(b, on="k", within=("-5us", "5us"), how="full", lateness="7us"),
    "as-of join": lambda a, b: a.join_asof(b, by="k"),
    "forward as-of join": lambda a, b: a.join_asof(b, by="k", strategy="forward", tolerance="9us"),
    "join with a time to live": lambda a, b: a.join(b, on="k", ttl="9us"),
}
RESULTS = ("by slice", "by window", "kind of a user", "merging", "sessions", "join by time", "as-of join")
"""Kinds with the same results at the end of the input, whatever the watermark of the operator was before."""


class Lone:
    """An operator without an engine that gets rows, after a watermark, on each of its inputs."""

    def __init__(self, kind: str, watermark: int, sides: Sequence[Sequence[Row]]) -> None:
        p = flow.Pipeline()
        stream = KINDS[kind](
            *[p.source(op.from_arrow(COLUMNS.empty_table()), name=n).with_watermark("at") for n in "lr"]
        )
        spec: Any = stream._node.spec
        sides = sides if "join" in kind else sides[:1]
        self.context = replace(context_of(COLUMNS, stream.schema), input_schemas=(COLUMNS,) * len(sides))
        self.operator = operator_class(spec)(self.context, *spec.arguments())
        self.out = Emitted()
        drained(self.operator.advance(watermark, self.out))
        for port, rows in enumerate(sides):
            columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), COLUMNS.types, strict=True)]
            drained(self.operator.process(port, pa.record_batch(columns, schema=COLUMNS), self.out))

    def late(self) -> list[tuple[object, ...]]:
        return [(tag, *row) for tag in ("late", "late_right") for row in self.out.take(tag)]

    def counts(self) -> Counter[Any]:
        tally = self.context.tally
        buckets = {("late by", bucket): rows for bucket, rows in tally.lateness.buckets.items()}
        counts = {name: getattr(tally, name) for name in ("late", "partly_late", "late_right")}
        return Counter({"checked": tally.lateness.checked, **counts, **buckets})

    def results(self) -> list[tuple[object, ...]]:
        drained(self.operator.advance(MAX_WATERMARK, self.out))
        return self.out.take()


def closed(passed: Passed, lateness: int, keys: Sequence[pa.Array]) -> Any:
    """Return a bound for each row, by the watermark of its key."""
    return np.array([REACHED[key] - lateness for key in keys[0].to_pylist()], np.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_is_late_by_the_watermark_of_its_key(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(kind)
    sides = [[(draw.choice("abc"), draw.randrange(110), draw.randrange(9)) for _ in range(80)] for _ in "lr"]
    alone = [Lone(kind, REACHED[key], [[row for row in rows if row[0] == key] for rows in sides]) for key in REACHED]
    with monkeypatch.context() as patch:
        patch.setattr(Passed, "closed", closed)
        together = Lone(kind, min(REACHED.values()), sides)
    assert together.context.tally.late > 10
    assert together.counts() == sum([one.counts() for one in alone], Counter())
    assert sorted(together.late(), key=repr) == sorted([row for one in alone for row in one.late()], key=repr)
    if kind in RESULTS:
        expected = [row for one in alone for row in one.results()]
        assert sorted(together.results(), key=repr) == sorted(expected, key=repr)


def test_records_of_rows_are_late_by_the_watermark_of_their_key(monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = Windowed(Hopping(20, 10), fold_first=True)
    windowed.advance(30)
    monkeypatch.setattr(Passed, "closed", closed)
    windowed.feed(*[(key, 1, time) for key in "abc" for time in (15, 15, 25, 45, 65, 65, 65)])
    tally = windowed.context.tally
    assert (tally.late, tally.partly_late) == (2 + 3 + 7, 1 + 1)
    assert tally.lateness.rows == tally.late
    assert windowed.out.take("late") == []


@pytest.mark.parametrize("unit", TimeUnit)
def test_times_are_compared_at_both_ends_of_64_bits(unit: TimeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    least, most = -(2**63), 2**63 - 1
    context, out = context_of(COLUMNS, COLUMNS), Emitted()
    late = LateRows(context, Passed(7), 0, ["k"])
    batch = pa.record_batch([["a"] * 4, [0, 1, 2, 3], [0] * 4], schema=COLUMNS)
    monkeypatch.setattr(Passed, "closed", lambda *_: np.array([most, most, least, 0]))
    _, kept = late.split_times(batch, np.array([least, most - 1, least, 0]), unit, out)
    assert kept.tolist() == [least, 0]
    assert (context.tally.late, context.tally.lateness.most) == (2, most)


def test_before_the_first_watermark_no_row_is_late_and_no_window_is_asked() -> None:
    class Asked(UpToTwo):
        def complete(self, watermark: int) -> int:
            raise AssertionError(f"no watermark has come, but it was asked for {watermark}")

    windowed = Windowed(Asked())
    assert windowed.feed(("a", 1, -(2**62))) == []
    assert windowed.context.tally.late == 0


def test_the_first_and_the_last_watermark_are_not_moved_by_lateness() -> None:
    assert Passed().less(5) == Passed().closed(5, []) == -(2**63)
    assert Passed(MAX_WATERMARK).less(5) == MAX_WATERMARK
    assert Passed(-(2**63) + 3).less(5) == -(2**63)
