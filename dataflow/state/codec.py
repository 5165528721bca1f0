"""The format of one checkpoint object: small values and tables in one self-describing file. It never uses pickle.

Layout of version 1, little-endian; every stream starts at a multiple of 64 bytes so that decoded columns are views::

    0    8  magic ``BARRIERF``
    8    4  format version (uint32)
    12   52 unused, zero
    64      one Arrow IPC stream a table, each followed by zeros up to a multiple of 64
    ...     index: JSON {"values": ..., "tables": [{"name", "rows", "offset", "length"}, ...]}, offsets from byte 64
    -16  8  length of the index (uint64)
    -8   8  magic ``BARRIERE``

The index comes last, so that an object is written while its tables are read, batch by batch.

A reader rejects other versions. An object is an untrusted document. The decoder guarantees that memory is proportional
to its bytes, and that its tables are valid.

>>> part = encode({"offset": 7}, {"keys": pa.table({"k": ["a", "b"]})})
>>> values, tables = decode(part)
>>> values["offset"], tables["keys"].to_pydict()
(7, {'k': ['a', 'b']})
"""

from __future__ import annotations

import math
import struct
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.state.ipc import read_stream
from dataflow.untrusted import MAX_DEPTH, excerpt

__all__ = ["FORMAT_VERSION", "check_json", "decode", "encode", "stream"]

MAGIC = b"BARRIERF"
END = b"BARRIERE"
FORMAT_VERSION = 1

_PREFIX = struct.Struct("<8sI")
_SUFFIX = struct.Struct("<Q8s")
_ALIGNMENT = 64
_GATHERED = 1 << 20
"""Small writes are gathered up to this many bytes; a larger buffer is passed on without a copy."""
_OPTIONS = pa.ipc.IpcWriteOptions(unify_dictionaries=False)
"""Every batch keeps its own dictionary, because a shared one might overflow the index type."""
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


Tables = Mapping[str, pa.Table | pa.RecordBatchReader]


def encode(values: Mapping[str, object], tables: Tables) -> pa.Buffer:
    """Return ``values`` and ``tables`` in one buffer, which owns its memory. Arguments and errors as ``stream``."""
    out = pa.BufferOutputStream()
    for piece in stream(values, tables):
        out.write(piece)
    return out.getvalue()


def stream(values: Mapping[str, object], tables: Tables) -> Iterator[memoryview]:
    """Yield the pieces of an object with ``values`` (JSON-serialisable) and ``tables``; their sequence is the object.

    Readers are drained, in the order of ``tables``, one batch at a time. Large columns are not copied. A piece is valid
    until the next one is taken.

    Raises: ValueError for values that JSON would silently change (NaN and infinities, integers past 64 bits), or that
        are nested deeper than ``MAX_DEPTH``; TypeError for values that are not JSON-serialisable; errors of a reader,
        with a note that names the table.
    """
    check_json(values, "values")
    yield memoryview(_PREFIX.pack(MAGIC, FORMAT_VERSION).ljust(_ALIGNMENT, b"\0"))
    sections: list[_Section] = []
    offset = 0
    for name, table in tables.items():
        pieces = _Pieces()
        rows = yield from _section(name, table, pieces)
        sections.append(_Section(name, rows, offset, pieces.size))
        offset += _aligned(pieces.size)
        yield memoryview(bytes(_aligned(pieces.size) - pieces.size))
    index = msgspec.json.encode({"values": values, "tables": sections})
    yield memoryview(index + _SUFFIX.pack(len(index), END))


def _section(name: str, table: pa.Table | pa.RecordBatchReader, pieces: _Pieces) -> Generator[memoryview, None, int]:
    """Yield the pieces of a table's stream, and return its rows. An exception of a reader is raised with a note."""
    rows = 0
    try:
        with pa.PythonFile(pieces, mode="w") as file, pa.ipc.new_stream(file, table.schema, options=_OPTIONS) as writer:
            for batch in table.to_batches() if isinstance(table, pa.Table) else table:
                rows += batch.num_rows
                if batch.num_columns:
                    writer.write_batch(batch)
                yield from pieces.take(_GATHERED)
        yield from pieces.take()
    except Exception as error:
        error.add_note(f"raised while table {name!r} of a snapshot was read")
        raise
    return rows


class _Pieces:
    """A file that only holds what Arrow wrote to it since the last ``take``; ``size`` counts all bytes."""

    closed = False

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[memoryview] = []
        self._gathered = bytearray()

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if view.nbytes < _GATHERED:
            self._gathered += view
        else:
            self._end_gathered()
            self._pieces.append(view)
        self.size += view.nbytes
        return view.nbytes

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def writable(self) -> bool:
        return True

    def take(self, least: int = 0) -> Iterator[memoryview]:
        """Yield and forget what was written; nothing, if only fewer than ``least`` bytes are gathered."""
        if self._pieces or len(self._gathered) >= max(least, 1):
            self._end_gathered()
            pieces, self._pieces = self._pieces, []
            yield from pieces

    def _end_gathered(self) -> None:
        if self._gathered:
            self._pieces.append(memoryview(self._gathered))
            self._gathered = bytearray()


def decode(part: pa.Buffer | bytes | memoryview) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Return the values and tables of a part. Tables are views into ``part`` and keep it alive.

    Raises ``CheckpointDamaged`` unless ``part`` is a complete part of a known version.
    """
    buffer = part if isinstance(part, pa.Buffer) else pa.py_buffer(part)
    if buffer.size < _PREFIX.size:
        raise CheckpointDamaged(
            f"a checkpoint part has at least {_ALIGNMENT + _SUFFIX.size} bytes, found {buffer.size}"
        )
    magic, version = _PREFIX.unpack(buffer[: _PREFIX.size].to_pybytes())
    if magic != MAGIC:
        raise CheckpointDamaged(f"not a checkpoint part: it begins with {magic!r}, expected {MAGIC!r}")
    if version != FORMAT_VERSION:
        raise CheckpointDamaged(
            f"the checkpoint part has format version {version}, expected {FORMAT_VERSION}: restore it with a version "
            "of the library that reads it"
        )
    index, streams = _places(buffer)
    try:
        header = msgspec.json.decode(memoryview(index), type=_Header)
        check_json(header.values, "values")  # values that no operator reads are written again with the next checkpoint
    except (msgspec.MsgspecError, ValueError, RecursionError, OverflowError) as error:
        raise CheckpointDamaged(f"the part's index is not valid in this format: {str(error)[:500]}") from error
    if sum(max(0, section.length) for section in header.tables) > streams.size:
        raise CheckpointDamaged("the tables of the part overlap")
    tables: dict[str, pa.Table] = {}
    unbacked = 0
    for section in header.tables:
        if section.name in tables:
            raise CheckpointDamaged(f"the part has two tables {excerpt(section.name)}")
        tables[section.name], more = _table(streams, section)
        unbacked += more
        if unbacked > _UNBACKED:
            raise CheckpointDamaged(
                f"the part has {unbacked} rows that take no bytes (up to table {excerpt(section.name)}), expected at "
                f"most {_UNBACKED}"
            )
    return header.values, tables


def _places(buffer: pa.Buffer) -> tuple[pa.Buffer, pa.Buffer]:
    """Return the index of an object, and its streams. Raises: CheckpointDamaged."""
    if buffer.size < _ALIGNMENT + _SUFFIX.size:
        raise CheckpointDamaged(f"a part has at least {_ALIGNMENT + _SUFFIX.size} bytes, found {buffer.size}")
    length, magic = _SUFFIX.unpack(buffer[buffer.size - _SUFFIX.size :].to_pybytes())
    if magic != END:
        raise CheckpointDamaged(f"the part is incomplete: it ends with {magic!r}, expected {END!r}")
    end = buffer.size - _SUFFIX.size - length
    if end < _ALIGNMENT:
        raise CheckpointDamaged(f"the part's index should have {length} bytes, the whole part has {buffer.size}")
    return buffer.slice(end, length), buffer.slice(_ALIGNMENT, end - _ALIGNMENT)


def _table(streams: pa.Buffer, section: _Section) -> tuple[pa.Table, int]:
    """Return the table of a section, and the number of its rows that take no bytes."""
    end = section.offset + section.length
    if section.offset < 0 or section.length < 0 or end > streams.size:
        raise CheckpointDamaged(
            f"table {excerpt(section.name)} should end at byte {end} of the tables, which have {streams.size} bytes"
        )
    what = f"table {excerpt(section.name)} at byte {section.offset} of the tables"
    read = read_stream(streams.slice(section.offset, section.length), what)
    if not read.schema.names and section.rows:
        if read.rows or not 0 <= section.rows <= _UNBACKED:
            raise CheckpointDamaged(f"{what} has no columns, but should have {section.rows} rows")
        # Only a batch without columns keeps its number of rows; other ways to build this table lose it.
        rows = pa.record_batch({"": pa.nulls(section.rows)}).select([])
        return pa.Table.from_batches([rows.replace_schema_metadata(read.schema.metadata)]), section.rows
    if read.rows != section.rows:
        raise CheckpointDamaged(f"table {excerpt(section.name)} should have {section.rows} rows, found {read.rows}")
    return pa.Table.from_batches(read.batches, read.schema), read.unbacked


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
