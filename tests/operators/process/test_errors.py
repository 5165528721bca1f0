"""Process functions that raise, or emit what they must not: what the error says, and what is undone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.errors import ContractViolation, SchemaMismatch
from tests.operators.process.process_driver import Driver, moment

FAR = timedelta(microseconds=10)


class Picky(flow.KeyedProcess):
    """Changes everything it can, and then raises if a row has x = 7; its timers raise if the sum is above 100."""

    total = flow.value_state(pa.int64())
    brief = flow.value_state(pa.int64(), ttl="1d")
    seen = flow.list_state(pa.int64())
    pairs = flow.map_state(pa.int64(), pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for x in rows["x"].to_pylist():
            self.total.set(self.total.get(0) + x)
            self.brief.set(x)
            self.seen.append(x)
            self.pairs.put(x, self.pairs.get(x, 0) + 1)
            self.pairs.remove(x - 1)
            if x == 50:
                self.seen.clear()
            ctx.timers.event(moment(x))
            ctx.emit({"k": key, "x": x})
            ctx.emit({"k": key, "x": x}, tag="copy")
        if 7 in rows["x"].to_pylist():
            ctx.timers.cancel(moment(5))
            raise ValueError("seven")

    def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
        self.seen.append(1000)
        ctx.emit({"k": key, "x": self.total.get()})
        ctx.timers.event(due + FAR)
        if due == moment(5):
            ctx.timers.cancel(moment(6))
        if self.total.get() > 100:
            raise ValueError("too much")

    def shown(self) -> tuple[Any, ...]:
        return self.total.get(), self.brief.get(), self.seen.get(), self.pairs.items()


class Show(Picky):
    """Shows the state for x = -1."""

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        if rows["x"].to_pylist() == [-1]:
            ctx.emit({"k": repr(self.shown()), "x": None})
        else:
            super().process(key, rows, ctx)


SIDES = {"copy": pa.schema({"k": pa.string(), "x": pa.int64()})}


@pytest.mark.parametrize("policy", ["skip", "side"])
def test_all_that_a_failed_call_did_is_undone(policy: str) -> None:
    failed, clean = (Driver(Show, on_error=policy, sides=SIDES) for _ in range(2))
    for driver in (failed, clean):
        driver.rows(("a", 0, 5), ("b", 0, 3))
    failed.rows(("a", 0, 6), ("a", 0, 50), ("a", 0, 7), ("b", 0, 4))
    clean.rows(("b", 0, 4))
    shown = []
    for driver in (failed, clean):
        driver.rows(("a", 0, -1))
        driver.rows(("b", 0, -1))
        driver.advance(8)
        driver.end()
        shown.append((driver.take(), driver.take("copy")))
    assert shown[0] == shown[1]
    assert failed.context.tally.skipped == 3
    assert clean.context.tally.skipped == 0
    aside = [("process 'op', key 'a'", f"{{'k': 'a', 'at': {moment(0)!r}, 'x': {x}}}") for x in (6, 50, 7)]
    expected = [(*each, "ValueError: seven") for each in aside]
    assert failed.take("errors") == (expected if policy == "side" else [])


def test_a_failed_timer_is_one_row_of_errors() -> None:
    driver = Driver(Show, on_error="side", sides=SIDES)
    driver.rows(("a", 0, 60), ("b", 0, 5), ("b", 0, 6))
    driver.rows(("a", 0, 61))
    driver.take()
    driver.advance(62)
    assert driver.take() == [("b", 11)]
    assert driver.take("errors") == [
        ("process 'op', key 'a'", f"timer of key 'a' due {moment(n)}", "ValueError: too much") for n in (60, 61)
    ]
    driver.rows(("a", 0, -1))
    assert driver.take() == [(repr((121, 61, [60, 61], [(61, 1)])), None)]


def test_a_timer_that_a_failed_timer_cancelled_fires() -> None:
    class Cancels(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(moment(1))
            ctx.timers.event(moment(2))

        def on_timer(self, key: Any, due: datetime, ctx: flow.ProcessContext) -> None:
            ctx.emit({"k": key, "x": due.microsecond})
            ctx.timers.cancel(moment(2))
            if due == moment(1):
                raise ValueError

    driver = Driver(Cancels, on_error="skip")
    driver.rows(("a", 0, 0))
    driver.advance(5)
    assert driver.take() == [("a", 2)]


def test_an_error_names_the_operator_the_key_and_the_rows() -> None:
    driver = Driver(Picky, sides=SIDES)
    with pytest.raises(ValueError, match="seven") as raised:
        driver.rows(("a", 0, 1), ("b", 0, 7))
    (note,) = raised.value.__notes__
    assert note.startswith("at process 'op', key 'b', rows {'k': 'b', 'at': datetime.datetime(1970")
    assert "in Picky.process; on_error='skip' leaves" in note


def test_an_error_of_a_timer_names_the_key_and_the_due_time() -> None:
    driver = Driver(Picky, sides=SIDES)
    driver.rows(("b", 0, 101))
    with pytest.raises(ValueError, match="too much") as raised:
        driver.end()
    (note,) = raised.value.__notes__
    assert note.startswith(f"at process 'op', key 'b', due {moment(101)}, in Picky.on_timer")


def emits(*rows: Any, tag: str | None = None) -> Any:
    class Emits(flow.KeyedProcess):
        def process(self, key: Any, given: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            for row in rows:
                ctx.emit(row, tag)

    return Emits


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"k": "a"}, "process 'op': an emitted row does not fit: column 'x' is missing"),
        ({"k": "a", "x": 1, "y": 2}, "column 'y' is not in the declared schema"),
        ({"k": "a", "x": "1"}, r"process 'op': column 'x': expected int64, got '1' \(str\)"),
        ({"k": "a", "x": 1.5}, "expected int64, got 1.5"),
        (pa.record_batch({"k": ["a"], "x": [1.5]}), "process 'op': an emitted batch does not have the declared schema"),
        (pa.record_batch({"k": ["a"]}), "column 'x' .int64. is missing"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused(row: Any, error: str) -> None:
    with pytest.raises(SchemaMismatch, match=error):
        Driver(emits(row)).rows(("a", 0, 0))


@pytest.mark.parametrize("row", [[{"k": "a", "x": 1}], "x", None, pa.table({"k": ["a"], "x": [1]})])
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises(
        ContractViolation, match=r"process 'op': expected a row, as a mapping, or a pyarrow.RecordBatch"
    ):
        Driver(emits(row)).rows(("a", 0, 0))


def test_an_undeclared_tag_is_refused() -> None:
    with pytest.raises(ContractViolation, match=r"process 'op': there is no side output 'b'; declared are \['copy'\]"):
        Driver(emits({"k": "a", "x": 1}, tag="b"), sides=SIDES).rows(("a", 0, 0))


def test_a_null_where_the_schema_has_none_is_refused() -> None:
    strict = pa.schema([pa.field("k", pa.string()), pa.field("x", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatch, match="column 'x': expected int64, not null, got None"):
        Driver(emits({"k": "a", "x": None}), output=strict).rows(("a", 0, 0))


def test_rows_and_batches_keep_their_order() -> None:
    batch = pa.record_batch({"x": [2, 3], "k": ["b", "c"]})
    driver = Driver(emits({"k": "a", "x": 1}, batch, {"k": None, "x": 4}))
    driver.rows(("a", 0, 0))
    assert driver.take() == [("a", 1), ("b", 2), ("c", 3), (None, 4)]


def test_a_method_with_yield_is_refused() -> None:
    class Yields(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> Any:
            yield {"k": key, "x": 1}

    with pytest.raises(
        ContractViolation, match=r"Yields.process returned a value, which would be lost; emit rows with"
    ):
        Driver(Yields).rows(("a", 0, 0))


DECLARED = [
    (flow.value_state(pa.int64()), r"set\(value\)"),
    (flow.list_state(pa.int64()), r"append\(value\)"),
    (flow.map_state(pa.int64(), pa.int64()), r"put\(key, value\)"),
]


@pytest.mark.parametrize(("declared", "call"), DECLARED, ids=lambda each: getattr(each, "word", ""))
def test_an_assignment_to_a_state_is_refused(declared: Any, call: str) -> None:
    class Assigns(flow.KeyedProcess):
        kept = declared

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.kept = 5

    with pytest.raises(
        ContractViolation, match=rf"Assigns.kept is declared as {declared.word}.*; call self.kept.{call}"
    ):
        Driver(Assigns).rows(("a", 0, 0))


def test_state_and_rows_of_close_are_refused_because_they_would_be_lost() -> None:
    errors = []

    class Late(flow.KeyedProcess):
        kept = flow.value_state(pa.int64())

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.ctx = ctx

        def close(self) -> None:
            for call in (lambda: self.kept.set(1), lambda: self.ctx.emit({"k": "a", "x": 1})):
                with pytest.raises(ContractViolation) as error:
                    call()
                errors.append(str(error.value))

    driver = Driver(Late)
    driver.rows(("a", 0, 0))
    driver.operator.close()
    assert errors == [
        "process 'op': state 'kept' is that of a key, and close has none; use it in process and on_timer",
        "process 'op': a row is emitted after the last call, where it would be lost; emit it in process or on_timer",
    ]


def test_a_timer_without_on_timer_is_an_error() -> None:
    class Sets(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.timers.event(moment(1))

    driver = Driver(Sets)
    driver.rows(("a", 0, 0))
    with pytest.raises(NotImplementedError, match="Sets sets timers; define on_timer"):
        driver.end()
