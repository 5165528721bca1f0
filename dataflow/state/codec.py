"""The format of one checkpoint part: small values and tables in one self-describing buffer. It never uses pickle.

Layout, little-endian; every section starts at a multiple of 64 bytes so that decoded columns are views::

    0   8  magic ``BARRIERF``
    8   4  format version (uint32)
    12  4  unused, zero
    16  8  length of the header (uint64)
    24     header: JSON {"values": ..., "tables": [{"name", "rows", "offset", "length"}, ...]}
    ...    one Arrow IPC stream a table, at its offset

A reader rejects versions above its own, and reads every version from 1 on (``tests/state/golden``). A part is an
untrusted document. The decoder guarantees that memory is proportional to its bytes, and that its tables are valid.

>>> part = encode({"offset": 7}, {"keys": pa.table({"k": ["a", "b"]})})
>>> values, tables = decode(part)
>>> values["offset"], tables["keys"].to_pydict()
(7, {'k': ['a', 'b']})
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.state.ipc import read_stream
from dataflow.untrusted import MAX_DEPTH, excerpt

__all__ = ["FORMAT_VERSION", "check_json", "decode", "encode"]

MAGIC = b"BARRIERF"
FORMAT_VERSION = 1

_PREFIX = struct.Struct("<8sIIQ")
_ALIGNMENT = 64
_UNBACKED = 1 << 24
"""Maximum rows of a part without bytes (no columns, or nulls of type null), because operators expand them."""


class _Section(msgspec.Struct, frozen=True):
    name: str
    rows: int
    offset: int
    length: int


class _Header(msgspec.Struct, frozen=True):
    values: dict[str, Any]
    tables: list[_Section]


def encode(values: Mapping[str, object], tables: Mapping[str, pa.Table | pa.RecordBatchReader]) -> pa.Buffer:
    """Write ``values`` (JSON-serialisable) and ``tables`` into one buffer, which owns its memory.

    Readers are drained, in the order of ``tables``, one batch at a time.
    Raises ``ValueError`` for values that JSON would silently change (NaN and infinities, integers past 64 bits), or
    that are nested deeper than ``MAX_DEPTH``, and ``TypeError`` for values that are not JSON-serialisable.
    """
    check_json(values, "values")
    streams = [_named_stream(name, table) for name, table in tables.items()]
    sections = _sections(list(tables), streams)
    header = msgspec.json.encode({"values": values, "tables": sections})
    start = _aligned(_PREFIX.size + len(header))
    end = start + sum(_aligned(stream.data.size) for stream in streams)
    out = pa.BufferOutputStream()
    out.write(_PREFIX.pack(MAGIC, FORMAT_VERSION, 0, len(header)))
    out.write(header)
    for section, stream in zip(sections, streams, strict=True):
        out.write(bytes(start + section.offset - out.tell()))
        out.write(stream.data)
    out.write(bytes(end - out.tell()))
    return out.getvalue()


def decode(part: pa.Buffer | bytes | memoryview) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Return the values and tables of a part. Tables are views into ``part`` and keep it alive.

    Raises ``CheckpointDamaged`` unless ``part`` is a complete part of a known version.
    """
    buffer = part if isinstance(part, pa.Buffer) else pa.py_buffer(part)
    if buffer.size < _PREFIX.size:
        raise CheckpointDamaged(f"a checkpoint part has at least {_PREFIX.size} bytes, found {buffer.size}")
    magic, version, _, length = _PREFIX.unpack(buffer[: _PREFIX.size].to_pybytes())
    if magic != MAGIC:
        raise CheckpointDamaged(f"not a checkpoint part: it begins with {magic!r}, expected {MAGIC!r}")
    if not 1 <= version <= FORMAT_VERSION:
        raise CheckpointDamaged(
            f"the checkpoint part has format version {version}, this release reads 1 to {FORMAT_VERSION}: "
            f"restore it with the release that wrote it, or a newer one"
        )
    if _PREFIX.size + length > buffer.size:
        raise CheckpointDamaged(f"the part's header should have {length} bytes, the whole part has {buffer.size}")
    try:
        header = msgspec.json.decode(memoryview(buffer)[_PREFIX.size : _PREFIX.size + length], type=_Header)
        check_json(header.values, "values")  # values that no operator reads are written again with the next checkpoint
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise CheckpointDamaged(f"the part's header is not valid in this format: {str(error)[:500]}") from error
    start = _aligned(_PREFIX.size + length)
    if sum(max(0, section.length) for section in header.tables) > buffer.size:
        raise CheckpointDamaged("the tables of the part overlap")
    tables: dict[str, pa.Table] = {}
    unbacked = 0
    for section in header.tables:
        if section.name in tables:
            raise CheckpointDamaged(f"the part has two tables {excerpt(section.name)}")
        tables[section.name], more = _table(buffer, start, section)
        unbacked += more
        if unbacked > _UNBACKED:
            raise CheckpointDamaged(
                f"the part has {unbacked} rows that take no bytes (up to table {excerpt(section.name)}), expected at "
                f"most {_UNBACKED}"
            )
    return header.values, tables


class _Stream(NamedTuple):
    """A table as an Arrow IPC stream."""

    rows: int
    data: pa.Buffer


def _named_stream(name: str, table: pa.Table | pa.RecordBatchReader) -> _Stream:
    """Return ``table`` as a stream. An exception of a user's reader is raised with ``name`` in a note."""
    try:
        return _stream(table)
    except Exception as error:
        error.add_note(f"raised while table {name!r} of a snapshot was read")
        raise


def _stream(table: pa.Table | pa.RecordBatchReader) -> _Stream:
    """Write a stream in which every batch keeps its own dictionary: a shared one might overflow the index type."""
    out, rows = pa.BufferOutputStream(), 0
    with pa.ipc.new_stream(out, table.schema, options=pa.ipc.IpcWriteOptions(unify_dictionaries=False)) as writer:
        for batch in table.to_batches() if isinstance(table, pa.Table) else table:
            rows += batch.num_rows
            if batch.num_columns:
                writer.write_batch(batch)
    return _Stream(rows, out.getvalue())


def _sections(names: Sequence[str], streams: Sequence[_Stream]) -> list[_Section]:
    """Return the place of each stream, counted from the end of the header, so that it need not hold its own length."""
    sections, offset = [], 0
    for name, stream in zip(names, streams, strict=True):
        sections.append(_Section(name, stream.rows, offset, stream.data.size))
        offset += _aligned(stream.data.size)
    return sections


def _table(buffer: pa.Buffer, start: int, section: _Section) -> tuple[pa.Table, int]:
    """Return the table of a section, and the number of its rows that take no bytes."""
    begin, end = start + section.offset, start + section.offset + section.length
    if section.offset < 0 or section.length < 0 or end > buffer.size:
        raise CheckpointDamaged(f"table {section.name!r} should end at byte {end}, the part has {buffer.size} bytes")
    what = f"table {excerpt(section.name)} at byte {begin}"
    stream = read_stream(buffer.slice(begin, section.length), what)
    if not stream.schema.names and section.rows:
        if stream.rows or not 0 <= section.rows <= _UNBACKED:
            raise CheckpointDamaged(f"{what} has no columns, but should have {section.rows} rows")
        # Only a batch without columns keeps its number of rows; other ways to build this table lose it.
        rows = pa.record_batch({"": pa.nulls(section.rows)}).select([])
        return pa.Table.from_batches([rows.replace_schema_metadata(stream.schema.metadata)]), section.rows
    if stream.rows != section.rows:
        raise CheckpointDamaged(f"table {excerpt(section.name)} should have {section.rows} rows, found {stream.rows}")
    return pa.Table.from_batches(stream.batches, stream.schema), stream.unbacked


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def check_json(value: object, where: str, depth: int = 0) -> None:
    """Raise unless JSON can express ``value`` without silently changing it; ``where`` names the value.

    Raises: ValueError for NaN, infinities, integers past 64 bits, text with a lone surrogate and more than
    ``MAX_DEPTH`` levels; TypeError for all other values, numpy numbers included.

    >>> check_json({"seen": [1, {2}]}, "values")
    Traceback (most recent call last):
    TypeError: values['seen'][1] is a set, which is not JSON-serialisable
    """
    if value is None or type(value) is bool:
        return
    if isinstance(value, str):
        _check_text(value, where)
        return
    if depth > MAX_DEPTH:
        raise ValueError(f"{where}: values are nested deeper than {MAX_DEPTH} levels: keep them in a table")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}, which is not JSON-serialisable: keep it in a table")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise ValueError(f"{where} is {value}, past 64 bits: keep it as a string")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}: JSON keys must be strings")
            _check_text(key, f"a key of {where}")
            check_json(inner, f"{where}[{key!r}]", depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        for i, inner in enumerate(value):
            check_json(inner, f"{where}[{i}]", depth + 1)
    elif not isinstance(value, int) and type(value) is not float:
        raise TypeError(f"{where} is a {type(value).__name__}, which is not JSON-serialisable")


def _check_text(text: str, where: str) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} is {text!r}, which is not Unicode text: keep it as bytes in a table") from None
