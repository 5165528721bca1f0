"""The batches of a checkpoint of aggregates are limited by the bytes of the texts and lists that records refer to."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from dataflow.expressions import Aggregation, col, count
from dataflow.state import ordered_values, parts
from dataflow.state.copy_on_write import CHUNK
from dataflow.state.keyed_state import KeyedState
from dataflow.state.ordered_values import OrderedView
from operators.aggregation.records import Records
from operators.steps import distinct
from operators.steps.distinct import CountDistinct
from tests.forcing import Force
from tests.seeds import each_once

PIECE = 4_096
SCHEMA = pa.schema({"k": pa.int64(), "s": pa.string(), "n": pa.int64(), "d": pa.decimal128(30, 2)})
AGGREGATES: dict[str, Aggregation] = {
    "first": col("s").first(),
    "last": col("s").last(),
    "arg_max": col("s").arg_max(col("n")),
    "min": col("s").min(),
    "max of decimals": col("d").max(),
    "distinct texts": col("s").count_distinct(),
    "distinct numbers": col("n").count_distinct(),
    "list of texts": col("s").to_list("n"),
    "quantile of decimals": col("d").quantile(0.5),
}


def folded(aggregations: list[Aggregation], rows: pa.RecordBatch | None) -> tuple[KeyedState, Records]:
    records = Records(aggregations, SCHEMA, "test")
    state = KeyedState(pa.schema({"k": pa.int64()}), records)
    if rows is not None:
        slots, _ = state.insert([rows.column("k")])
        records.fold(rows, slots)
    return state, records


def some_rows(rng: random.Random, count: int, keys: int, longest: int) -> pa.RecordBatch:
    texts = [None if rng.random() < 0.1 else f"{i:04}" + "x" * rng.randrange(longest) for i in range(count)]
    chosen, numbers = [rng.randrange(keys) for _ in range(count)], [rng.randrange(10**6) for _ in range(count)]
    decimals = pa.array(numbers).cast(pa.decimal128(30, 2))
    return pa.record_batch([pa.array(chosen), pa.array(texts, pa.string()), pa.array(numbers), decimals], schema=SCHEMA)


@pytest.mark.parametrize(("name", "longest"), each_once(list(AGGREGATES), [10, 1_000, 20_000]))
def test_batches_are_limited_by_their_bytes_and_give_the_same_values(name: str, longest: int, force: Force) -> None:
    force(parts, "PIECE_BYTES", PIECE, calls=parts._most_rows, giving=lambda most: most < CHUNK)
    if name.startswith("distinct"):
        force(distinct, "PIECE_BYTES", PIECE, calls=CountDistinct.freeze)
    if name.startswith(("list", "quantile")):
        force(ordered_values, "PIECE_BYTES", PIECE, calls=OrderedView.text_bytes, giving=lambda size: size > PIECE)
    aggregations = [count(), AGGREGATES[name]]
    keys = 300 if name.startswith("distinct") else 1_000  # several values in a list
    state, records = folded(aggregations, some_rows(random.Random(name), 3_000, keys, longest))
    reader = state.freeze(1)["keys"]
    batches = list(reader)
    several = [batch.nbytes for batch in batches if batch.num_rows > 1]
    assert max(several, default=0) <= 2 * PIECE
    assert len(batches) > 1, "there is more than one piece of text, or of numbers"
    again, others = folded(aggregations, None)
    again.restore([{"keys": pa.Table.from_batches(batches)}])
    assert [column.to_pylist() for column in others.read(again.slots)] == [
        column.to_pylist() for column in records.read(state.slots)
    ]
    assert again.keys(again.slots)[0].to_pylist() == state.keys(state.slots)[0].to_pylist()
