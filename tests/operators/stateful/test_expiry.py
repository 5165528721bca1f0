"""The time by which values expire is the watermark or the clock, and a checkpoint has it."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.windows import EventTime
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.chosen_row_specs import Order, Top, Unique
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.ttl import Ttl
from operators.chosen_rows.top import TopOperator
from operators.chosen_rows.unique import UniqueOperator
from operators.stateful.expiry import KeyExpiry
from tests.operators.operating import Emitted, context_of, made, stored

ROWS = pa.schema({"k": pa.int64(), "at": pa.timestamp("ns")})
RANKED = ROWS.append(pa.field("rank", pa.int64()))


def first_row(clock: ManualClock) -> UniqueOperator:
    return UniqueOperator(context_of(ROWS, ROWS, clock=clock), Unique(("k",), Ttl(10), None))


def top_row(clock: ManualClock) -> TopOperator:
    spec = Top(("k",), Order(1, ("at",), (False,), "arrival"), Emit.FINAL, ttl=Ttl(10))
    return TopOperator(context_of(ROWS, RANKED, clock=clock), spec)


@pytest.mark.parametrize("make", [first_row, top_row])
def test_a_checkpoint_has_the_time_by_the_clock_when_the_last_rows_came(
    make: Callable[[ManualClock], UniqueOperator | TopOperator],
) -> None:
    clock = ManualClock(70)
    operator = make(clock)
    operator.process(0, pa.record_batch([[1], [0]], schema=ROWS), Emitted())
    clock.advance(5)
    assert stored(operator.snapshot()).values["now"] == 70


def test_a_restored_operator_goes_on_at_the_time_by_the_clock() -> None:
    operator = first_row(ManualClock(70))
    operator.process(0, pa.record_batch([[1], [0]], schema=ROWS), Emitted())
    context = context_of(ROWS, ROWS, restored=stored(operator.snapshot()))
    again = made(UniqueOperator(context, Unique(("k",), Ttl(10), None)), context)
    assert isinstance(again._expiry, KeyExpiry)
    assert again._expiry.reached == 70


def test_by_event_time_the_watermark_counts_in_the_unit_of_the_column() -> None:
    context = context_of(ROWS, ROWS)
    operator = UniqueOperator(context, Unique(("k",), Ttl(10), EventTime("at")))
    expiry = operator._expiry
    assert isinstance(expiry, KeyExpiry)
    assert expiry.ttl == Ttl(10_000)
    operator.advance(3, Emitted())
    assert (expiry.reached, expiry.now) == (3, 3_000)
    operator.process(0, pa.record_batch([[1], [0]], schema=ROWS), Emitted())
    operator.advance(MAX_WATERMARK, Emitted())
    assert operator._state.live == 1, "at the end of the input nothing is swept"
