"""The timers of process functions: when they fire, in which order, and what calls them off."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
from tests.operators.process.process_driver import ROWS, US, Driver, moment

FAR = timedelta(microseconds=10)


class Alarm(flow.KeyedProcess):
    """Sets a timer 10 us after each row, and emits the due times of those that fire."""

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for at in rows["at"].to_pylist():
            ctx.timers.event(at + FAR)

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "x": (due - moment(0)).microseconds})


class AlarmInColumns(flow.BatchProcess):
    """The same, with columns."""

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ctx.timers.event(slots, rows["at"].cast(pa.int64()).to_numpy() + 10)

    def on_timer(self, slots: Any, dues: pa.Array, ctx: flow.ProcessContext) -> None:
        assert dues.type == US
        keys = ctx.keys(slots)["k"]
        ctx.emit(pa.record_batch({"k": keys, "x": dues.cast(pa.int64())}))


BOTH = pytest.mark.parametrize("function", [Alarm, AlarmInColumns])


@BOTH
def test_a_timer_fires_when_the_watermark_is_at_its_time(function: Any) -> None:
    alarm = Driver(function)
    alarm.rows(("a", 5, 0))
    alarm.advance(14)
    assert alarm.take() == []
    alarm.advance(15)
    assert alarm.take() == [("a", 15)]
    alarm.advance(16)
    assert alarm.take() == []


@BOTH
def test_timers_fire_once_in_the_order_of_their_times_and_then_as_they_were_set(function: Any) -> None:
    alarm = Driver(function)
    alarm.rows(("b", 7, 0), ("a", 5, 0), ("c", 5, 0), ("b", 5, 0), ("a", 5, 0))
    alarm.rows(("a", 5, 0), ("d", 6, 0))
    alarm.end()
    found = alarm.take()
    assert [x for _, x in found] == [15, 15, 15, 16, 17]
    assert [k for k, _ in found] == (["b", "a", "c", "d", "b"] if function is Alarm else ["a", "c", "b", "d", "b"])


@BOTH
def test_a_timer_whose_time_has_passed_fires_with_the_next_watermark(function: Any) -> None:
    alarm = Driver(function)
    alarm.advance(100)
    alarm.rows(("a", 5, 0))
    assert alarm.take() == []
    alarm.advance(101)
    assert alarm.take() == [("a", 15)]


@BOTH
def test_a_timer_of_a_row_that_comes_again_after_the_last_watermark_fires_at_the_end(function: Any) -> None:
    alarm = Driver(function)
    alarm.rows(("a", 5, 0))
    alarm.end()
    assert alarm.take() == [("a", 15)]
    alarm.rows(("a", 5, 0))
    alarm.finish()
    assert alarm.take() == [("a", 15)]


@BOTH
def test_a_timer_is_restored(function: Any) -> None:
    alarm = Driver(function)
    alarm.rows(("a", 5, 0), (None, 6, 0))
    alarm = Driver(function, restored=alarm.snapshot())
    alarm.rows(("a", 5, 0))
    alarm.advance(50)
    assert alarm.take() == [("a", 15), (None, 16)]


@BOTH
def test_a_key_without_state_goes_with_its_last_timer(function: Any) -> None:
    alarm = Driver(function)
    alarm.rows(("a", 5, 0), ("a", 6, 0), ("b", 5, 0))
    assert alarm.live == 2
    alarm.advance(15)
    assert alarm.live == 1
    alarm.advance(16)
    assert alarm.live == 0


def test_slices_of_a_batch_change_nothing() -> None:
    rows = [("a", 3, 0), ("b", 1, 0), ("a", 2, 0), ("b", 9, 0), ("a", 3, 0)]
    found = []
    for size in (1, 2, 5):
        alarm = Driver(Alarm)
        alarm.advance(12)
        for start in range(0, 5, size):
            alarm.rows(*rows[start : start + size])
        alarm.advance(13)
        alarm.end()
        found.append(sorted(alarm.take()))  # type: ignore[type-var]
    assert found[0] == found[1] == found[2] == [("a", 12), ("a", 13), ("b", 11), ("b", 19)]


class Again(flow.KeyedProcess):
    """Sets the next timer in each timer."""

    step = timedelta(microseconds=10)

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ctx.timers.event(rows["at"][0].as_py())

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "x": (due - moment(0)).microseconds})
        ctx.timers.event(due + self.step)


def test_a_timer_set_by_a_timer_fires_with_the_next_watermark() -> None:
    again = Driver(Again)
    again.rows(("a", 0, 0))
    for watermark in (25, 26, 27):
        again.advance(watermark)
    assert again.take() == [("a", 0), ("a", 10), ("a", 20)]
    again.advance(29)
    again.advance(30)
    assert again.take() == [("a", 30)]


def test_a_timer_set_by_a_timer_for_the_watermark_itself_waits_for_the_next_one() -> None:
    again = Driver(Again)
    again.rows(("a", 0, 0))
    again.advance(10)
    assert again.take() == [("a", 0)]
    again.advance(11)
    assert again.take() == [("a", 10)]


def test_timers_set_by_the_last_timers_do_not_fire() -> None:
    again = Driver(Again)
    again.rows(("a", 0, 0), ("b", 0, 0))
    again.end()
    assert again.take() == [("a", 0), ("b", 0)]
    assert again.live == 0


class Cancel(flow.KeyedProcess):
    """x = 1 sets timers at 10 and 20 us, x = 2 cancels that at 20; the timer at 10 cancels that at 20 for x = 3."""

    first = flow.value_state(pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for x in rows["x"].to_pylist():
            if x in (1, 3):
                self.first.set(x)
                ctx.timers.event(moment(10))
                ctx.timers.event(moment(20))
            elif x == 2:
                ctx.timers.cancel(moment(20))

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "x": (due - moment(0)).microseconds})
        if due == moment(10) and self.first.get() == 3:
            ctx.timers.cancel(moment(20))


@pytest.mark.parametrize("watermarks", [[10, 20], [30]])
def test_a_cancelled_timer_does_not_fire(watermarks: list[int]) -> None:
    cancel = Driver(Cancel)
    cancel.rows(("a", 0, 1), ("b", 0, 1), ("b", 0, 2), ("c", 0, 3))
    cancel.rows(("d", 0, 2))
    for watermark in watermarks:
        cancel.advance(watermark)
    assert cancel.take() == [("a", 10), ("b", 10), ("c", 10), ("a", 20)]


def test_a_timer_that_waits_for_the_next_watermark_can_be_cancelled() -> None:
    class Waits(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(moment(1))
            ctx.timers.event(moment(2))

        def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
            ctx.emit({"k": key, "x": due.microsecond})
            if due == moment(1):
                ctx.timers.event(moment(0))
            elif key == "b":
                ctx.timers.cancel(moment(0))

    waits = Driver(Waits)
    waits.rows(("a", 0, 0), ("b", 0, 0))
    waits.advance(5)
    assert waits.take() == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    waits.advance(6)
    assert waits.take() == [("a", 0)]


def test_due_times_have_a_zone_if_the_rows_have_one() -> None:
    found: list[Any] = []

    class Zoned(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            found.append(ctx.watermark)
            ctx.timers.event(rows["at"][0].as_py())

        def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
            found.extend([due, ctx.watermark])

    zoned = Driver(Zoned, schema=ROWS.set(1, pa.field("at", pa.timestamp("us", "Europe/Berlin"))))
    zoned.rows(("a", 3, 0))
    zoned.advance(5)
    zoned.rows(("a", 7, 0))
    zoned.end()
    utc = [moment(n).replace(tzinfo=UTC) for n in (3, 5, 5, 7)]
    assert found == [None, *utc, datetime.max.replace(tzinfo=UTC)]


def test_a_due_time_may_be_of_arrow_or_aware() -> None:
    class Aware(Alarm):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(rows["at"][0])
            ctx.timers.event(pa.scalar(7_001, pa.timestamp("ns")))
            ctx.timers.event(pa.scalar(0, pa.timestamp("s", "Asia/Tokyo")))
            ctx.timers.event(moment(9).replace(tzinfo=UTC))

    aware = Driver(Aware)
    aware.rows(("a", 5, 0))
    aware.end()
    assert aware.take() == [("a", 0), ("a", 5), ("a", 8), ("a", 9)]


NANOSECONDS = [6_999, 7_000, 7_001, -1]


@pytest.mark.parametrize("dues", [pa.array(NANOSECONDS, pa.timestamp("ns")), np.array(NANOSECONDS, "M8[ns]")])
def test_a_timer_is_never_early_though_its_due_time_has_nanoseconds(dues: Any) -> None:
    class Fine(AlarmInColumns):
        def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(slots, dues)

    fine = Driver(Fine)
    fine.rows(*((key, 0, 0) for key in "abcd"))
    fine.end()
    assert fine.take() == [("d", 0), ("a", 7), ("b", 7), ("c", 8)]


@pytest.mark.parametrize("due", [5, "5us", timedelta(1), None, pa.scalar(None, US)])
def test_a_due_time_that_is_no_datetime_is_refused(due: Any) -> None:
    class Wrong(Alarm):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(due)

    with pytest.raises(TypeError, match="process 'op': a timer is due at a datetime, got "):
        Driver(Wrong).rows(("a", 5, 0))


@pytest.mark.parametrize(
    ("dues", "error"),
    [
        (np.array([2**63 - 1]), "does not fit into microseconds"),
        (pa.array([10**13], pa.timestamp("s")), "does not fit into microseconds"),
        (pa.array([None], US), "1 due times are null"),
        (np.array([1, 2]), "expected 1 due times"),
        (np.array([1.5]), "expected due times as timestamps"),
    ],
)
def test_wrong_columns_of_due_times_are_refused(dues: Any, error: str) -> None:
    class Wrong(AlarmInColumns):
        def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(slots, dues)

    with pytest.raises((TypeError, ValueError, OverflowError), match=error):
        Driver(Wrong).rows(("a", 5, 0))


class Clocked(flow.KeyedProcess):
    """Sets a timer of the clock x us after the time 100."""

    repeats: ClassVar[bool] = False

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for x in rows["x"].to_pylist():
            ctx.timers.clock(moment(100 + x))
            if x == 13:
                ctx.timers.cancel_clock(moment(113))

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "x": (due - moment(0)).microseconds})
        if self.repeats:
            ctx.timers.clock(due)


def test_timers_of_the_clock_fire_when_it_is_there() -> None:
    clocked = Driver(Clocked, time=None)
    clocked.clock.advance(50)
    clocked.rows(("a", 0, 7), ("b", 0, 3), ("c", 0, 13))
    clocked.ring()
    assert clocked.take() == []
    clocked.clock.advance(55)
    clocked.ring()
    assert clocked.take() == [("b", 103)]
    clocked.clock.advance(5)
    clocked.ring()
    assert clocked.take() == [("a", 107)]
    clocked.rows(("d", 0, 4), ("e", 0, 90))
    clocked.end()
    assert clocked.take() == []
    clocked.finish()
    assert clocked.take() == [("d", 104)]


def test_a_timer_of_the_clock_that_is_past_fires_after_the_call() -> None:
    class Repeats(Clocked):
        repeats = True

    clocked = Driver(Repeats)
    clocked.clock.advance(500)
    clocked.rows(("a", 0, 7))
    assert clocked.take() == []
    for _ in range(3):
        clocked.ring()
        assert clocked.take() == [("a", 107)]


def test_timers_of_the_clock_are_asked_for_again_after_a_restore() -> None:
    clocked = Driver(Clocked)
    clocked.rows(("a", 0, 7))
    clocked = Driver(Clocked, restored=clocked.snapshot())
    clocked.clock.advance(200)
    clocked.ring()
    assert clocked.take() == [("a", 107)]
