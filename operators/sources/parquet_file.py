"""A Parquet file as its footer describes it: its identity, its row groups, and the types of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from pyarrow import types

from dataflow.errors import SchemaMismatch, SourceError, repeated_names
from dataflow.state.dictionaries import wide_type
from operators.sources.arrow import plain_type
from operators.sources.files import Files
from operators.sources.known_file import KnownFile
from operators.sources.row_groups import GroupSizes

__all__ = ["DAMAGED", "ParquetFooter", "has_nanoseconds", "leaf_places"]

DAMAGED: Final = (OSError, pa.ArrowException, UnicodeDecodeError)
"""pyarrow's errors for a missing or damaged file; the last one if the name of a column is not UTF-8."""


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """A file as it was when its footer was read.

    Attributes:
        known: the identity of the file.
        hash: the xxh3 of the footer's bytes, in hex.
        metadata: the footer.
        sizes: its row groups.
        types: the type of each column: with wide dictionaries, and INT96 times in microseconds; without views. Files
            of the same types share one mapping.
        int96: the columns that have INT96 times, which may be fields of theirs.
        extensions: the columns that have values of an extension type, such as UUIDs, likewise.
    """

    known: KnownFile
    hash: str
    metadata: pq.FileMetaData
    sizes: GroupSizes
    types: Mapping[str, pa.DataType]
    int96: frozenset[str]
    extensions: frozenset[str]

    @classmethod
    def open(cls, path: str, where: Files) -> ParquetFooter:
        """Read the footer of a file. Raises: SourceError, SchemaMismatch for columns that have one name."""
        try:
            status = where.status(path)
            with where.open(path) as raw:
                opened = pq.ParquetFile(raw, coerce_int96_timestamp_unit="us")
                metadata, schema, int96 = opened.metadata, opened.schema_arrow, _int96_columns(raw, opened)
                known = KnownFile.of(path, status, raw)
                hash_ = _hash(raw, status.bytes)
        except DAMAGED as error:
            raise SourceError(
                f"read_parquet: cannot read {path!r} as Parquet: {error}; replace or remove it"
            ) from error
        if repeated := repeated_names(schema.names):
            raise SchemaMismatch(
                f"read_parquet({path!r}): column names must differ, but {repeated} occur more than once among "
                f"{schema.names}; write the file again with names of their own"
            )
        types, extensions = _types_of(schema.remove_metadata())
        return cls(known, hash_, metadata, GroupSizes.of(metadata), types, int96, extensions)

    @property
    def path(self) -> str:
        return self.known.path

    def has_only_nulls(self, column: str) -> bool:
        """Return whether the type, or the statistics of every row group, show that a column has no value."""
        if types.is_null(self.types[column]):
            return True
        groups = [group for group, rows in enumerate(self.sizes.rows) if rows]
        places = [] if types.is_nested(self.types[column]) else leaf_places(self.metadata, column)
        return not groups or (len(places) == 1 and all(self._is_null(group, places[0]) for group in groups))

    def _is_null(self, group: int, place: int) -> bool:
        statistics = self.metadata.row_group(group).column(place).statistics
        counted = statistics is not None and statistics.has_null_count
        return bool(counted and statistics.null_count == self.sizes.rows[group])


def leaf_places(metadata: pq.FileMetaData, path: str) -> list[int]:
    """Return the numbers of the columns of a footer with this path; a field of a struct may have the same."""
    schema = metadata.schema
    return [place for place in range(metadata.num_columns) if schema.column(place).path == path]


def _int96_columns(raw: BinaryIO, opened: pq.ParquetFile) -> frozenset[str]:
    """Return the names of the columns that have INT96 times, of a file that reads these as microseconds."""
    coarse, metadata = opened.schema_arrow, opened.metadata
    places = range(metadata.num_columns) if any(map(_has_microseconds, frozenset(coarse.types))) else ()
    if not any([metadata.schema.column(place).physical_type == "INT96" for place in places]):
        return frozenset()
    fine = pq.ParquetFile(raw, metadata=metadata, coerce_int96_timestamp_unit="ns").schema_arrow
    return frozenset([one.name for one, other in zip(coarse, fine, strict=True) if one.type != other.type])


@lru_cache(maxsize=16)
def _types_of(schema: pa.Schema) -> tuple[Mapping[str, pa.DataType], frozenset[str]]:
    """Return the type of each column as it is read, and the columns that have extension types."""
    read_as: dict[pa.DataType, pa.DataType] = {}  # most columns of wide files have one of a few types
    for name, type_ in zip(schema.names, schema.types, strict=True):
        if type_ not in read_as:
            read_as[type_] = wide_type(plain_type(type_, name))
    extended = frozenset(type_ for type_ in read_as if _has_extension(type_))
    extensions = frozenset([field.name for field in schema if field.type in extended]) if extended else frozenset()
    return {name: read_as[type_] for name, type_ in zip(schema.names, schema.types, strict=True)}, extensions


def _has_extension(type_: pa.DataType) -> bool:
    fields = [type_.field(place).type for place in range(type_.num_fields)]
    return isinstance(type_, pa.BaseExtensionType) or any(map(_has_extension, fields))


def has_nanoseconds(type_: pa.DataType) -> bool:
    """Return whether a type is of timestamps in nanoseconds, or has such inside."""
    return _has_unit(type_, "ns")


def _has_microseconds(type_: pa.DataType) -> bool:
    return _has_unit(type_, "us")


def _has_unit(type_: pa.DataType, unit: str) -> bool:
    if types.is_timestamp(type_):
        return bool(type_.unit == unit)
    return any([_has_unit(type_.field(place).type, unit) for place in range(type_.num_fields)])


def _hash(raw: BinaryIO, size: int) -> str:
    """Return the xxh3 of the footer: the last 8 bytes of the file are its length and the magic word."""
    raw.seek(size - 8)
    length = int.from_bytes(raw.read(4), "little")
    raw.seek(size - 8 - length)
    return xxhash.xxh3_64_hexdigest(raw.read(length))
