"""Forged parts of checkpoints: Arrow bodies, headers and values that could harm are damage."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged
from dataflow.state import codec
from dataflow.state.ipc import read_stream


def stream(table: pa.Table, compression: str | None = None) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return out.getvalue()


def test_a_compressed_body_is_damage() -> None:
    with pytest.raises(CheckpointDamaged, match="compressed"):
        read_stream(stream(pa.table({"x": [0] * 10_000}), "zstd"), "table")


def test_offsets_that_lead_out_of_the_body_are_damage() -> None:
    data = stream(pa.table({"x": ["text"]})).to_pybytes()
    at = data.rindex(np.array([0, 4], np.int32).tobytes())
    forged = data[:at] + np.array([0, 2**30], np.int32).tobytes() + data[at + 8 :]
    with pytest.raises(CheckpointDamaged, match="offset"):
        read_stream(pa.py_buffer(forged), "table")


def test_an_index_that_leads_out_of_the_dictionary_is_damage() -> None:
    indices = pa.array([0, 10**6], pa.int32())
    table = pa.table({"x": pa.DictionaryArray.from_arrays(indices, ["only"], safe=False)})
    with pytest.raises(CheckpointDamaged):
        read_stream(stream(table), "table")


@pytest.mark.parametrize("type_", [pa.int64(), pa.struct({"name": pa.int8()}), pa.list_(pa.field("name", pa.int8()))])
def test_names_that_are_no_text_are_damage(type_: pa.DataType) -> None:
    schema = pa.schema([pa.field("x" if pa.types.is_nested(type_) else "name", type_)])
    data = stream(schema.empty_table()).to_pybytes()
    with pytest.raises(CheckpointDamaged, match="utf-8"):
        read_stream(pa.py_buffer(data.replace(b"name", b"nam\xff")), "table")


@pytest.mark.parametrize("value", [b"18446744073709551616", b"-9223372036854775809"])
def test_numbers_that_the_next_checkpoint_could_not_hold_are_damage(value: bytes) -> None:
    with pytest.raises(CheckpointDamaged, match="past 64 bits"):
        codec.decode(_forged(value))


def test_rows_that_take_no_bytes_are_bounded() -> None:
    part = codec.encode({}, {"x": pa.table({"x": pa.nulls(1 << 30)})})
    with pytest.raises(CheckpointDamaged, match="take no bytes"):
        codec.decode(part)


def test_rows_without_columns_are_bounded() -> None:
    streams, table = _parts(codec.encode({}, {"x": pa.table({})}).to_pybytes())
    with pytest.raises(CheckpointDamaged, match="no columns"):
        codec.decode(_forged(b"1", {**table, "rows": 2**40}, streams=streams))


def test_buffers_that_overlap_are_damage() -> None:
    data = bytearray(stream(pa.table({"x": [1, 2], "y": [3, 4]})).to_pybytes())
    place = data.index(np.array([16, 16], np.int64).tobytes(), data.index(b"\xff\xff\xff\xff", 8))
    data[place : place + 16] = np.array([0, 128], np.int64).tobytes()
    with pytest.raises(CheckpointDamaged):
        read_stream(pa.py_buffer(bytes(data)), "table")


def test_values_that_are_nested_too_deep_are_neither_written_nor_read() -> None:
    deep: Any = 1
    for _ in range(150):
        deep = [deep]
    with pytest.raises(ValueError, match="nested deeper"):
        codec.encode({"a": deep}, {})
    with pytest.raises(CheckpointDamaged, match="nested deeper"):
        codec.decode(_forged(b"[" * 150 + b"]" * 150))
    with pytest.raises(CheckpointDamaged):
        codec.decode(_forged(b"[" * 10**6 + b"]" * 10**6))


@pytest.mark.parametrize("section", [{"offset": 64}, {"offset": -64}, {"length": 10**6}, {"length": -1}])
def test_a_table_outside_of_the_streams_is_damage(section: dict[str, int]) -> None:
    streams, table = _parts(codec.encode({}, {"x": pa.table({"x": [1]})}).to_pybytes())
    assert codec.decode(_forged(b"1", table, streams=streams))[1]["x"].num_rows == 1
    with pytest.raises(CheckpointDamaged):
        codec.decode(_forged(b"1", {**table, **section}, streams=streams))


@pytest.mark.parametrize("length", [0, 1, 2**40, 2**64 - 1])
def test_an_index_of_another_length_is_damage(length: int) -> None:
    part = bytearray(codec.encode({"a": 1}, {"x": pa.table({"x": [1]})}).to_pybytes())
    part[-16:-8] = length.to_bytes(8, "little")
    with pytest.raises(CheckpointDamaged):
        codec.decode(bytes(part))


def test_an_object_that_lacks_its_end_is_damage() -> None:
    part = codec.encode({"a": 1}, {"x": pa.table({"x": [1]})}).to_pybytes()
    with pytest.raises(CheckpointDamaged, match="incomplete"):
        codec.decode(part[:-1])


def _parts(part: bytes) -> tuple[bytes, dict[str, Any]]:
    """Return the prefix and the streams of an object, and the entry of its first table."""
    length = int.from_bytes(part[-16:-8], "little")
    return part[: -16 - length], msgspec.json.decode(part[-16 - length : -16])["tables"][0]


def _forged(value: bytes, *tables: Any, streams: bytes | None = None) -> bytes:
    """Return an object with value ``a``, and the index entries ``tables``."""
    start = codec.encode({}, {}).to_pybytes()[:64] if streams is None else streams
    index = b'{"values": {"a": ' + value + b'}, "tables": ' + msgspec.json.encode(tables) + b"}"
    return start + index + len(index).to_bytes(8, "little") + b"BARRIERE"
