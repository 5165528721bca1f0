"""The columns of a stream that is read from Parquet files, which may come from several writers.

Columns that a user declared have the declared types, and come first. All files must have the others, each as one
Parquet type; the stream has the common type of a column, which does not depend on the order of the files.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
from pyarrow import types

from dataflow.errors import MissingColumnWarning, SchemaMismatch, UnknownColumn, did_you_mean, user_frame
from dataflow.state.dictionaries import is_textual
from operators.parquet_types import common_type
from operators.sources.parquet_file import ParquetFooter
from operators.sources.parquet_values import is_readable, readable_type

__all__ = ["stream_schema", "warn_of_missing"]

_DECLARE: Final = (
    "declare {} with schema=, which also makes a missing column null, choose the columns that the files share with "
    "columns=[...], or read them as two sources"
)
_TWO_SOURCES: Final = (
    "no type holds all values of {}: read the files as two sources, cast these columns to one type and unite the "
    "streams with union, or leave the columns out with columns=[...]"
)


def stream_schema(
    files: Sequence[ParquetFooter],
    declared: Mapping[str, pa.DataType],
    columns: Sequence[str] | None,
    dictionary: Sequence[str],
) -> pa.Schema:
    """Return the columns of the stream.

    Args:
        files: the footers of at least one file.
        declared: the types that the user declared.
        columns: the columns to read; None: all.
        dictionary: those to read as dictionaries.

    Raises: UnknownColumn; SchemaMismatch for a column that a file does not have, or cannot be read as its type.
    """
    first = files[0]
    known = dict.fromkeys([*declared, *first.types])
    for name in (*dictionary, *(columns or ())):
        if name not in known:
            raise UnknownColumn(name, list(known), f"read_parquet({first.path!r})")
    chosen = frozenset(known if columns is None else columns)
    kinds = list({(id(file.types), file.int96): file for file in reversed(files)}.values())[::-1]
    _check_declared(files, kinds, {name: type_ for name, type_ in declared.items() if name in chosen})
    others = [name for name in first.types if name in chosen and name not in declared]
    common = _common_types(files, kinds, others, None if columns is not None else frozenset(known))
    found = {**declared, **common}
    for name in (name for name in dictionary if name in chosen and not types.is_dictionary(found[name])):
        if not is_textual(found[name]):
            if all(file.has_only_nulls(name) for file in files if name in file.types):
                continue
            raise SchemaMismatch(
                f"read_parquet({first.path!r}): only text and binary columns can be read as dictionaries, but {name!r} "
                f"is {found[name]}; take it out of dictionary="
            )
        found[name] = pa.dictionary(pa.int32(), found[name])
    return pa.schema([(name, type_) for name, type_ in found.items() if name in chosen])


def warn_of_missing(files: Sequence[ParquetFooter], declared: Sequence[str]) -> None:
    """Warn of ``declared`` columns that none of the files has."""
    known = {name: None for types_ in {id(file.types): file.types for file in files}.values() for name in types_}
    others = [name for name in known if name not in declared]
    if missing := [f"{name!r}{did_you_mean(name, others)}" for name in declared if name not in known]:
        warnings.warn(
            f"read_parquet(schema=): no file has {' and '.join(missing)}, so such a column is null in all rows; "
            "correct the name or take it out of schema=",
            MissingColumnWarning,
            stacklevel=user_frame(),
        )


def _check_declared(
    files: Sequence[ParquetFooter], kinds: Sequence[ParquetFooter], declared: Mapping[str, pa.DataType]
) -> None:
    """Raise SchemaMismatch, naming the first such file, if a column cannot be read as the type declared for it."""
    for kind in kinds:
        bad = [name for name, type_ in declared.items() if name in kind.types and not _is_readable(kind, name, type_)]
        for file in files if bad else ():
            if file.types is kind.types and (wrong := [name for name in bad if not file.has_only_nulls(name)]):
                columns = [f"{name!r} is {file.types[name]}, declared {declared[name]}" for name in wrong]
                raise SchemaMismatch(
                    f"read_parquet(schema=): {file.path!r} has columns that cannot be read as declared: "
                    f"{'; '.join(columns)}; "
                    + _advice(
                        files,
                        wrong,
                        "declare {} with schema=, which holds all values of the files, and cast after the source",
                    )
                )


def _is_readable(file: ParquetFooter, name: str, declared: pa.DataType) -> bool:
    stored = file.types[name]
    if name in file.int96 and types.is_timestamp(stored) and types.is_timestamp(declared):
        stored = pa.timestamp(stored.unit, declared.tz)  # the format does not say whether they are in UTC
    return is_readable(stored, declared)


class _Common(NamedTuple):
    """The common type of a column, and the file that it is from."""

    type: pa.DataType
    origin: ParquetFooter


def _common_types(
    files: Sequence[ParquetFooter],
    kinds: Sequence[ParquetFooter],
    names: Sequence[str],
    known: frozenset[str] | None,
) -> dict[str, pa.DataType]:
    """Return the common type of each of the columns ``names``.

    Raises: SchemaMismatch for a column that a file lacks or has in another type, or that is not in ``known``, unless
    this is None.
    """
    first = kinds[0]
    common = {name: _Common(first.types[name], first) for name in names}
    for file in kinds[1:]:
        differing = {}
        for name, (type_, origin) in common.items():
            place = "the first" if origin is first else repr(origin.path)
            stored = file.types.get(name)
            if stored is None:
                differing[name] = f"{name!r} is {type_} in {place} and missing in the second"
                continue
            both = common_type(type_, stored)
            if both is None and (both := _type_of_values(files, name)) is None:
                differing[name] = f"{name!r} is {type_} in {place} and {stored} in the second"
            elif both != type_:
                common[name] = _Common(both, file if types.is_null(type_) else origin)
        if known is not None:
            differing |= {name: f"{name!r} is missing in the first" for name in file.types if name not in known}
        if differing:
            raise SchemaMismatch(
                f"read_parquet: {first.path!r} and {file.path!r} differ: {'; '.join(differing.values())}; "
                + _advice(files, list(differing), _DECLARE)
            )
    return {name: type_ for name, (type_, _) in common.items()}


def _type_of_values(files: Sequence[ParquetFooter], name: str) -> pa.DataType | None:
    """Return the common type of a column in the files that have values of it, as far as their statistics show."""
    common = pa.null()
    for file in files:
        if common is not None and name in file.types and not file.has_only_nulls(name):
            common = common_type(common, file.types[name])
    return common


def _advice(files: Sequence[ParquetFooter], names: Sequence[str], declare: str) -> str:
    """Return what to do about the columns ``names``, whose types differ.

    It is ``declare``, with their types in its place for text, if these can be declared.
    """
    readable = {name: _declarable(files, name) for name in names}
    if hopeless := [repr(name) for name, type_ in readable.items() if type_ is None]:
        return _TWO_SOURCES.format(", ".join(hopeless))
    return declare.format(", ".join([f"{name!r} as {_name_of(type_)}" for name, type_ in readable.items()]))


def _declarable(files: Sequence[ParquetFooter], name: str) -> pa.DataType | None:
    """Return a type as which all files' values of a column can be read; None: there is none."""
    having = [file for file in files if name in file.types and not file.has_only_nulls(name)]
    stored = [file.types[name] for file in having if name not in file.int96]
    zone = next((type_.tz for type_ in stored if types.is_timestamp(type_)), None)
    unzoned = [file.types[name] for file in having if name in file.int96]
    zoned = [pa.timestamp(type_.unit, zone) if types.is_timestamp(type_) else type_ for type_ in unzoned]
    return readable_type([*stored, *zoned])


def _name_of(type_: pa.DataType | None) -> str:
    """Return the name of a type as ``schema=`` takes it; a nested type has none."""
    return {pa.float32(): "float32", pa.float64(): "float64"}.get(type_, str(type_))
