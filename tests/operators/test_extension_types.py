"""Columns of extension types are taken as plain ones; columns of type null are keys, state and output as others are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.api.streams import Stream
from dataflow.contracts.operator import Operator
from dataflow.runners.faults import Faults
from dataflow.state.extension_types import has_extensions, stored_values, without_extensions
from tests.operators.reading import check_every_position, table_of

IDS = [UUID(int=number) if number else None for number in (5, 0, 6, 5, 2**128 - 1, 0)]
TEXTS = [None if value is None else str(value) for value in IDS]
ROWS = len(IDS)


def uuids() -> pa.Array:
    return pa.array([None if value is None else value.bytes for value in IDS], pa.uuid())


EXTENDED = {
    "u": uuids(),
    "j": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"a":1}', None, "2", "2", "[]", '""'])),
    "v": pa.ExtensionArray.from_storage(pa.json_(pa.string_view()), pa.array([*"12233", None], pa.string_view())),
    "b": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None, 1, 0, 1], pa.int8())),
    "t": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int8(), [2]), pa.array([[1, 2], None] * 3, pa.list_(pa.int8(), 2))
    ),
}
TABLE = pa.table({**EXTENDED, "i": range(ROWS), "at": pa.array(range(0, 10**6 * ROWS, 10**6), pa.timestamp("us"))})
PLAIN = pa.table(
    {
        "u": TEXTS,
        "j": EXTENDED["j"].storage,
        "v": EXTENDED["v"].storage.cast(pa.large_string()),
        "b": EXTENDED["b"].storage,
        "t": EXTENDED["t"].storage,
        "i": TABLE["i"],
        "at": TABLE["at"],
    }
)

DECLARED = TABLE.drop_columns(["v"])  # views stay views where users declare them
ROWS_OF_IDS = TABLE.select(["u", "i"])


def nested(values: pa.Array, make: Callable[[pa.DataType], pa.DataType]) -> pa.Array:
    """The six values in an array of a type that has their type inside."""
    type_ = make(values.type)
    storage: Any = pa.array([0, 2, 2, 5, 6], pa.int64() if "large" in str(type_) else pa.int32())
    if pa.types.is_struct(type_):
        return pa.StructArray.from_arrays([values, pa.array(range(ROWS))], fields=list(type_))
    if pa.types.is_map(type_):
        entries = pa.StructArray.from_arrays(
            [pa.array(list("abcdef")), values], fields=[type_.key_field, type_.item_field]
        )
        return pa.Array.from_buffers(type_, 4, [None, storage.buffers()[1]], children=[entries])
    if pa.types.is_fixed_size_list(type_):
        return pa.Array.from_buffers(type_, 3, [None], children=[values])
    return pa.Array.from_buffers(type_, 4, [None, storage.buffers()[1]], children=[values])


MAKERS: list[Callable[[pa.DataType], pa.DataType]] = [
    pa.list_,
    pa.large_list,
    lambda type_: pa.list_(type_, 2),
    lambda type_: pa.map_(pa.string(), type_),
    lambda type_: pa.struct([("u", type_), ("n", pa.int64())]),
]


@pytest.mark.parametrize("make", MAKERS)
def test_extension_types_inside_other_types_become_plain(make: Callable[[pa.DataType], pa.DataType]) -> None:
    found, expected = nested(uuids(), make), nested(pa.array(TEXTS), make)
    for start, rows in ((0, 9), (1, 2), (2, 0)):  # slices share the values of the whole
        part = stored_values(found.slice(start, rows))
        part.validate(full=True)
        assert part.type == without_extensions(found.type)
        assert part.to_pylist() == expected.slice(start, rows).to_pylist()
    holes = found.take(pa.array([1, None, 0]))
    assert stored_values(holes).to_pylist() == expected.take(pa.array([1, None, 0])).to_pylist()
    deep = pa.StructArray.from_arrays([found], ["deep"]).slice(1)
    assert stored_values(deep).to_pylist() == [{"deep": value} for value in expected.slice(1).to_pylist()]
    source = op.from_arrow(pa.table({"x": found}))
    assert not has_extensions(source.schema.field("x").type)
    assert flow.Pipeline().source(source).collect()["x"].to_pylist() == expected.to_pylist()


def test_plain_columns_are_shared_and_texts_of_uuids_are_whole() -> None:
    plain = pa.array([1, 2])
    assert stored_values(plain) is plain
    assert stored_values(uuids().slice(1, 4)).to_pylist() == TEXTS[1:5]
    assert stored_values(uuids().slice(0, 0)).to_pylist() == []
    assert stored_values(pa.nulls(2, pa.uuid())).to_pylist() == [None, None]
    encoded = pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 1], pa.int8()), uuids().slice(2, 2))
    assert stored_values(encoded).to_pylist() == [TEXTS[3], TEXTS[2], None, TEXTS[3]]


def user_source(table: pa.Table) -> Any:
    return op.from_generator(lambda: iter(table.to_batches()), schema=table.schema, replayable=False)


class Emits(Operator):
    """Emits its rows as they were before the source took them."""

    def process(self, port: int, batch: pa.RecordBatch, out: Any) -> None:
        del port
        out.emit(DECLARED.slice(batch["i"][0].as_py(), batch.num_rows).combine_chunks().to_batches()[0])


def streams(folder: Path) -> Iterable[Stream]:
    """The same rows from everything that may give columns of extension types."""
    pq.write_table(TABLE, folder / "a.parquet", row_group_size=4)
    for name, writer in (("a.arrow", pa.ipc.new_file), ("a.arrows", pa.ipc.new_stream)):
        with writer(str(folder / name), TABLE.schema) as out:
            out.write_table(TABLE, max_chunksize=4)
    reader = pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches())
    sources = [
        op.from_arrow(TABLE, batch_rows=4),
        op.from_arrow(reader, replayable=False),
        op.read_parquet(folder),
        op.read_ipc(folder / "a.arrow"),
        op.read_ipc(folder / "a.arrows"),
        user_source(DECLARED),
        op.from_generator(ROWS_OF_IDS.to_pylist, schema=ROWS_OF_IDS.schema, replayable=False),
    ]
    yield from (flow.Pipeline().source(source, name="in") for source in sources)
    rows = flow.Pipeline().source(op.from_arrow(PLAIN.select(["i"]), batch_rows=4), name="in")
    yield rows.map_batches(lambda batch: DECLARED.slice(batch["i"][0].as_py(), batch.num_rows), schema=DECLARED.schema)
    yield rows.apply(Emits, schema=DECLARED.schema, name="emits")


@pytest.mark.filterwarnings("ignore::dataflow.errors.FilesLeftOutWarning")
def test_columns_of_extension_types_are_plain_wherever_they_come_from(tmp_path: Path) -> None:
    for stream in streams(tmp_path):
        names = stream.schema.names
        assert stream.schema.types == PLAIN.select(names).schema.types, stream
        result = stream.collect()
        assert result.schema.types == PLAIN.select(names).schema.types, stream
        assert result.to_pylist() == PLAIN.select(names).to_pylist(), stream
    for source in (op.read_parquet(tmp_path / "a.parquet"), op.read_ipc(tmp_path / "a.arrows", columns=["u", "v"])):
        check_every_position(source, cuts=(2,))
        assert table_of(source)["u"].to_pylist() == TEXTS
    assert "has 'u' as an extension type" in str(op.read_parquet(tmp_path / "a.parquet").parquet_files())


def test_a_uuid_is_cast_compared_and_made_as_text() -> None:
    rows = flow.Pipeline().source(op.from_arrow(TABLE), name="in")
    assert rows.select(x=col("u").cast("string")).collect()["x"].to_pylist() == TEXTS
    assert rows.filter(col("u") == UUID(int=5)).collect()["i"].to_pylist() == [0, 3]
    made = rows.map(lambda row: {"id": UUID(int=row["i"])}, schema=pa.schema({"id": pa.uuid()})).collect()
    assert made["id"].to_pylist() == [str(UUID(int=number)) for number in range(ROWS)]


def test_uuids_are_written_as_text(tmp_path: Path) -> None:
    for write, read in (
        (op.write_csv, op.read_csv),
        (op.write_json, op.read_json),
        (op.write_parquet, op.read_parquet),
    ):
        with flow.Pipeline() as p:
            rows = p.source(op.from_arrow(TABLE.append_column("n", pa.nulls(ROWS))), name="in").select(
                "u", "j", "b", "n"
            )
            rows.sink(write(tmp_path / write.__name__), name="out", parallelism=1)
        p.run()
        assert table_of(read(tmp_path / write.__name__))["u"].to_pylist() == TEXTS


def keyed(rows: Stream, other: Stream) -> Iterable[tuple[str, Stream]]:
    """Streams that have column ``c`` as a key, as an order and in their state."""
    yield "agg", rows.key_by("c").agg(n=op.count(), last=col("i").last(), name="a1")
    yield "updates", rows.key_by("c").agg(n=op.count(), emit="updates", name="a2")
    yield "choices", rows.key_by("k").agg(a=col("c").min(), b=col("c").first(), d=col("c").count_distinct(), name="a3")
    yield "lists", rows.agg(a=col("c").to_list("i"), b=col("i").to_list("c"), name="a4")
    yield "unique", rows.unique("c", "k", name="u1")
    yield "top", rows.top(3, by=["c", "i"], name="t1")
    yield "tops", rows.key_by("c").top(1, by="i", name="t2")
    yield "window", rows.key_by("c").window(op.tumbling("2s")).agg(n=col("c").count(), name="w1")
    yield "session", rows.key_by("c").window(op.session("1s")).agg(n=op.count(), name="w2")
    yield "sliding", rows.key_by("k").window(op.sliding("2s")).agg(m=col("c").max(), name="w3")
    yield "join", rows.join(other, on="c", how="full", name="j1")
    yield "carried", rows.join(other, on="i", within=("1s", "1s"), how="left", name="j2")
    yield "asof", rows.join_asof(other, by="c", name="j3")


def results(column: pa.Array) -> dict[str, list[str]]:
    """The rows of each of these streams, of one run that crashes and restores; in any order."""
    table = pa.table({"c": column, "i": range(ROWS), "k": [1, 2] * 3, "at": TABLE["at"]})
    names = []
    with flow.Pipeline("keyed") as p:
        rows, other = (
            p.source(op.from_arrow(table, batch_rows=2), name=name).with_watermark("at", delay="1h")
            for name in ("rows", "other")
        )
        for name, stream in keyed(rows, other):
            stream.sink(op.collect(), name=name)
            names.append(name)
    runner = flow.SimulatedRunner(seed=1, faults=Faults(crashes=1))
    result = p.run(runner, parallelism=2, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms"))
    return {name: sorted(map(repr, result.table(name).to_pylist())) for name in names}


@pytest.mark.parametrize(
    ("column", "same"),
    [(EXTENDED["u"], PLAIN["u"]), (pa.nulls(ROWS), pa.nulls(ROWS, pa.int64()))],
    ids=["uuid", "null"],
)
def test_such_columns_are_keys_and_state_as_plain_ones_are(column: pa.Array, same: pa.Array) -> None:
    assert results(column) == results(same)


@pytest.mark.parametrize("kind", ["sum", "mean", "stddev", "max", "first", "count", "count_distinct"])
def test_aggregates_of_a_column_of_type_null_are_null(kind: str) -> None:
    table = pa.table({"c": pa.nulls(4), "k": [1, 1, 2, 2]})
    rows = flow.Pipeline().source(op.from_arrow(table), name="in").key_by("k").agg(x=getattr(col("c"), kind)())
    assert rows.collect()["x"].to_pylist() == [0 if "count" in kind else None] * 2


def test_uuids_of_duckdb_are_text(tmp_path: Path) -> None:
    """DuckDB's files have no Arrow schema, so only the Parquet type says that these bytes are a UUID."""
    path = tmp_path / "a.parquet"
    duckdb.sql(f"copy (select '{TEXTS[0]}'::uuid u, {{'in': '{TEXTS[2]}'::uuid}} s) to '{path}'")
    for options in ({}, {"dictionary": ["u"]}):
        rows = flow.Pipeline().source(op.read_parquet(path, **options), name="in")
        assert rows.collect().to_pylist() == [{"u": TEXTS[0], "s": {"in": TEXTS[2]}}]
        assert rows.key_by("u").agg(n=op.count()).collect().to_pylist() == [{"u": TEXTS[0], "n": 1}]
