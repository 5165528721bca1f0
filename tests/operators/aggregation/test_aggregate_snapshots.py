"""Snapshots of keyed aggregates that are read while the operator goes on: each is the state of its barrier, exactly."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.operator import OperatorContext, Snapshot
from dataflow.expressions import Aggregation, col, count
from dataflow.planning.aggregate_specs import Emit
from dataflow.state import parts
from operators.aggregation.aggregate import AggregateOperator
from tests.forcing import Force, forced
from tests.operators.operating import frozen, read_stored, rows_of
from tests.seeds import in_soak, part_of_the_examples

TEXT = col("v").cast("string")
AGGREGATIONS = [
    count(),
    col("v").sum(),
    col("v").max(),
    col("v").mean(),
    col("v").stddev(),
    col("v").arg_min(-col("v")),
]
AGGREGATIONS += [TEXT.max().alias("text"), TEXT.last().alias("last"), TEXT.count_distinct().alias("texts")]
AGGREGATIONS += [col("v").quantile(0.5), col("v").sum(where=col("v") > 60).alias("some")]
SLOW = [
    TEXT.to_list(by=-col("v"), where=col("v") > 60).alias("list"),
    op.aggregate_python("v", zero=[], add=lambda a, v: [*a[-9:], v], merge=lambda a, b: a, state=pa.list_(pa.int64())),
]
KEYS: dict[str, list[tuple[str, pa.DataType]]] = {
    "number": [("k", pa.int64())],
    "text": [("k", pa.string())],
    "dictionary": [("k", pa.dictionary(pa.int32(), pa.string()))],
    "several": [("k", pa.int64()), ("t", pa.string()), ("d", pa.decimal128(30, 2))],
}
INTERVAL = 1000


class Dropping:
    """An Out that keeps nothing."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        assert batch.num_rows


class Twins:
    """Two operators with the same input: the first is snapshotted in the background, the second copied on the spot."""

    def __init__(self, keys: list[tuple[str, pa.DataType]], more: Sequence[Aggregation] = ()) -> None:
        self.aggregations = [*AGGREGATIONS, *more]
        self.schema = pa.schema([*keys, ("v", pa.int64())])
        self.one, self.other = self._operator(), self._operator()

    def _operator(self) -> AggregateOperator:
        keys = list(self.schema)[:-1]
        output = pa.schema([*keys, *((a.name, a.dtype(self.schema)) for a in self.aggregations)])
        context = OperatorContext(
            "totals", 0, 1, (self.schema,), output, range(128), 128, None, ManualClock(), lambda due: None
        )
        return AggregateOperator(context, [key.name for key in keys], self.aggregations, Emit.UPDATES, every=INTERVAL)

    def process(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """A row for each number: the number makes the key (multiples of 7 the null one), and the value."""
        mask = numbers % 7 == 0
        columns = [pa.array(numbers, mask=mask).cast(value_type(type_), safe=False) for type_ in self.schema.types[:-1]]
        columns = [
            column.dictionary_encode() if pa.types.is_dictionary(type_) else column
            for column, type_ in zip(columns, self.schema.types, strict=False)
        ]
        values = pa.array(numbers * 3, mask=numbers % 5 == 0)
        batch = pa.RecordBatch.from_arrays([*columns, values], names=self.schema.names)
        for operator in (self.one, self.other):
            operator.process(0, batch, Dropping())

    def emit(self) -> None:
        for operator in (self.one, self.other):
            for _ in operator.timer(0, Dropping()) or ():
                pass

    def snapshot(self) -> tuple[Snapshot, pa.Table]:
        """A snapshot to be read later, and what it has to hold."""
        return frozen(self.one.snapshot()), read(frozen(self.other.snapshot()))


def value_type(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_


def same(found: pa.Table, expected: pa.Table) -> bool:
    return found.num_rows == expected.num_rows and found.to_pydict() == expected.to_pydict()


def read(snapshot: Snapshot) -> pa.Table:
    """The rows as a restore gets them."""
    return rows_of(read_stored(snapshot))


@pytest.mark.parametrize("keys", KEYS)
@part_of_the_examples(8)  # for each of the kinds of keys
@given(st.integers(1, 40), st.randoms(use_true_random=False))
def test_a_snapshot_read_late_is_the_state_at_the_barrier(keys: str, chunk: int, rng: random.Random) -> None:
    twins, waiting = Twins(KEYS[keys], SLOW), list[tuple[Snapshot, pa.Table]]()
    with forced(parts, "CHUNK", chunk, calls=parts._most_rows, giving=lambda most: most == chunk):
        waiting.append(twins.snapshot())
        for _ in range(rng.randrange(25)):
            match rng.choice("pppppeesshrdg"):
                case "p":
                    twins.process(np.array(rng.choices(range(1, 60), k=rng.randrange(1, 30)), np.int64))
                case "e":
                    twins.emit()
                case "s":
                    waiting.append(twins.snapshot())
                case "h" if waiting:  # half read, and then dropped
                    snapshot, _ = waiting.pop(rng.randrange(len(waiting)))
                    for reader in snapshot.logs["state"][0].values():  # type: ignore[index]
                        next(iter(reader), None)
                case "r" if waiting:
                    snapshot, expected = waiting.pop(rng.randrange(len(waiting)))
                    assert same(read(snapshot), expected)
                case "d" if waiting:
                    waiting.pop(rng.randrange(len(waiting)))
                case "g" if rng.random() < 0.3:
                    twins.process(np.arange(rng.randrange(500, 3000)))
        for snapshot, expected in waiting:
            assert same(read(snapshot), expected)


@pytest.mark.parametrize("turns", [40, *in_soak(60)])
@pytest.mark.parametrize("keys", ["several", *in_soak("number")])
def test_snapshots_are_written_by_a_thread_while_rows_come(keys: str, turns: int, force: Force) -> None:
    force(parts, "CHUNK", 5_000, calls=parts._most_rows, giving=lambda most: most == 5_000)
    rng = np.random.default_rng(5)
    twins, writers, found = Twins(KEYS[keys]), list[threading.Thread](), dict[int, pa.Table]()
    expected = {}
    for turn in range(turns):
        twins.process(rng.integers(0, 100 + 1_500 * turn, 4_000))
        if turn % 10 == 5:
            snapshot, expected[turn] = twins.snapshot()
            writers.append(threading.Thread(target=lambda n=turn, s=snapshot: found.update({n: read(s)})))
            writers[-1].start()
        if turn % 7 == 0:
            twins.emit()
    for writer in writers:
        writer.join()
    assert [turn for turn in expected if not same(found[turn], expected[turn])] == []


def test_a_snapshot_of_no_keys_holds_no_rows() -> None:
    assert read(frozen(Twins(KEYS["number"]).one.snapshot())).num_rows == 0


def test_an_emission_at_a_timer_does_not_show_in_an_earlier_snapshot() -> None:
    twins = Twins(KEYS["number"])
    twins.process(np.array([1, 2]))
    snapshot = frozen(twins.one.snapshot())
    twins.emit()
    assert read(snapshot)["/touched"].to_pylist() == [True, True]
