"""Operators of one's own: one input or several, side outputs, timers."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import GraphError, SchemaMismatch
from tests.seeds import seeds

NUMBERS = pa.table({"k": [1, 2, 3, 4], "x": [10, 20, 30, 40]})
NAMES = pa.table({"id": [1, 2, 3], "name": ["one", "two", "three"]})


class Ports(flow.Operator):
    """One row a batch: which port it came in on, in which subtask, and how many rows it had."""

    SCHEMA = pa.schema([("port", pa.int64()), ("subtask", pa.int64()), ("rows", pa.int64())])

    def __init__(self, context: flow.OperatorContext) -> None:
        self._subtask = context.subtask
        self._inputs = context.input_schemas

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        assert batch.schema == self._inputs[port], f"port {port}: {batch.schema} is not {self._inputs[port]}"
        row = {"port": [port], "subtask": [self._subtask], "rows": [batch.num_rows]}
        out.emit(pa.record_batch(row, schema=self.SCHEMA))


class Join(flow.Operator):
    """Inner join by the first column of either side, each row with all that came before it on the other."""

    def __init__(self, context: flow.OperatorContext) -> None:
        left, right = context.input_schemas
        restored = context.restored.tables if context.restored else {}
        self._keys = [left.names[0], right.names[0]]
        self._sides = [restored.get("0", left.empty_table()), restored.get("1", right.empty_table())]

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        new = pa.Table.from_batches([batch])
        self._sides[port] = pa.concat_tables([self._sides[port], new])
        left, right = (new, self._sides[1]) if port == 0 else (self._sides[0], new)
        for joined in left.join(right, *self._keys, join_type="inner").to_batches():
            out.emit(joined)

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(tables={"0": self._sides[0], "1": self._sides[1]})


class Split(flow.Operator):
    """Even keys on the main output, odd ones on the side."""

    stateless = True

    def __init__(self, context: flow.OperatorContext, *, tag: str) -> None:
        self._tag = tag

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        odd = pa.compute.bit_wise_and(batch["k"], 1)
        out.emit(batch.filter(pa.compute.equal(odd, 0)))
        out.emit(batch.filter(pa.compute.equal(odd, 1)), tag=self._tag)


def numbers(p: flow.Pipeline, name: str = "numbers") -> flow.Stream:
    return p.source(op.from_arrow(NUMBERS, splits=2), name=name)


def names(p: flow.Pipeline, name: str = "names") -> flow.Stream:
    return p.source(op.from_arrow(NAMES), name=name)


def rows(table: pa.Table, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.sort_by(key).to_pylist()
    return found


JOINED = pa.schema([("k", pa.int64()), ("x", pa.int64()), ("name", pa.string())])


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("runner", ["local", "simulated"])
def test_two_keyed_inputs_meet_by_key(runner: str, parallelism: int) -> None:
    p = flow.Pipeline("join")
    joined = numbers(p).key_by("k").apply(Join, names(p).key_by("id"), schema=JOINED)
    assert rows(joined.collect(runner=runner, parallelism=parallelism), "k") == [
        {"k": 1, "x": 10, "name": "one"},
        {"k": 2, "x": 20, "name": "two"},
        {"k": 3, "x": 30, "name": "three"},
    ]


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_a_join_survives_crashes(seed: int) -> None:
    from dataflow.runners.faults import Faults

    with flow.Pipeline("join") as p:
        joined = numbers(p).key_by("k").apply(Join, names(p).key_by("id"), schema=JOINED, name="join")
        joined.sink(op.collect(), name="out")
    runner = flow.SimulatedRunner(seed, Faults(crashes=2))
    result = p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    assert rows(result.table("out"), "k") == rows(joined.collect(), "k"), f"seed {seed}"


def test_inputs_come_in_on_ports_in_the_order_they_are_given() -> None:
    p = flow.Pipeline("ports")
    found = numbers(p).apply(Ports, names(p), names(p, "others"), schema=Ports.SCHEMA).collect()
    by_port = found.group_by("port").aggregate([("rows", "sum")])
    assert rows(by_port, "port") == [
        {"port": 0, "rows_sum": 4},
        {"port": 1, "rows_sum": 3},
        {"port": 2, "rows_sum": 3},
    ]


def test_one_stream_may_be_both_inputs() -> None:
    p = flow.Pipeline("self")
    stream = names(p)
    assert set(stream.apply(Ports, stream, schema=Ports.SCHEMA).collect()["port"].to_pylist()) == {0, 1}


def test_a_broadcast_input_is_whole_in_every_subtask() -> None:
    p = flow.Pipeline("broadcast")
    found = numbers(p).apply(Ports, names(p).broadcast(), schema=Ports.SCHEMA).collect(parallelism=2)
    small = found.filter(pa.compute.field("port") == 1).group_by("subtask").aggregate([("rows", "sum")])
    assert rows(small, "subtask") == [{"subtask": 0, "rows_sum": 3}, {"subtask": 1, "rows_sum": 3}]


def test_keys_that_cannot_meet_are_refused() -> None:
    p = flow.Pipeline("keys")
    with pytest.raises(SchemaMismatch, match=r"'numbers' is keyed by \['int64'\] and 'names' by \['string'\]"):
        numbers(p).key_by("k").apply(Join, names(p).key_by("name"), schema=JOINED)


def test_a_key_read_as_dictionary_meets_the_plain_one() -> None:
    p = flow.Pipeline("dictionary")
    encoded = pa.table({"name": NAMES["name"].combine_chunks().dictionary_encode()})
    plain, coded = names(p).key_by("name"), p.source(op.from_arrow(encoded)).key_by("name")
    found = plain.apply(Ports, coded, schema=Ports.SCHEMA).collect(parallelism=4)
    both = found.group_by(["subtask", "port"]).aggregate([("rows", "sum")]).to_pylist()
    spread = [{r["subtask"]: r["rows_sum"] for r in both if r["port"] == port} for port in (0, 1)]
    assert spread[0] == spread[1]


def test_inputs_that_differ_need_a_schema() -> None:
    p = flow.Pipeline("schema")
    with pytest.raises(SchemaMismatch, match="declare those of the output"):
        numbers(p).apply(Join, names(p))


def test_an_input_of_another_pipeline_is_refused() -> None:
    with pytest.raises(GraphError, match="'names' belongs to another pipeline"):
        numbers(flow.Pipeline("a")).apply(Join, names(flow.Pipeline("b")), schema=JOINED)


def test_an_input_that_is_no_stream_is_refused() -> None:
    with pytest.raises(GraphError, match="expected a stream, got 7"):
        numbers(flow.Pipeline("a")).apply(Join, 7, schema=JOINED)  # type: ignore[arg-type]


def test_an_operator_object_is_refused_because_subtasks_would_share_it() -> None:
    with pytest.raises(GraphError, match="each subtask needs an operator of its own"):
        numbers(flow.Pipeline("a")).apply(flow.Operator())  # type: ignore[arg-type]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_side_output_is_a_stream_of_its_own(parallelism: int) -> None:
    with flow.Pipeline("sides") as p:
        split = numbers(p).apply(partial(Split, tag="odd"), sides={"odd": None})
        split.sink(op.collect(), name="even")
        split.side("odd").key_by("k").agg(op.count()).sink(op.collect(), name="odd")
    result = p.run(parallelism=parallelism)
    assert rows(result.table("even"), "k") == [{"k": 2, "x": 20}, {"k": 4, "x": 40}]
    assert rows(result.table("odd"), "k") == [{"k": 1, "count": 1}, {"k": 3, "count": 1}]


def test_a_side_output_can_be_collected_by_itself() -> None:
    side = numbers(flow.Pipeline("side")).apply(partial(Split, tag="odd"), sides={"odd": None}).side("odd")
    assert rows(side.collect(), "k") == [{"k": 1, "x": 10}, {"k": 3, "x": 30}]


class Sizes(flow.Operator):
    """Rows as they come, and how many there were in each batch on the side."""

    stateless = True

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)
        out.emit(pa.record_batch({"rows": [batch.num_rows]}), tag="sizes")


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_side_output_may_have_columns_of_its_own(parallelism: int) -> None:
    p = flow.Pipeline()
    sides = {"sizes": pa.schema({"rows": pa.int64()})}
    numbers = p.source(op.from_arrow(NUMBERS, batch_rows=3), parallelism=1, name="in")
    sized = numbers.apply(lambda context: Sizes(), sides=sides, parallelism=1)
    assert sized.side("sizes").schema == sides["sizes"]
    counted = sized.side("sizes").key_by("rows").agg(op.count().alias("n"), name="n").collect(parallelism=parallelism)
    assert sorted(counted["rows"].to_pylist()) == [1, 3]
    with pytest.raises(GraphError, match=r"no side output 'size'; it has \['sizes'\]"):
        sized.side("size")
