"""The state of process functions: against plain Python, over restores, and with values that do not fit."""

from __future__ import annotations

import math
import random
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import CheckpointDamaged, CheckpointMismatch, ContractViolation, GraphError, SchemaMismatch
from tests.operators.process.process_driver import US, Driver, moment
from tests.seeds import seeds

INT = pa.schema({"k": pa.string(), "x": pa.int64()})


class Everything(flow.KeyedProcess):
    """Changes state as its rows say, and checks it against a model, which lives as long as the test."""

    value = flow.value_state(pa.string())
    nested = flow.value_state(pa.list_(pa.int64()))
    items = flow.list_state(pa.float64())
    pairs = flow.map_state(pa.float64(), pa.struct({"n": pa.int64()}))
    model: dict[Any, dict[str, Any]]

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for x in rows["x"].to_pylist():
            draw = random.Random(x)
            model = self.model.setdefault(key, {"value": None, "nested": None, "items": [], "pairs": {}})
            for _ in range(draw.randrange(4)):
                self.change(draw, model)
            self.check(model)

    def change(self, draw: random.Random, model: dict[str, Any]) -> None:
        number = draw.randrange(5)
        entry = [0.5, -0.0, 1.0, math.nan][draw.randrange(4)]
        own = "nan" if entry != entry else entry
        match draw.randrange(10):
            case 0:
                model["value"] = None
                self.value.clear()
            case 1 | 2:
                model["value"] = f"é{number}"
                self.value.set(f"é{number}")
            case 3:
                model["nested"] = None if number == 0 else [number, number + 1]
                self.nested.set(model["nested"])
            case 4:
                model["items"].append(float(number))
                self.items.append(number)
            case 5:
                model["items"] += [1.5, None]
                self.items.extend([1.5, None])
            case 6 if number == 0:
                model["items"] = []
                self.items.clear()
            case 7:
                model["pairs"].pop(own, None)
                self.pairs.remove(entry)
            case 8 if number == 0:
                model["pairs"] = {}
                self.pairs.clear()
            case _:
                model["pairs"][own] = None if number == 4 else {"n": number}
                self.pairs.put(entry, model["pairs"][own])

    def check(self, model: dict[str, Any]) -> None:
        assert self.value.get("none") == (model["value"] or "none")
        assert self.nested.get() == model["nested"]
        assert self.items.get() == model["items"]
        found = [("nan" if entry != entry else entry, value) for entry, value in self.pairs.items()]
        assert found == list(model["pairs"].items())
        for entry in (0.5, 0, 1.0, math.nan):
            own = "nan" if entry != entry else entry
            assert self.pairs.get(entry, "none") == model["pairs"].get(own, "none")


@pytest.mark.parametrize("seed", seeds(4, 300))
def test_state_is_that_of_plain_python(seed: int) -> None:
    draw = random.Random(seed)
    model: dict[Any, dict[str, Any]] = {}
    function = type("Function", (Everything,), {"model": model})
    driver = Driver(function)
    for _ in range(12):
        driver.rows(*[(draw.choice(["a", "b", None]), 0, draw.randrange(10**6)) for _ in range(draw.randint(1, 6))])
        if draw.random() < 0.3:
            driver = Driver(function, restored=driver.snapshot())
    empty = [key for key, kept in model.items() if kept["value"] is None and kept["nested"] is None]
    assert driver.live == len(model) - len(empty)


class Columns(flow.BatchProcess):
    """Changes state as its rows say, all of them at once, and checks it against a model. Some calls fail."""

    fails: bool
    value = flow.value_state(pa.string())
    brief = flow.value_state(pa.int32(), ttl="100d")
    items = flow.list_state(pa.int64())
    pairs = flow.map_state(pa.string(), pa.int64())
    model: dict[Any, dict[str, Any]]

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        model = deepcopy(self.model) if self.fails and sum(rows["x"].to_pylist()) % 2 else None
        ctx.emit({"k": None, "x": rows.num_rows})
        self.change(slots, rows, ctx)
        if model is not None:
            self.model.clear()
            self.model.update(model)
            raise ZeroDivisionError

    def change(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        keys, numbers = rows["k"].to_pylist(), rows["x"].to_pylist()
        assert ctx.keys(slots)["k"].to_pylist() == keys
        models = [self.model.setdefault(key, {"value": None, "brief": None, "items": [], "pairs": {}}) for key in keys]
        self.check(slots, models)
        texts = [None if x % 3 == 0 else f"t{x}" for x in numbers]
        self.value.set(slots, texts)
        self.brief.set(slots, pa.array([None if x % 4 == 0 else x for x in numbers]))
        self.items.append(slots, numbers)
        self.pairs.put(slots, [f"p{x % 3}" for x in numbers], numbers)
        for model, x, text in zip(models, numbers, texts, strict=True):
            model["value"], model["brief"] = text, None if x % 4 == 0 else x
            model["items"].append(x)
            model["pairs"][f"p{x % 3}"] = x
        self.check(slots, models)
        some = slots[:1]
        if numbers[0] % 5 == 0:
            self.items.clear(some)
            models[0]["items"] = []
        if numbers[0] % 5 == 1:
            self.pairs.remove(some, ["p0"])
            models[0]["pairs"].pop("p0", None)
        if numbers[0] % 5 == 2:
            self.pairs.clear(some)
            models[0]["pairs"].clear()
        if numbers[0] % 5 == 3:
            self.value.clear(some)
            self.brief.clear(some)
            models[0].update(value=None, brief=None)
        self.check(slots, models)

    def check(self, slots: Any, models: list[dict[str, Any]]) -> None:
        for name, state in (("value", self.value), ("brief", self.brief), ("items", self.items)):
            assert state.get(slots).to_pylist() == [model[name] for model in models]
        found = self.pairs.items(slots).to_pylist()
        assert found == [list(model["pairs"].items()) for model in models]
        got = self.pairs.get(slots, pa.repeat("p1", len(slots))).to_pylist()
        assert got == [model["pairs"].get("p1") for model in models]


@pytest.mark.parametrize("seed", seeds(4, 300))
def test_columns_of_state_are_those_of_plain_python(seed: int) -> None:
    draw = random.Random(seed)
    fails = seed % 2 > 0
    members: dict[str, Any] = {"model": {}, "fails": fails}
    if seed % 4 > 1:
        members["items"] = flow.list_state(pa.int64(), ttl="100d")
        members["pairs"] = flow.map_state(pa.string(), pa.int64(), ttl="100d")
    function = type("Function", (Columns,), members)
    policy = "skip" if fails else "fail"
    driver, failed = Driver(function, on_error=policy), 0
    for _ in range(12):
        rows = [(draw.choice(["a", "b", None]), 0, draw.randrange(1000)) for _ in range(draw.randint(1, 6))]
        failed += len(rows) * (fails and sum(x for _, _, x in rows) % 2)
        before = driver.context.tally.skipped
        driver.rows(*rows)
        failed -= driver.context.tally.skipped - before
        if draw.random() < 0.3:
            driver = Driver(function, on_error=policy, restored=driver.snapshot())
    assert failed == 0


def sets(type_: pa.DataType, value: Any) -> Any:
    """A function that sets a value of a type, and emits what it reads."""

    class Sets(flow.KeyedProcess):
        last = flow.value_state(type_)

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            if rows["x"][0].as_py() == 0:
                self.last.set(value)
            ctx.emit({"x": self.last.get()})

    return Driver(Sets, output=pa.schema({"x": type_}))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.int8(), 300),
        (pa.int64(), 1.5),
        (pa.int64(), True and "1"),
        (pa.uint8(), -1),
        (pa.bool_(), 2),
        (pa.string(), b"\xff"),
        (pa.string(), "\ud800"),
        (pa.float64(), "x"),
        (pa.timestamp("s"), moment(1)),
        (pa.date32(), moment(1)),
        (pa.list_(pa.int64()), [1.5]),
        (pa.struct({"n": pa.int8()}), {"n": 128}),
        (pa.decimal128(3, 1), 1000),
    ],
)
def test_a_value_that_does_not_fit_is_an_error(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"process 'op': state 'last' of key 'a': expected .*, got ") as raised:
        sets(type_, value).rows(("a", 0, 0))
    assert str(type_) in str(raised.value)
    assert "'a'" in "".join(raised.value.__notes__)


@pytest.mark.parametrize(
    ("type_", "value", "read"),
    [
        (pa.int8(), 2.0, 2),
        (pa.int64(), np.int32(7), 7),
        (pa.uint64(), 2**64 - 1, 2**64 - 1),
        (pa.float32(), 0.1, pa.scalar(0.1, pa.float32()).as_py()),
        (pa.float64(), 1, 1.0),
        (pa.string(), "é\0", "é\0"),
        (pa.timestamp("us"), moment(7), moment(7)),
        (pa.bool_(), np.bool_(1), True),
        (pa.list_(pa.string()), ("a", None), ["a", None]),
        (pa.float64(), pa.scalar(2.5), 2.5),
    ],
)
def test_a_value_reads_the_same_before_and_after_it_is_stored(type_: pa.DataType, value: Any, read: Any) -> None:
    driver = sets(type_, value)
    driver.rows(("a", 0, 0))
    driver.rows(("a", 0, 1))
    assert driver.take() == [(read,), (read,)]
    assert type(driver.operator._keys[0]) is str


def test_a_value_that_was_read_may_be_changed() -> None:
    class Reads(flow.KeyedProcess):
        last = flow.value_state(pa.list_(pa.int64()))

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            value = self.last.get([])
            value.append(1)
            ctx.emit({"k": key, "x": len(self.last.get([]))})
            self.last.set(value)
            value.append(2)
            ctx.emit({"k": key, "x": len(self.last.get())})

    driver = Driver(Reads)
    driver.rows(("a", 0, 0))
    driver.rows(("a", 0, 0))
    assert driver.take() == [("a", 0), ("a", 1), ("a", 1), ("a", 2)]


def test_reading_state_writes_nothing_into_checkpoints() -> None:
    class Reads(flow.KeyedProcess):
        last = flow.value_state(pa.int64())

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            if self.last.get() is None or rows["x"][0].as_py():
                self.last.set(rows["x"][0].as_py())

    driver = Driver(Reads)
    driver.rows(*[(f"k{n}", 0, n) for n in range(50)])
    main = driver.operator._states.main
    for reader in main.freeze(1).values():
        reader.read_all()
    main.durable(1)
    driver.rows(("k1", 0, 0), ("k2", 0, 9), ("k3", 0, 0))
    assert main.freeze(2, since=1)["keys"].read_all()["k"].to_pylist() == ["k2"]


def test_keys_of_several_columns_are_tuples() -> None:
    class Keys(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.emit({"k": repr(key), "x": rows.num_rows})

    driver = Driver(Keys, keys=("k", "at"))
    driver.rows(("b", 0, 0), ("a", 1, 0), ("b", 0, 0), (None, 1, 0))
    assert driver.take() == [
        (repr(("b", moment(0))), 2),
        (repr(("a", moment(1))), 1),
        (repr((None, moment(1))), 1),
    ]


def test_calls_come_as_keys_arrive_with_rows_in_order() -> None:
    found: list[Any] = []

    class Order(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            found.append((key, rows["x"].to_pylist()))

    driver = Driver(Order)
    driver.rows(("b", 0, 1), ("a", 0, 2), ("b", 0, 3), ("c", 0, 4), ("a", 0, 5))
    driver.rows(("a", 0, 6), ("c", 0, 7), ("a", 0, 8))
    assert found == [("b", [1, 3]), ("a", [2, 5]), ("c", [4]), ("a", [6, 8]), ("c", [7])]


def typed(type_: pa.DataType, ttl: str | None = None, name: str = "last") -> Any:
    def process(self: Any, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        getattr(self, name).set(None)

    return type("Typed", (flow.KeyedProcess,), {name: flow.value_state(type_, ttl=ttl), "process": process})


@pytest.mark.parametrize(
    ("now", "error"),
    [
        (typed(pa.int32()), r"'op': last was value_state\(int64\), now value_state\(int32\)"),
        (typed(pa.int64(), "1d"), r"'op': last was value_state\(int64\), now value_state\(int64, ttl='1d'\)"),
        (typed(pa.int64(), name="other"), r"'op': last was value_state\(int64\), now absent"),
    ],
)
def test_state_that_is_declared_in_another_way_is_not_restored(now: Any, error: str) -> None:
    store = flow.MemoryStore()

    def run(function: Any) -> None:
        with flow.Pipeline() as p:
            rows = p.source(op.from_arrow(pa.table({"k": ["a"]})), name="rows").key_by("k")
            rows.process(function, schema=pa.schema({"k": pa.string()}), name="op").sink(op.collect(), name="out")
        p.run(checkpoint=flow.Checkpointing(store))

    run(typed(pa.int64()))
    with pytest.raises(CheckpointMismatch, match=error):
        run(now)


def test_state_with_the_name_of_a_key_is_another_column() -> None:
    class Same(flow.KeyedProcess):
        k = flow.value_state(pa.int64())
        value = flow.map_state(pa.string(), pa.int64(), ttl="1d")

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.k.set(self.k.get(0) + 1)
            self.value.put("a", self.k.get())
            ctx.emit({"k": key, "x": self.value.get("a")})

    driver = Driver(Same)
    driver.rows(("a", 0, 0))
    driver = Driver(Same, restored=driver.snapshot())
    driver.rows(("a", 0, 0))
    assert driver.take() == [("a", 2)]


def test_expired_state_is_removed() -> None:
    class Brief(flow.KeyedProcess):
        value = flow.value_state(pa.int64(), ttl="10us")
        items = flow.list_state(pa.int64(), ttl="10us")
        pairs = flow.map_state(pa.int64(), pa.int64(), ttl="10us")

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.value.set(1)
            self.items.append(2)
            self.pairs.put(3, 4)

    driver = Driver(Brief)
    driver.rows(*[(f"k{n}", 5, 0) for n in range(20)])
    states = [state for store in driver.operator._states.stores.values() for state in store.states.values()]
    assert [state.live for state in states] == [20, 20, 20, 20]
    driver.advance(14)
    assert [state.live for state in states] == [20, 20, 20, 20]
    driver.advance(15)
    assert [state.live for state in states] == [0, 0, 0, 0]
    assert driver.live == 0


def test_a_timer_reads_state_as_of_its_due_time() -> None:
    class Brief(flow.KeyedProcess):
        value = flow.value_state(pa.int64(), ttl="10us")

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.value.set(1)
            ctx.timers.event(moment(9))
            ctx.timers.event(moment(10))

        def on_timer(self, key: Any, due: Any, ctx: flow.ProcessContext) -> None:
            ctx.emit({"k": str(due.microsecond), "x": self.value.get()})

    driver = Driver(Brief)
    driver.rows(("a", 0, 0))
    driver.end()
    assert driver.take() == [("9", 1), ("10", None)]


def test_state_cannot_be_used_before_it_is_there() -> None:
    class Early(flow.KeyedProcess):
        last = flow.value_state(pa.int64())

        def __init__(self) -> None:
            self.last.set(5)

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None: ...

    with pytest.raises(
        GraphError, match=r"value_state\(int64\) is a declaration: state is there while the engine calls process"
    ):
        Early()


def test_slots_of_another_call_are_refused() -> None:
    class Wrong(flow.BatchProcess):
        last = flow.value_state(pa.int64())

        def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.last.get(slots + 1000)

    with pytest.raises(ContractViolation, match="slots from 1000 to 1000 are none of this call"):
        Driver(Wrong).rows(("a", 0, 0))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (pa.array([1.5]), "an array of double does not fit int64"),
        (pa.array(["1"]), "expected int64, got an array of string; cast it"),
        (pa.array([1, 2]), "expected 1 values, one for each slot, got 2"),
        (["x"], r"expected int64, got 'x' \(str\)"),
        (pa.array([moment(0)], US), "expected int64, got an array of timestamp"),
    ],
)
def test_columns_that_do_not_fit_are_refused(values: Any, error: str) -> None:
    class Wrong(flow.BatchProcess):
        last = flow.value_state(pa.int64())

        def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.last.set(slots, values)

    with pytest.raises(SchemaMismatch, match=f"process 'op': state 'last': {error}"):
        Driver(Wrong).rows(("a", 0, 0))


def test_a_key_goes_with_its_last_value() -> None:
    class Cleared(flow.KeyedProcess):
        one = flow.value_state(pa.int64())
        other = flow.value_state(pa.string())

        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            for x in rows["x"].to_pylist():
                self.one.set(x if x in (1, 3) else None)
                self.other.set("x" if x in (2, 3) else None)

    driver = Driver(Cleared)
    for x, live in ((0, 0), (3, 1), (1, 1), (2, 1), (0, 0), (1, 1)):
        driver.rows(("a", 0, x))
        assert driver.live == live, x


class BriefColumns(flow.BatchProcess):
    """Emits what it reads from state that expires, and writes 1, or for x = 0 nothing."""

    value = flow.value_state(pa.int64(), ttl="10us")
    pairs = flow.map_state(pa.int64(), pa.int64(), ttl="10us")

    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        entries = [len(entries) for entries in self.pairs.items(slots).to_pylist()]
        for key, value, count in zip(rows["k"].to_pylist(), self.value.get(slots).to_pylist(), entries, strict=True):
            ctx.emit({"k": f"{key} {value}", "x": count})
        some = slots[rows["x"].to_numpy() > 0]
        self.value.set(some, 1)
        self.pairs.put(some, rows["x"].filter(pa.array(rows["x"].to_numpy() > 0)), 1)


def test_columns_expire_by_the_time_of_the_rows_of_each_key() -> None:
    driver = Driver(BriefColumns)
    driver.rows(("a", 0, 1), ("b", 50, 1))
    driver.rows(("a", 9, 0), ("b", 59, 0))
    driver.rows(("a", 10, 0), ("b", 60, 0))
    assert driver.take() == [
        *[("a None", 0), ("b None", 0)],
        *[("a 1", 1), ("b 1", 1)],
        *[("a None", 0), ("b None", 0)],
    ]


def test_an_expired_mapping_begins_anew() -> None:
    driver = Driver(BriefColumns)
    driver.rows(("a", 0, 1))
    driver.rows(("a", 20, 2))
    driver.rows(("a", 21, 0))
    assert driver.take() == [("a None", 0), ("a None", 0), ("a 1", 1)]


class BriefValue(flow.KeyedProcess):
    """Emits what it reads from state that expires, and writes x, or for x = 0 nothing; it raises for x = 7."""

    value = flow.value_state(pa.int64(), ttl="10us")

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        (x,) = rows["x"].to_pylist()
        ctx.emit({"k": key, "x": self.value.get()})
        if x:
            self.value.set(x)
        if x == 7:
            raise ValueError("seven")


def test_a_failed_call_does_not_renew_state() -> None:
    driver = Driver(BriefValue, on_error="skip")
    driver.rows(("a", 0, 1))
    driver.rows(("a", 8, 7))
    driver.rows(("a", 9, 0))
    driver.rows(("a", 10, 0))
    assert driver.take() == [("a", None), ("a", 1), ("a", None)]


def test_time_is_at_least_the_restored_watermark() -> None:
    driver = Driver(BriefValue)
    driver.advance(100)
    driver = Driver(BriefValue, restored=driver.snapshot())
    driver.rows(("a", 5, 1))
    driver.rows(("a", 20, 0))
    driver.rows(("a", 110, 0))
    assert driver.take() == [("a", None), ("a", 1), ("a", None)]


def test_nothing_expires_by_the_last_watermark_for_rows_that_come_again() -> None:
    first = Driver(BriefValue)
    first.rows(("a", 5, 1))
    first.end()
    for driver in (first, Driver(BriefValue, restored=first.snapshot())):
        driver.rows(("a", 6, 0))
        assert driver.take()[-1] == ("a", 1)


def test_a_count_of_values_that_is_out_of_range_is_damage() -> None:
    driver = Driver(Counted)
    driver.rows(("a", 0, 1))
    for piece, table, column in (("state listed", "rows", "/time"), ("state pairs", "keys", "number")):
        snapshot = driver.snapshot()
        (part,) = snapshot.logs[piece]  # type: ignore[misc]
        rows = part[table]
        far = rows.set_column(rows.column_names.index(column), column, pa.array([2**63 - 1]))
        logs = {**snapshot.logs, piece: [{**part, table: far.replace_schema_metadata(rows.schema.metadata)}]}
        with pytest.raises(CheckpointDamaged, match=f"op: {piece}: the numbers '{column}' are .* out of range"):
            Driver(Counted, restored=replace(snapshot, logs=logs))


class Counted(flow.KeyedProcess):
    """Counts values: those of a list, and the entries of a mapping."""

    listed = flow.list_state(pa.int64())
    pairs = flow.map_state(pa.int64(), pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        self.listed.append(1)
        self.pairs.put(1, 1)


def test_a_failed_timer_does_not_renew_state_that_a_later_timer_reads() -> None:
    class Timed(BriefValue):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            self.value.set(1)
            for due in (8, 9, 12):
                ctx.timers.event(moment(due))

        def on_timer(self, key: Any, due: Any, ctx: flow.ProcessContext) -> None:
            ctx.emit({"k": str(due.microsecond), "x": self.value.get()})
            if due == moment(8):
                self.value.set(7)
                raise ValueError("seven")

    driver = Driver(Timed, on_error="skip")
    driver.rows(("a", 0, 1))
    driver.advance(50)
    assert driver.take() == [("9", 1), ("12", None)]


def test_a_failed_call_does_not_drop_what_had_expired_for_it() -> None:
    class Fails(BriefColumns):
        items = flow.list_state(pa.int64(), ttl="10us")

        def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            super().process(slots, rows, ctx)
            ctx.emit({"k": repr(self.items.get(slots).to_pylist()), "x": None})
            self.items.append(slots, rows["x"])
            ctx.timers.event(slots, rows["at"])
            if rows["x"][0].as_py() == 7:
                raise ValueError("seven")

    driver = Driver(Fails, on_error="side")
    driver.rows(("a", 0, 1))
    driver.rows(("a", 20, 7), ("b", 30, 8))
    driver.rows(("a", 5, 0))
    assert driver.take() == [("a None", 0), ("[[]]", None), ("a 1", 1), ("[[1]]", None)]
    driver.rows(("a", 10, 0))
    assert driver.take()[0] == ("a None", 0)
    assert [where for where, _, _ in driver.take("errors")] == ["process 'op'"] * 2
    driver.operator._function.on_timer = lambda slots, dues, ctx: 1 / 0
    driver.end()
    assert [row for _, row, _ in driver.take("errors")] == [f"timer of key 'a' due {moment(n)}" for n in (0, 5, 10)]


def test_a_late_write_does_not_shorten_a_life() -> None:
    driver = Driver(BriefValue)
    driver.rows(("a", 8, 1))
    driver.rows(("a", 3, 2))
    driver.rows(("a", 17, 0))
    driver.rows(("a", 18, 0))
    assert driver.take() == [("a", None), ("a", 1), ("a", 2), ("a", None)]
