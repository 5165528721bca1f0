"""Joins by time of columns in microseconds and in nanoseconds: times are compared exactly, at all ends of 64 bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.operator import Snapshot
from dataflow.errors import CheckpointMismatch
from dataflow.planning.operator_table import operator_class
from dataflow.protocol.watermarks import MAX_WATERMARK
from operators.stateful.time_units import TimeUnit
from tests.operators.operating import Emitted, context_of, drained, made

MOST = 2**63 - 1
PER = {"us": 1000, "ns": 1}
UNITS = [("ns", "ns"), ("us", "ns"), ("ns", "us")]


@cache
def planned(join: Callable[..., flow.Stream], units: tuple[str, str]) -> tuple[list[pa.Schema], pa.Schema, Any]:
    """Return the columns of both sides and of the result of a join, and its spec."""
    p = flow.Pipeline()
    schemas = [pa.schema({"k": pa.int64(), "at": pa.timestamp(unit)}) for unit in units]
    sides = [
        p.source(op.from_arrow(schema.empty_table()), name=name).with_watermark("at")
        for name, schema in zip("lr", schemas, strict=True)
    ]
    stream = join(*sides)
    return schemas, stream.schema, stream._node.spec


class Exact:
    """A join operator without an engine, whose sides have event times of two units; rows are (key, time)."""

    def __init__(
        self, join: Callable[..., flow.Stream], units: tuple[str, str], restored: Snapshot | None = None
    ) -> None:
        self.schemas, output, spec = planned(join, units)
        context = context_of(self.schemas[0], output, restored=restored)
        self.context = replace(context, input_schemas=tuple(self.schemas))
        self.operator = made(operator_class(spec)(self.context, *spec.arguments()), self.context)
        self.units, self.out = units, Emitted()

    def add(self, port: int, *rows: tuple[int, int]) -> None:
        columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
        batch = pa.RecordBatch.from_arrays([columns[0], columns[1].cast(self.schemas[port].types[1])], ["k", "at"])
        drained(self.operator.process(port, batch, self.out))

    def advance(self, watermark: int) -> list[tuple[int | None, int | None]]:
        """Advance; return the times of the pairs that came out since the last call, in nanoseconds."""
        drained(self.operator.advance(watermark, self.out))
        batches = self.out.batches.pop(None, [])
        pairs = [
            self._times(batch, name, unit) for batch in batches for name, unit in zip(NAMES, self.units, strict=True)
        ]
        both = [
            pair for left, right in zip(pairs[::2], pairs[1::2], strict=True) for pair in zip(left, right, strict=True)
        ]
        return sorted(both, key=repr)

    def _times(self, batch: pa.RecordBatch, name: str, unit: str) -> list[int | None]:
        times: list[int | None] = batch[name].cast(pa.int64()).to_pylist()
        return [None if time is None else time * PER[unit] for time in times]

    def late(self) -> list[int]:
        """Return the times of the late rows of both sides, in their units."""
        batches = [batch for tag in ("late", "late_right") for batch in self.out.batches.pop(tag, [])]
        return [time for batch in batches for time in batch["at"].cast(pa.int64()).to_pylist()]


NAMES = "at", "at_right"


def near(low: int, high: int) -> Callable[[int, list[int]], list[int]]:
    return lambda one, others: [other for other in others if low <= other - one <= high]


def latest(limit: int) -> Callable[[int, list[int]], list[int]]:
    return lambda one, others: [max(met)] if (met := near(-limit, 0)(one, others)) else []


def earliest(limit: int) -> Callable[[int, list[int]], list[int]]:
    return lambda one, others: [min(met)] if (met := near(0, limit)(one, others)) else []


ANY = 2**80
JOINS: dict[str, tuple[Callable[..., flow.Stream], Callable[[int, list[int]], list[int]]]] = {
    "within": (lambda a, b: a.join(b, on="k", within=("-1us", "2us")), near(-1000, 2000)),
    "within far": (lambda a, b: a.join(b, on="k", within=("-100000d", "100000d")), near(-864 * 10**16, 864 * 10**16)),
    "ttl": (lambda a, b: a.join(b, on="k", ttl="2us"), near(-1999, 1999)),
    "backward": (lambda a, b: a.join_asof(b, by="k", how="inner"), latest(ANY)),
    "tolerance": (lambda a, b: a.join_asof(b, by="k", how="inner", tolerance="2us"), latest(2000)),
    "forgotten": (lambda a, b: a.join_asof(b, by="k", how="inner", ttl="2us"), latest(1999)),
    "forward": (lambda a, b: a.join_asof(b, by="k", how="inner", strategy="forward", tolerance="2us"), earliest(2000)),
    "forward far": (
        lambda a, b: a.join_asof(b, by="k", how="inner", strategy="forward", tolerance="100000d"),
        earliest(864 * 10**16),
    ),
}
"""A join, and which of the right times a left one meets, all in nanoseconds."""
PLACES = [0, MOST - 6_000, 1 - 2**63 + 6_000, 2**63 * 1000 - 9_000, -(2**63) * 1000 + 9_000, 40 * 366 * 86_400 * 10**9]
"""Nanoseconds around which times lie; only microseconds reach some of them."""


def drawn_times(draw: random.Random, unit: str, place: int) -> list[int]:
    """Return times of ``unit`` that are near ``place``, as near as it can come."""
    per = PER[unit]
    times = [(place + draw.randrange(-4000, 4001)) // per for _ in range(draw.randrange(1, 7))]
    return [max(-(2**63), min(MOST - 1, time)) for time in times]


@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("kind", JOINS)
def test_rows_meet_by_their_exact_times(kind: str, units: tuple[str, str]) -> None:
    join, meets = JOINS[kind]
    draw = random.Random(kind)
    for place in PLACES * 3:
        sides = [drawn_times(draw, unit, place) for unit in units]
        exact = Exact(join, units)
        for port in draw.sample([0, 1], 2):
            exact.add(port, *((1, time) for time in sides[port]))
        left, right = ([time * PER[unit] for time in times] for times, unit in zip(sides, units, strict=True))
        expected = [(one, other) for one in left for other in meets(one, right)]
        assert exact.advance(MAX_WATERMARK) == sorted(expected, key=repr), (units, sides)


@pytest.mark.parametrize("port", [0, 1])
def test_a_row_is_kept_until_the_watermark_is_its_time_plus_the_time_to_live(port: int) -> None:
    exact = Exact(JOINS["ttl"][0], ("ns", "ns"))
    exact.add(port, (1, 100_000), (1, 100_001))
    exact.advance(102)
    exact.add(1 - port, (1, 102_000))
    assert [pair[port] for pair in exact.advance(103)] == [100_001]
    exact.add(1 - port, (1, 101_000))  # late, and all are gone
    assert exact.advance(104) == []


@pytest.mark.parametrize("port", [0, 1])
@pytest.mark.parametrize("kind", ["within", "backward", "forward", "ttl"])
def test_a_row_is_late_if_its_time_rounded_down_is_below_the_watermark(kind: str, port: int) -> None:
    exact = Exact(JOINS[kind][0], ("ns", "ns"))
    exact.advance(100)
    exact.add(port, (1, 99_999), (1, 100_000), (1, 100_500))
    assert exact.late() == [99_999]
    assert (exact.context.tally.late, exact.context.tally.late_right) == (1, port)
    assert exact.context.tally.lateness.most == 1


def test_the_next_row_of_a_microsecond_may_still_come() -> None:
    exact = Exact(JOINS["backward"][0], ("ns", "ns"))
    exact.add(0, (1, 100_900))
    exact.add(1, (1, 100_100))
    assert exact.advance(100) == []
    exact.add(1, (1, 100_800))
    assert exact.advance(101) == [(100_900, 100_800)]


def test_the_greatest_number_is_refused_as_a_time_because_no_watermark_would_pass_it() -> None:
    for kind, unit in (("within", "us"), ("backward", "ns"), ("forward", "us"), ("ttl", "ns")):
        with pytest.raises(OverflowError, match=rf"event times in 'at' are out of range: {MOST} {unit} is no event"):
            Exact(JOINS[kind][0], (unit, unit)).add(0, (1, MOST))


@pytest.mark.parametrize("kind", ["within", "backward", "forward", "ttl"])
def test_state_with_times_of_another_unit_is_refused(kind: str) -> None:
    exact = Exact(JOINS[kind][0], ("us", "ns"))
    exact.add(0, (1, 5))
    frozen = exact.operator.snapshot()
    logs: Any = {
        name: [{table: reader.read_all() for table, reader in log.freeze(1, None).items()}]
        for name, log in frozen.logs.items()
    }
    restored = Snapshot(frozen.values, {}, logs, frozen.rules)
    Exact(JOINS[kind][0], ("us", "ns"), restored)
    with pytest.raises(
        CheckpointMismatch, match=r"op: time units: the checkpoint has \['us', 'ns'\], the pipeline has \['us', 'us'\]"
    ):
        Exact(JOINS[kind][0], ("us", "us"), restored)


def test_bounds_are_exact_or_cut_off_at_the_ends_of_64_bits() -> None:
    draw = random.Random(3)
    ends = [-(2**63), -(2**63) // 1000, -1, 0, 2**63 // 1000, MOST - 1]
    drawn = [max(-(2**63), min(MOST - 1, draw.choice(ends) + draw.randrange(-3000, 3001))) for _ in range(60)]
    for unit in TimeUnit:
        for other in TimeUnit:
            for distance in (0, 1, -1, 999, -1999, 864 * 10**16, -864 * 10**16):
                for time in drawn:
                    bound = unit.first_at(np.array([time]), other, distance).tolist()[0]
                    assert time == -(2**63) or unit.first_one_at(time, other, distance) == bound
                    target = time * PER[other.value] + distance
                    for near_by in (bound - 1, bound):
                        if -(2**63) <= near_by < MOST:
                            assert (near_by >= bound) == (near_by * PER[unit.value] >= target)
