"""Columns that are declared not null: nulls are refused where they are emitted, and the operator is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.declared_schema import DeclaredSchema
from dataflow.errors import SchemaMismatch

STRICT = pa.field("v", pa.int64(), nullable=False)


def emptied(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.nulls(batch.num_rows, pa.int64())})


class Empties(flow.Operator):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(emptied(batch))


@pytest.mark.parametrize("runner", ["local", "simulated"])
@pytest.mark.parametrize("word", ["apply", "map_batches"])
def test_an_operator_that_emits_null_where_none_is_declared_is_refused_by_name(
    runner: str, word: str, tmp_path: Path
) -> None:
    pipeline = flow.Pipeline()
    rows = pipeline.source(op.from_arrow(pa.table({"a": [1, 2, 3]})), name="in")
    if word == "apply":
        made = rows.apply(Empties, schema=pa.schema([STRICT]), name="mine")
    else:
        made = rows.map_batches(emptied, schema=pa.schema([STRICT]), name="mine")
    made.sink(op.write_parquet(tmp_path), name="out")
    with pytest.raises(SchemaMismatch, match=r"'mine'.*column 'v' should be int64, not null, but \d of its values are"):
        pipeline.run(runner, checkpoint=flow.Checkpointing(flow.MemoryStore()))


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (pa.int64(), 1, None),
        (pa.struct([STRICT]), {"v": 1}, {"v": None}),
        (pa.list_(STRICT), [1], [1, None]),
        (pa.list_(STRICT, 1), [1], [None]),
        (pa.list_view(STRICT), [1], [None, 1]),
        (pa.map_(pa.string(), STRICT), [("a", 1)], [("a", 1), ("b", None)]),
        (pa.list_(pa.struct([pa.field("l", pa.large_list(STRICT))])), [{"l": [1]}, {"l": None}], [{"l": [None]}]),
    ],
    ids=str,
)
def test_nulls_are_found_wherever_none_is_declared(type_: pa.DataType, good: object, bad: object) -> None:
    declared = DeclaredSchema(pa.schema([pa.field("c", type_, nullable=type_ != pa.int64())]), "a batch")
    column = pa.array([bad, good, bad] if type_ == pa.int64() else [bad, None, good, bad], type_)
    batch = pa.record_batch({"c": column})
    assert declared.conformed(batch.slice(1, len(column) - 2)).num_rows == len(column) - 2
    with pytest.raises(SchemaMismatch, match=r"a batch does not have .* column 'c[.\w]*' should be .*, not null"):
        declared.conformed(batch.slice(1))


def test_the_null_of_a_dictionary_is_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["x", None]))
    declared = DeclaredSchema(pa.schema([pa.field("c", column.type, nullable=False)]), "a batch")
    assert declared.conformed(pa.record_batch({"c": column[:1]})).num_rows == 1
    with pytest.raises(SchemaMismatch, match="but 1 of its values are null"):
        declared.conformed(pa.record_batch({"c": column}))


@pytest.mark.parametrize(("type_", "bad"), [(pa.struct([STRICT]), {"v": None}), (pa.list_(STRICT), [1, None])])
@pytest.mark.parametrize("word", ["map", "flat_map"])
def test_a_row_with_a_null_inside_where_none_is_declared_is_rejected(word: str, type_: pa.DataType, bad: Any) -> None:
    def made(row: dict[str, Any]) -> Any:
        answer = {"c": bad if row["a"] == 1 else None}
        return answer if word == "map" else [answer]

    def collected(on_error: str) -> pa.Table:
        rows = flow.Pipeline().source(op.from_arrow(pa.table({"a": [1, 2]})), name="in")
        return getattr(rows, word)(made, schema=pa.schema([("c", type_)]), name="mine", on_error=on_error).collect()

    with pytest.raises(SchemaMismatch, match=rf"{word} 'mine': column 'c' should be {type_} but the row has"):
        collected("fail")
    assert collected("skip").to_pylist() == [{"c": None}]


def test_a_struct_with_two_fields_of_one_name_is_looked_into() -> None:
    twice = [STRICT, pa.field("v", pa.int64())]
    good, bad = [pa.array([1, 2]), pa.array([None, 4])], [pa.array([None, 2]), pa.array([3, 4])]
    whole, broken = (
        pa.record_batch({"s": pa.StructArray.from_arrays(columns, fields=twice)}) for columns in (good, bad)
    )
    declared = DeclaredSchema(whole.schema, "a batch")
    assert declared.conformed(whole) is whole
    with pytest.raises(SchemaMismatch, match=r"column 's\.v' should be .*, not null, but 1 of its values are null"):
        declared.conformed(broken)


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        (pa.map_(pa.string(), pa.field("v", pa.string_view(), nullable=False)), [("k", "a")], [("k", None)]),
        (pa.struct([pa.field("l", pa.list_(pa.struct([STRICT, pa.field("t", pa.string_view())])))]),
         {"l": [{"v": 1, "t": "a"}]}, {"l": [{"v": None, "t": "a"}]}),
    ],
    ids=["map", "list in a struct"],
)  # fmt: skip
def test_nulls_beside_views_are_found_though_arrow_cannot_filter_views(
    type_: pa.DataType, good: object, bad: object
) -> None:
    declared = DeclaredSchema(pa.schema([pa.field("c", type_)]), "a batch")
    whole = pa.record_batch({"c": pa.array([good, None, good], type_)})
    assert declared.conformed(whole) is whole
    with pytest.raises(SchemaMismatch, match=r"but 1 of its values are null"):
        declared.conformed(pa.record_batch({"c": pa.array([None, bad, good], type_)}))
