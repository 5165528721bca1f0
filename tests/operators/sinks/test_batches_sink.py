"""A function, or an object a subtask, as a sink: at least once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Guarantee, Sink
from dataflow.errors import ConfigurationError
from dataflow.runners.faults import Faults
from tests.seeds import seeds


def pipeline(sink: Sink, rows: int = 60) -> flow.Pipeline:
    with flow.Pipeline("calls") as p:
        source = op.from_arrow(pa.table({"x": range(rows)}), batch_rows=3, splits=2)
        p.source(source, name="in").filter(flow.col("x") >= 0, name="all").sink(sink, name="out")
    return p


def in_memory() -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every="1ms")


def test_the_function_gets_every_row_in_batches() -> None:
    seen: list[int] = []

    def take(batch: pa.RecordBatch) -> None:
        assert isinstance(batch, pa.RecordBatch)
        seen.extend(batch["x"].to_pylist())

    result = pipeline(op.write_batches(take)).run(parallelism=2, checkpoint=in_memory())
    assert sorted(seen) == list(range(60))
    assert result.guarantee is Guarantee.AT_LEAST_ONCE
    assert "end to end at least once" in str(result)


def test_rows_that_replace_what_their_key_had_count_once_however_often_they_come() -> None:
    prices: dict[int, int] = {}

    def put(batch: pa.RecordBatch) -> None:
        prices.update(zip(batch["x"].to_pylist(), batch["x"].to_pylist(), strict=True))

    crashing = flow.SimulatedRunner(seed=3, faults=Faults(crashes=2))
    result = pipeline(op.upsert_batches(put)).run(crashing, parallelism=2, checkpoint=in_memory())
    assert prices == {x: x for x in range(60)}
    assert result.guarantee is Guarantee.EXACTLY_ONCE


def test_it_is_not_called_with_batches_without_rows() -> None:
    calls: list[pa.RecordBatch] = []
    pipeline(op.write_batches(calls.append), rows=0).run()
    assert calls == []


class Receiver:
    """Holds back what it takes until it is flushed."""

    def __init__(self, log: list[str], delivered: Counter[int]) -> None:
        self.held: list[int] = []
        self.log, self.delivered = log, delivered

    def __call__(self, batch: pa.RecordBatch) -> None:
        self.held += batch["x"].to_pylist()

    def flush(self) -> None:
        self.delivered.update(self.held)
        self.held = []
        self.log.append("flush")

    def close(self) -> None:
        assert not self.held
        self.log.append("close")


def test_each_subtask_has_an_object_of_its_own_that_is_flushed_and_closed() -> None:
    made: list[int] = []
    log: list[str] = []
    delivered: Counter[int] = Counter()

    def connect(context: OperatorContext) -> Receiver:
        made.append(context.subtask)
        return Receiver(log, delivered)

    pipeline(op.write_batches(factory=connect)).run(parallelism=2)
    assert sorted(made) == [0, 1]
    assert delivered == Counter(range(60))
    assert log.count("close") == 2
    assert "flush" not in log[-1]


@pytest.mark.parametrize("seed", seeds(3, 10))
def test_what_an_object_holds_back_is_not_lost_in_a_crash(seed: int) -> None:
    delivered: Counter[int] = Counter()

    def connect(context: OperatorContext) -> Callable[[pa.RecordBatch], None]:
        receiver = Receiver([], delivered)
        receiver.close = lambda: None  # type: ignore[method-assign]
        return receiver

    runner = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
    pipeline(op.write_batches(factory=connect)).run(runner, parallelism=2, checkpoint=in_memory())
    assert set(delivered) == set(range(60))


def test_an_exception_names_the_operator_and_shows_the_batch() -> None:
    def refuse(batch: pa.RecordBatch) -> None:
        raise RuntimeError("the service is down")

    with pytest.raises(RuntimeError, match="the service is down") as caught:
        pipeline(op.write_batches(refuse)).run()
    notes = "\n".join(caught.value.__notes__)
    assert "'out'" in notes
    assert "x" in notes


async def later(batch: pa.RecordBatch) -> None:
    raise AssertionError("never awaited")


def one_by_one(batch: pa.RecordBatch) -> Iterator[int]:
    yield from batch["x"].to_pylist()


@pytest.mark.parametrize("function", [later, one_by_one, "print"])
def test_what_would_do_nothing_when_called_is_refused(function: Any) -> None:
    with pytest.raises(ConfigurationError, match="expected a plain function"):
        op.write_batches(function)


def test_a_function_and_a_factory_are_one_too_many_and_none_is_one_too_few() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        op.write_batches()
    with pytest.raises(ConfigurationError, match="not both"):
        op.write_batches(print, factory=lambda context: print)


def test_a_factory_that_makes_nothing_callable_is_told_so() -> None:
    with pytest.raises(ConfigurationError, match=r"sink 'out': .* it returned a NoneType"):
        pipeline(op.write_batches(factory=lambda context: None)).run()  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_key_that_only_changes_is_never_gone(parallelism: int) -> None:
    """Batches of changes are cut into steps of few rows at first, but not within a change."""
    gone = Counter[int]()
    totals: dict[int, int] = {}

    def put(rows: pa.RecordBatch, old: pa.RecordBatch) -> None:
        gone.update(old["k"].to_pylist())
        totals.update(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True))

    table = pa.table({"k": [n % 300 for n in range(3_000)]})
    with flow.Pipeline("changes") as p:
        counts = p.source(op.from_arrow(table, batch_rows=400)).key_by("k").agg(n=op.count(), emit="changes")
        counts.sink(op.upsert_batches(put, keys=["k"]), parallelism=1)
    p.run(parallelism=parallelism)
    assert totals == dict.fromkeys(range(300), 10)
    assert not gone
