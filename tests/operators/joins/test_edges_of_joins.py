"""Joins by themselves: which rows are late to the microsecond, and rows that meet none, beside the edge of a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.declared_state import Log
from dataflow.planning.operator_table import operator_class
from tests.operators.operating import Emitted, context_of, drained, made

SCHEMA = pa.schema({"k": pa.int64(), "at": pa.timestamp("us"), "v": pa.string()})


class Driven:
    """A join operator without an engine. Rows are (key, time, value)."""

    def __init__(self, join: Callable[[flow.Stream, flow.Stream], flow.Stream]) -> None:
        p = flow.Pipeline()
        sides = [p.source(op.from_arrow(SCHEMA.empty_table()), name=name).with_watermark("at") for name in "lr"]
        stream = join(*sides)
        spec: Any = stream._node.spec
        self.context = replace(context_of(SCHEMA, stream.schema), input_schemas=(SCHEMA, SCHEMA))
        self.operator = made(operator_class(spec)(self.context, *spec.arguments()), self.context)
        self.out = Emitted()

    def add(self, port: int, *rows: tuple[int | None, int, str]) -> None:
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, names=SCHEMA.names).cast(SCHEMA)
        drained(self.operator.process(port, batch, self.out))

    def advance(self, watermark: int) -> list[tuple[object, ...]]:
        """The values of the pairs that come out: left and right."""
        drained(self.operator.advance(watermark, self.out))
        return self.pairs()

    def pairs(self) -> list[tuple[object, ...]]:
        batches = self.out.batches.pop(None, [])
        return sorted([(row["v"], row["v_right"]) for batch in batches for row in batch.to_pylist()], key=repr)


TIMED: dict[str, tuple[Callable[[flow.Stream, flow.Stream], flow.Stream], int]] = {
    "within": (lambda left, right: left.join(right, on="k", within=("0us", "5us"), lateness="3us"), 97),
    "window": (lambda left, right: left.join(right, on="k", window=op.tumbling("10us"), lateness="3us"), 90),
    "backward": (lambda left, right: left.join_asof(right, by="k"), 100),
    "forward": (lambda left, right: left.join_asof(right, by="k", strategy="forward", tolerance="5us"), 100),
}
"""Joins, and the earliest time of a row that is not late at the watermark 100."""


@pytest.mark.parametrize("port", [0, 1])
@pytest.mark.parametrize("kind", TIMED)
def test_a_row_is_late_to_the_microsecond(kind: str, port: int) -> None:
    join, earliest = TIMED[kind]
    driven = Driven(join)
    driven.advance(100)
    driven.add(port, (1, earliest, "in time"), (1, earliest - 1, "late"))
    tag = ("late", "late_right")[port]
    assert [row["v"] for batch in driven.out.batches[tag] for row in batch.to_pylist()] == ["late"]
    assert (driven.context.tally.late, driven.context.tally.late_right) == (1, port)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_left_row_before_the_first_right_row_of_its_key_has_no_counterpart(how: Any) -> None:
    driven = Driven(lambda left, right: left.join_asof(right, by="k", how=how))
    driven.add(1, (1, 50, "first"), (1, 60, "second"))
    driven.add(0, (1, 49, "early"), (1, 50, "at"), (1, 59, "after"), (2, 70, "other"))
    met = [("after", "first"), ("at", "first")]
    assert driven.advance(100) == met + ([("early", None), ("other", None)] if how == "left" else [])
    driven.add(0, (1, 100, "later"), (None, 100, "null"))
    assert driven.advance(200) == ([("later", "second"), ("null", None)] if how == "left" else [("later", "second")])


def test_a_right_row_at_the_watermark_waits_for_those_of_its_time() -> None:
    driven = Driven(lambda left, right: left.join_asof(right, by="k"))
    driven.add(1, (1, 50, "one"))
    driven.add(0, (1, 50, "left"))
    assert driven.advance(50) == []
    driven.add(1, (1, 50, "two"))
    assert driven.advance(51) == [("left", "two")]


def test_within_includes_both_ends() -> None:
    driven = Driven(lambda left, right: left.join(right, on="k", within=("-2us", "5us")))
    driven.add(0, (1, 50, "left"))
    driven.add(1, (1, 47, "before"), (1, 48, "first"), (1, 55, "last"), (1, 56, "after"))
    assert driven.pairs() == [("left", "first"), ("left", "last")]


def test_a_row_is_found_although_a_later_one_comes_when_it_is_old() -> None:
    driven = Driven(lambda left, right: left.join_asof(right, by="k", tolerance="10us"))
    driven.add(1, (1, 50, "old"))
    assert driven.advance(55) == []
    driven.add(1, (1, 65, "new"))
    driven.add(0, (1, 58, "near the old"), (1, 60, "at the limit"), (1, 61, "beyond"))
    assert driven.advance(70) == [("at the limit", "old"), ("beyond", None), ("near the old", "old")]


def _kept(driven: Driven) -> list[int]:
    """How many rows of each side a checkpoint has."""
    logs: Any = driven.operator.snapshot().logs
    return [logs[side].freeze(1, None)["rows"].read_all().num_rows for side in ("left", "right")]


@pytest.mark.parametrize(
    ("how", "repeats", "kept"), [("inner", False, [0, 1]), ("right", False, [2, 1]), ("inner", True, [2, 1])]
)
def test_rows_that_meet_no_row_to_come_are_not_kept(how: Any, repeats: bool, kept: list[int]) -> None:  # noqa: FBT001
    driven = Driven(lambda left, right: left.join(right, on="k", how=how))
    driven.operator._context = replace(driven.context, repeats=repeats)
    driven.add(1, (1, 0, "right"))
    driven.operator.ended(1, driven.out)
    driven.add(0, (1, 0, "left"), (2, 0, "alone"))
    assert driven.pairs() == [("left", "right")]
    assert _kept(driven) == kept


def test_rows_less_than_a_ttl_apart_meet_whoever_comes_first() -> None:
    for how in ("inner", "left"):
        driven = Driven(lambda left, right, how=how: left.join(right, on="k", how=how, ttl="10us"))
        driven.add(0, (1, 50, "left"), (1, 90, "ahead"))
        driven.pairs()  # perhaps the rows alone, which are taken back later
        driven.add(1, (1, 59, "in time"), (1, 60, "ten after"), (1, 40, "ten before"), (1, 41, "before"))
        met = [("left", "before"), ("left", "in time")]
        assert driven.pairs() == (met if how == "inner" else sorted([*met, ("left", None)], key=repr))


def test_with_a_ttl_a_late_row_counts_and_meets_the_rows_that_are_kept() -> None:
    driven = Driven(lambda left, right: left.join(right, on="k", ttl="10us"))
    driven.add(0, (1, 50, "gone"), (1, 51, "kept"))
    driven.advance(60)
    driven.add(1, (1, 59, "late"), (1, 60, "in time"))
    assert driven.pairs() == [("kept", "in time"), ("kept", "late")]
    driven.add(0, (None, 42, "late and gone"), (2, 52, "late but kept"))
    late = [row["v"] for tag in ("late", "late_right") for row in driven.out.batches[tag][0].to_pylist()]
    assert late == ["late and gone", "late but kept", "late"]
    tally = driven.context.tally
    assert (tally.late, tally.late_right, tally.lateness.checked, tally.lateness.most) == (3, 1, 6, 18)
    assert _kept(driven) == [2, 2]


def test_with_a_ttl_a_row_is_kept_until_the_watermark_is_its_time_plus_the_ttl() -> None:
    driven = Driven(lambda left, right: left.join(right, on="k", how="full", ttl="10us"))
    driven.add(0, (1, 50, "met"), (1, 51, "met"), (2, 50, "alone"), (2, 51, "alone"))
    driven.add(1, (1, 50, "right"))
    kept = []
    for watermark in (59, 60, 61):
        driven.advance(watermark)
        logs = [piece for piece in driven.operator.state().values() if isinstance(piece, Log)]  # type: ignore[attr-defined]
        kept.append([log.state.live for log in logs])  # type: ignore[attr-defined]
    assert kept == [[1, 1, 1, 0], [1, 0, 1, 0], [0, 0, 0, 0]]


HELD = {"within": 92, "window": 97, "backward": 100, "forward": 98}
"""What each of ``TIMED`` holds the watermark 100 back to, while a left row at 98 waits."""


@pytest.mark.parametrize("kind", TIMED)
def test_a_watermark_is_held_back_to_what_may_come_out(kind: str) -> None:
    driven = Driven(TIMED[kind][0])
    driven.add(0, (1, 98, "waits"))
    driven.advance(100)
    assert driven.operator.held(100) == HELD[kind]


def test_a_row_that_nothing_can_meet_any_more_comes_out_at_once() -> None:
    driven = Driven(lambda left, right: left.join(right, on="k", how="left", within=("-9us", "-4us")))
    driven.add(1, (1, 95, "right"))
    driven.advance(100)
    driven.add(0, (1, 101, "met"), (2, 103, "complete"), (2, 104, "waits"))
    assert driven.pairs() == [("complete", None), ("met", "right")]
    assert driven.advance(101) == [("waits", None)]


def test_a_forward_join_waits_for_rows_at_the_end_of_the_tolerance() -> None:
    driven = Driven(TIMED["forward"][0])
    driven.add(0, (1, 95, "left"), (1, 94, "earlier"))
    assert driven.advance(100) == [("earlier", None)]
    driven.add(1, (1, 100, "right"), (1, 100, "last of its time"))
    assert driven.advance(101) == [("left", "last of its time")]


def test_a_row_shown_alone_is_taken_back_after_another_one_of_its_key_was() -> None:
    driven = Driven(lambda left, right: left.join(right, on="k", how="left", ttl="10us", emit="changes"))
    driven.add(0, (1, 50, "early"), (1, 80, "late"))
    assert driven.pairs() == [("early", None), ("late", None)]
    driven.add(1, (1, 85, "one"))
    assert driven.pairs() == [("late", "one"), ("late", None)]
    driven.add(1, (1, 55, "two"))
    assert driven.pairs() == [("early", "two"), ("early", None)]
