"""Rows belong to the engine once they are emitted: the simulated runner names who writes into their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import SourceContext, Split
from dataflow.errors import ContractViolation

TABLE = pa.table({"k": ["a", "b", "a", "c"] * 10, "x": range(40)})


class Buffers:
    """Gives the same ``count`` buffers in turn, or copies of them."""

    def __init__(self, count: int, *, copies: bool) -> None:
        self.buffers = [np.zeros(40, np.int64) for _ in range(count)]
        self.turn, self.copies = 0, copies

    def batch(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch whose column x is in the next buffer."""
        self.turn += 1
        buffer = self.buffers[self.turn % len(self.buffers)][: rows.num_rows]
        buffer[:] = rows["x"].to_numpy()
        return pa.record_batch({"k": rows["k"], "x": pa.array(buffer.copy() if self.copies else buffer)})


def source(p: flow.Pipeline) -> flow.Stream:
    return p.source(op.from_arrow(TABLE, batch_rows=4), name="rows")


def function_of_batches(p: flow.Pipeline, made: Callable[..., Any], on_error: str = "fail") -> flow.Stream:
    return source(p).map_batches(made, name="mine", on_error=on_error)


def returning(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    return function_of_batches(p, buffers.batch)


def yielding(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    def halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield buffers.batch(batch.slice(0, 2))
        yield buffers.batch(batch.slice(2))

    return function_of_batches(p, halves)


def yielding_what_may_fail(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    def halves(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        yield buffers.batch(batch.slice(0, 2))
        yield buffers.batch(batch.slice(2))

    return function_of_batches(p, halves, on_error="skip")


def process(p: flow.Pipeline, function: type) -> flow.Stream:
    return source(p).key_by("k").process(function, name="mine")


def by_key(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    class Function(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            ctx.emit(buffers.batch(rows))

    return process(p, Function)


def by_batch(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    class Function(flow.BatchProcess):
        def process(self, slots: Any, rows: pa.RecordBatch, ctx: Any) -> None:
            ctx.emit(buffers.batch(rows))

    return process(p, Function)


def by_timer(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    class Function(flow.KeyedProcess):
        def process(self, key: Any, rows: pa.RecordBatch, ctx: flow.ProcessContext) -> None:
            for second in rows["at"].to_pylist():
                ctx.timers.event(second)

        def on_timer(self, key: Any, due: Any, ctx: flow.ProcessContext) -> None:
            x = pa.array([due.second], pa.int64())
            ctx.emit(buffers.batch(pa.record_batch({"k": [key], "x": x})))

    at = pa.array(range(40), pa.timestamp("s"))
    rows = p.source(op.from_arrow(TABLE.append_column("at", at), batch_rows=4), name="rows").with_watermark("at")
    return rows.key_by("k").process(Function, schema=TABLE.schema, name="mine")


class Emits(flow.Operator):
    """Emits rows in buffers, two batches in a call."""

    buffers: Buffers

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        for start in (0, 2):
            out.emit(self.buffers.batch(batch.slice(start, 2)))


def operator(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    return source(p).apply(type("Mine", (Emits,), {"buffers": buffers}), name="mine")


def generated(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    def rows(position: int | None) -> Iterator[Any]:
        for number, batch in enumerate(TABLE.to_batches(max_chunksize=4)):
            yield buffers.batch(batch), number

    return p.source(op.from_generator(rows, schema=TABLE.schema), name="mine")


class Polled(flow.Source):
    """Reads into buffers."""

    schema = TABLE.schema
    kernels = ()

    def __init__(self, buffers: Buffers) -> None:
        self.buffers = buffers

    def splits(self) -> list[Split]:
        return [Split("all")]

    def reader(self, split: Split, offset: Any, context: SourceContext) -> Any:
        return _Reader(self.buffers)


class _Reader(flow.SplitReader):
    offset = 0

    def __init__(self, buffers: Buffers) -> None:
        self.buffers, self.left = buffers, TABLE.to_batches(max_chunksize=4)

    def poll(self, max_rows: int) -> Any:
        return self.buffers.batch(self.left.pop()) if self.left else flow.END


def polled(p: flow.Pipeline, buffers: Buffers) -> flow.Stream:
    return p.source(Polled(buffers), name="mine")


WAYS = [returning, yielding, yielding_what_may_fail, by_key, by_batch, by_timer, operator, generated, polled]


def run(way: Callable[..., flow.Stream], buffers: Buffers, runner: str) -> pa.Table:
    p = flow.Pipeline("buffers")
    way(p, buffers).sink(op.collect(), name="out")
    return p.run(runner).table("out")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_who_fills_a_buffer_again_is_named(way: Callable[..., flow.Stream], count: int) -> None:
    with pytest.raises(ContractViolation, match=r"'mine'.*\[0\]: a batch has changed.*column 'x', row \d") as error:
        run(way, Buffers(count, copies=False), "simulated")
    assert "pa.array(buffer.copy())" in str(error.value)


@pytest.mark.parametrize("way", WAYS)
def test_who_copies_it_is_right(way: Callable[..., flow.Stream]) -> None:
    for runner in ("simulated", "local"):
        found = run(way, Buffers(1, copies=True), runner)
        assert sorted(found["x"].to_pylist()) == list(range(40))


def test_a_batch_that_changes_after_the_last_call_is_found() -> None:
    kept = np.zeros(40, np.int64)

    def changed_by_the_sink(rows: pa.RecordBatch) -> None:
        kept[:] = 7

    p = flow.Pipeline("buffers")
    whole = p.source(op.from_arrow(TABLE), name="rows")
    made = whole.map_batches(lambda batch: batch.set_column(1, "x", pa.array(kept)), name="mine")
    made.rebalance().sink(op.write_batches(changed_by_the_sink), name="out")
    with pytest.raises(ContractViolation, match="operator 'mine'"):
        p.run("simulated")


def test_values_of_a_dictionary_are_looked_at_and_those_that_are_no_numbers_are_equal() -> None:
    names = np.array([b"aa", b"bb"])
    text = pa.Array.from_buffers(pa.binary(2), 2, [None, pa.py_buffer(names)])
    emitted = flow.contracts.emitted_rows.EmittedRows("mine")
    emitted.add(pa.record_batch({"d": pa.DictionaryArray.from_arrays([0, 1], text), "f": [float("nan"), 1.0]}))
    emitted.check()
    names[1] = b"cc"
    with pytest.raises(ContractViolation, match="mine: a batch has changed after it was emitted: column 'd', row 1"):
        emitted.check()
