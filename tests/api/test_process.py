"""``stream.process``: what it takes, what it refuses, and the options of the operator."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch

TABLE = pa.table({"k": ["a", "b", "a"], "x": [1, 2, 3]})
OUT = pa.schema({"k": pa.string(), "x": pa.int64()})


class Passed(flow.KeyedProcess):
    def __init__(self, factor: int = 1) -> None:
        self.factor = factor

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            ctx.emit({"k": key, "x": self.factor * row["x"]})
            ctx.emit({"k": key, "x": row["x"]}, tag="copy")


class PassedBatches(flow.BatchProcess):
    def process(self, slots: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ctx.emit(rows)


def source(table: pa.Table = TABLE) -> Any:
    return flow.Pipeline().source(op.from_arrow(table), name="rows")


def xs(stream: flow.Stream) -> list[int]:
    return sorted(stream.collect()["x"].to_pylist())


def test_a_class_or_a_factory_is_taken() -> None:
    keyed = source().key_by("k")
    made = [Passed, Passed, partial(Passed, 2), lambda: Passed(3), PassedBatches]
    streams = [
        keyed.process(function, sides=None if function is PassedBatches else {"copy": None}, name=f"p{n}")
        for n, function in enumerate(made)
    ]
    assert [xs(stream) for stream in streams] == [[1, 2, 3], [1, 2, 3], [2, 4, 6], [3, 6, 9], [1, 2, 3]]
    assert xs(streams[0].side("copy")) == [1, 2, 3]


def test_each_subtask_has_an_instance_that_is_opened_and_closed() -> None:
    calls: list[str] = []

    class Opened(Passed):
        numbers = itertools.count()

        def open(self) -> None:
            self.number = next(self.numbers)
            calls.append("open")

        def close(self) -> None:
            calls.append("close")

    stream = source().key_by("k").process(Opened, sides={"copy": None}, parallelism=2, name="opened")
    assert xs(stream) == [1, 2, 3]
    assert sorted(calls) == ["close", "close", "open", "open"]
    assert next(Opened.numbers) == 2


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (Passed(), "expected a class, or a function that returns a new instance for each subtask, got Passed"),
        (5, "expected a class, or a function that returns a new instance for each subtask, got int"),
        (dict, "expected a subclass of flow.KeyedProcess or flow.BatchProcess, or .*, got dict"),
        (lambda: 5, "expected a subclass of flow.KeyedProcess or flow.BatchProcess, or .*, got int"),
        (flow.KeyedProcess, r"KeyedProcess must define process\(self, key, rows, ctx\)"),
        (type("Empty", (flow.BatchProcess,), {}), r"Empty must define process\(self, slots, rows, ctx\)"),
    ],
)
def test_what_is_no_process_function_is_refused(function: Any, error: str) -> None:
    with pytest.raises(GraphError, match=f"process: {error}"):
        source().key_by("k").process(function)


def test_a_factory_that_returns_one_instance_twice_is_refused() -> None:
    one = Passed()
    stream = source().key_by("k").process(lambda: one, sides={"copy": None}, parallelism=2, name="one")
    with pytest.raises(
        GraphError, match=r"'one': .* returned one instance twice; each subtask needs an instance of its"
    ):
        stream.collect()


def test_state_that_an_instance_declares_is_refused() -> None:
    class Late(Passed):
        def __init__(self) -> None:
            self.total = flow.value_state(pa.int64())

    stream = source().key_by("k").process(Late, name="late")
    with pytest.raises(GraphError, match="Late declares state 'total' in an instance; declare it in the body"):
        stream.collect()


@pytest.mark.parametrize("name", ["open", "close", "on_timer", "process_broadcast"])
def test_a_state_with_the_name_of_a_method_is_refused(name: str) -> None:
    hiding = type("Hiding", (Passed,), {name: flow.value_state(pa.int64())})
    with pytest.raises(GraphError, match=f"Hiding declares a state {name!r}, which is the name of a method"):
        source().key_by("k").process(hiding)


def test_an_error_of_a_factory_says_when_it_is_called() -> None:
    with pytest.raises(TypeError) as error:
        source().key_by("k").process(lambda limit: Passed())
    assert "calls its function without arguments, once when the pipeline is built" in error.value.__notes__[0]


def test_a_stream_without_keys_is_refused() -> None:
    with pytest.raises(GraphError, match=r"process: the stream has no keys; name them first, as in key_by\('user'\)"):
        source().process(Passed)


def test_lists_are_no_keys() -> None:
    with pytest.raises(SchemaMismatch, match=r"the column 'k' of type list<.*> cannot be a key"):
        source(pa.table({"k": [[1]], "x": [1]})).key_by("k").process(Passed)


@pytest.mark.parametrize("emit", ["updates", "changes"])
def test_updates_and_signed_changes_are_refused(emit: str) -> None:
    totals = source().key_by("k").agg(x=flow.col("x").sum(), emit=emit, name="totals")
    with pytest.raises(GraphError, match=r"process: a function would be called with rows that .*put .as_rows\(\)"):
        totals.key_by("k").process(Passed)
    rules = pytest.raises(GraphError, match=r"process\(broadcast=\): .*put .as_rows\(\)")
    pipeline = flow.Pipeline()
    keyed = pipeline.source(op.from_arrow(TABLE), name="rows").key_by("k")
    with rules:
        keyed.process(Passed, broadcast=keyed.agg(x=flow.col("x").sum(), emit=emit, name="totals"))


def test_a_shared_mapping_needs_a_broadcast_stream() -> None:
    class Shared(Passed):
        rules = flow.shared_map(pa.string(), pa.int64())

    rows = source()
    with pytest.raises(GraphError, match=r"Shared declares shared_map 'rules', .*process\(..., broadcast=stream\)"):
        rows.key_by("k").process(Shared)
    with pytest.raises(GraphError, match=r"process\(broadcast=\): Shared must define process_broadcast"):
        rows.key_by("k").process(Shared, broadcast=rows)
    with pytest.raises(GraphError, match=r"process\(broadcast=\): 'rows' belongs to another pipeline"):
        rows.key_by("k").process(Shared, broadcast=source())


def test_the_policy_for_errors_is_checked() -> None:
    keyed = source().key_by("k")
    with pytest.raises(ConfigurationError, match=r"process\(on_error=\) must be one of"):
        keyed.process(Passed, on_error="ignore")
    with pytest.raises(GraphError, match="'errors' is the side output of on_error='side'; rename yours"):
        keyed.process(Passed, on_error="side", sides={"errors": None})
    with pytest.raises(GraphError, match=r"process\(sides=\): expected a dict from tag to pyarrow.Schema"):
        keyed.process(Passed, sides=["copy"])
    with pytest.raises(GraphError, match=r"has no side output 'copy'; declare it: process\(..., sides="):
        keyed.process(Passed, name="p").side("copy")


def test_rows_of_calls_that_raise_are_set_aside() -> None:
    class Fails(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.emit(rows)
            if key == "a":
                raise ValueError("no a")

    with flow.Pipeline() as p:
        fails = p.source(op.from_arrow(TABLE)).key_by("k").process(Fails, on_error="side", name="fails")
        fails.sink(op.collect(), name="out")
        fails.side("errors").sink(op.collect(), name="errors")
    result = p.run()
    assert result.table("out")["x"].to_pylist() == [2]
    assert result.table("errors")["row"].to_pylist() == ["{'k': 'a', 'x': 1}", "{'k': 'a', 'x': 3}"]
    assert result.operator("fails").skipped == 2


@pytest.mark.parametrize(
    ("declare", "error"),
    [
        (lambda: flow.value_state("int64"), "value_state: expected an Arrow type such as pa.int64"),  # type: ignore
        (lambda: flow.value_state(pa.null()), "value_state: state cannot have the type null"),
        (lambda: flow.list_state(pa.dictionary(pa.int8(), pa.string())), "state cannot have the type dictionary"),
        (lambda: flow.map_state(pa.list_(pa.int8()), pa.int8()), "cannot be the key of a mapping"),
        (lambda: flow.value_state(pa.int8(), ttl="0s"), r"value_state\(ttl=\) must be above zero"),
        (lambda: flow.list_state(pa.int8(), ttl=5), r"list_state\(ttl=\) must be a timedelta or text"),  # type: ignore
    ],
)
def test_wrong_declarations_are_refused(declare: Any, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        declare()


def test_the_stream_keeps_its_event_time_if_it_keeps_the_column() -> None:
    at = pa.array([1, 2], pa.timestamp("s"))
    keyed = source(pa.table({"k": ["a", "b"], "at": at})).with_watermark("at").key_by("k")
    assert keyed.process(PassedBatches, name="kept").time == "at"
    assert keyed.process(PassedBatches, schema=OUT, name="gone").time is None


class Limits(flow.KeyedProcess):
    limits = flow.shared_map(pa.string(), pa.int64())

    def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        ctx.timers.event(rows["at"][0].as_py())

    def on_timer(self, key: Any, due: Any, ctx: flow.ProcessContext) -> None:
        ctx.emit({"k": key, "x": self.limits.get(key, 0)})

    def process_broadcast(self, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
        for row in rows.to_pylist():
            self.limits.put(row["k"], row["x"])


def test_a_broadcast_stream_without_rows_holds_nothing_back() -> None:
    with flow.Pipeline() as p:
        at = pa.array([1, 2], pa.timestamp("s"))
        rows = p.source(op.from_arrow(pa.table({"k": ["a", "b"], "at": at})), name="rows").with_watermark("at")
        rules = p.source(op.from_arrow(TABLE.slice(0, 0)), name="rules")
        rows.key_by("k").process(Limits, schema=OUT, broadcast=rules, name="limits").sink(op.collect(), name="out")
    assert sorted(p.run().table("out").to_pylist(), key=str) == [{"k": "a", "x": 0}, {"k": "b", "x": 0}]
