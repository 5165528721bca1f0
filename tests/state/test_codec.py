"""Parts of a checkpoint: what goes in comes out, and what is damaged or foreign is refused."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import CheckpointDamaged
from dataflow.state.codec import FORMAT_VERSION, decode, encode, stream

GOLDEN = Path(__file__).parent / "golden"

VALUES = {"offset": 7, "name": "ümlaut", "nested": {"list": [1, 2.5, None, True]}, "big": 2**64 - 1}
DICTIONARY = pa.chunked_array([pa.array(["a", None]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()])
TABLES = {
    "keys": pa.table({"k": ["a", None, "c"], "t": pa.array([1, 2, 3], pa.timestamp("us", "UTC"))}),
    "empty": pa.table({"k": pa.array([], pa.decimal128(9, 2))}),
    "nothing": pa.table({}),
    "dictionary": pa.table({"d": DICTIONARY}),
    "nested": pa.table({"n": [[1], None, []], "s": [{"x": 1}, {"x": None}, None]}),
    "sliced": pa.table({"x": range(100)}).slice(90),
}


def test_values_and_tables_come_back() -> None:
    values, tables = decode(encode(VALUES, TABLES))
    assert values == VALUES
    assert list(tables) == list(TABLES)
    for name, table in TABLES.items():
        assert tables[name].schema == table.schema
        assert tables[name].to_pylist() == table.to_pylist()


def test_a_part_that_was_written_before_is_read() -> None:
    values, tables = decode((GOLDEN / f"part-v{FORMAT_VERSION}.bin").read_bytes())
    assert values == VALUES
    assert {name: table.to_pylist() for name, table in tables.items()} == {n: t.to_pylist() for n, t in TABLES.items()}


def test_dictionaries_inside_lists_may_change_between_chunks() -> None:
    chunks = [pa.ListArray.from_arrays([0, 2], pa.array(v).dictionary_encode()) for v in (["a", "b"], ["c", "b"])]
    _, tables = decode(encode({}, {"t": pa.table({"n": pa.chunked_array(chunks)})}))
    assert tables["t"].to_pydict() == {"n": [["a", "b"], ["c", "b"]]}


def test_narrow_dictionaries_may_hold_more_values_together_than_their_indices_can_number() -> None:
    values = [[f"{chunk}/{i}" for i in range(100)] for chunk in range(3)]
    chunks = [pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), names) for names in values]
    table = pa.table({"d": pa.chunked_array(chunks)})
    decoded = decode(encode({}, {"t": table}))[1]["t"]
    decoded.validate(full=True)
    assert decoded.schema == table.schema
    assert decoded["d"].to_pylist() == [name for names in values for name in names]


@pytest.mark.parametrize("name", TABLES)
def test_a_reader_is_stored_as_its_table_would_be(name: str) -> None:
    assert encode({}, {name: TABLES[name].to_reader()}).equals(encode({}, {name: TABLES[name]}))


def test_a_reader_without_columns_keeps_its_rows() -> None:
    batch = pa.record_batch({"x": [1, 2, 3]}).select([])
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch])
    assert decode(encode({}, {"t": reader}))[1]["t"].num_rows == 6


def test_a_reader_is_read_one_batch_at_a_time() -> None:
    alive, most = [], []

    def batches() -> Iterator[pa.RecordBatch]:
        for i in range(5):
            batch = pa.record_batch({"x": [i]})
            alive.append(weakref.ref(batch))
            most.append(sum(entry() is not None for entry in alive))
            yield batch
            del batch

    encode({}, {"t": pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), batches())})
    assert max(most) <= 2, most


def test_what_a_reader_raises_comes_out() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [1]})
        raise MemoryError("no room for the second batch")

    with pytest.raises(MemoryError, match="second batch"):
        encode({}, {"t": pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), broken())})


def test_a_table_without_columns_keeps_its_rows() -> None:
    table = pa.Table.from_batches([pa.record_batch({"x": [1, 2, 3]}).select([])])
    assert decode(encode({}, {"t": table}))[1]["t"].num_rows == table.num_rows


def test_decoded_columns_are_views_into_the_part() -> None:
    part = encode({}, {"t": pa.table({"x": range(1000)})})
    data = decode(part)[1]["t"]["x"].chunk(0).buffers()[1]
    assert part.address <= data.address < part.address + part.size
    assert data.address % 8 == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**64, {"a": [float("-inf")]}])
def test_values_that_json_would_change_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="values"):
        encode({"x": value}, {})


@pytest.mark.parametrize("value", [b"bytes", {1: 2}, object()])
def test_values_that_json_cannot_say_are_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="JSON"):
        encode({"x": value}, {})


@pytest.mark.parametrize("version", [0, FORMAT_VERSION + 1])
def test_another_format_is_refused(version: int) -> None:
    part = bytearray(encode({}, {}))
    part[8] = version
    with pytest.raises(CheckpointDamaged, match=f"version {version}, expected {FORMAT_VERSION}"):
        decode(bytes(part))


@pytest.mark.parametrize("part", [b"", b"PAR1", b"x" * 100])
def test_a_foreign_file_is_refused(part: bytes) -> None:
    with pytest.raises(CheckpointDamaged):
        decode(part)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 0.9999))
def test_a_truncated_part_is_refused(share: float) -> None:
    part = encode(VALUES, TABLES).to_pybytes()
    with pytest.raises(CheckpointDamaged):
        decode(part[: int(len(part) * share)])


def test_a_reader_that_raises_is_named() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        raise ValueError("broken")
        yield

    reader = pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), broken())
    with pytest.raises(ValueError, match="broken") as caught:
        encode({}, {"mine/seen": reader})
    assert caught.value.__notes__ == ["raised while table 'mine/seen' of a snapshot was read"]


def test_large_columns_are_neither_copied_nor_gathered() -> None:
    table = pa.table({"x": pa.array(range(1 << 20)), "y": pa.array(range(1 << 20))})
    before, most = pa.total_allocated_bytes(), 0
    sizes = []
    for piece in stream({}, {"t": table}):
        most = max(most, pa.total_allocated_bytes() - before)
        sizes.append(piece.nbytes)
    assert sorted(sizes)[-2:] == [8 << 20, 8 << 20]
    assert most < 1 << 20, most
    assert sum(sizes) == encode({}, {"t": table}).size


def test_many_small_batches_are_passed_on_in_pieces_of_about_a_mebibyte() -> None:
    batch = pa.record_batch({"x": range(1000)})
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch] * 1000)
    sizes = [piece.nbytes for piece in stream({}, {"t": reader})]
    assert len(sizes) < 15
    assert max(sizes) < 2 << 20
