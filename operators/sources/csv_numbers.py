"""Numbers in CSV that Arrow reads as others: which columns hold whole numbers, and which texts are no such number.

Arrow reads 0xFF as the bits of an integer, 00501 as 501, and rounds what is above int64 to float64. A column of ids,
zip codes or telephone numbers keeps its texts: it is an integer only if each value is written as that integer is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.expressions.coercion import value_type
from operators.sources.csv_settings import CsvSettings
from operators.sources.csv_tables import read_rows_of_full_length
from operators.sources.text_source import whole_number, whole_number_type

__all__ = ["changed_number", "has_padded_number", "hexadecimal_columns", "is_inferred_integer", "number_types"]

_HEX: Final = re.compile(rb"[ \t]*0[xX]")
_MAYBE_HEX: Final = re.compile(rb"(?<![0-9A-Za-z])0[xX][0-9A-Fa-f]{1,16}(?![0-9A-Za-z])")
_PADDED: Final = re.compile(rb"[ \t]*-?0[0-9]")
_CHANGED: Final = "^[ \t]*(-?0[0-9]|0[xX])"
"""The beginning of a text that Arrow reads as an integer, but that is no whole number, or has zeros in front."""
_WHOLE_NUMBER: Final = re.compile(r"[ \t]*[+-]?[0-9]+[ \t]*")
_SIGNED_OR_PADDED: Final = re.compile(r"[ \t]*(\+|[+-]?0[0-9])")
_DIGIT: Final = re.compile(r"[0-9]")
_MINUS_ZERO: Final = re.compile(r"[ \t]*-0+[ \t]*")
_NONE: Final = 255
"""Means "no such character" to ``may_have_padded_number``: UTF-8 has no such byte."""


def number_types(
    where: str, texts: Mapping[str, pa.Array], inferred: Mapping[str, pa.DataType], wanted: Collection[str]
) -> dict[str, pa.DataType]:
    """Return other types for columns that Arrow inferred to be numbers, so that they keep what is written.

    Args:
        where: begins the text of an error, such as ``read_csv('a.csv')``.
        texts: the values of these columns as text.
        inferred: their types.
        wanted: the columns that are read.

    Raises: SourceError for whole numbers in a wanted column that fit no type.
    """
    changed: dict[str, pa.DataType] = {}
    for name, column in texts.items():
        if types.is_integer(inferred[name]):
            if pc.any(pc.match_substring_regex(column, _CHANGED)).as_py():
                changed[name] = pa.string()
        elif name in wanted and (type_ := _type_of_floats(where, name, column.unique().drop_null().to_pylist())):
            changed[name] = type_
    return changed


def _type_of_floats(where: str, name: str, tokens: Sequence[str]) -> pa.DataType | None:
    """Return the type of a column for which Arrow infers float64; None: this one."""
    odd = [token for token in tokens if not _WHOLE_NUMBER.fullmatch(token)]
    if any(_DIGIT.search(token) for token in odd):
        return None  # a fraction or an exponent
    whole = [token for token in tokens if _WHOLE_NUMBER.fullmatch(token)]
    if any(_SIGNED_OR_PADDED.match(token) for token in whole):
        return pa.string()
    numbers = [whole_number(token) for token in whole]
    if max(numbers, default=0) >= 2**63:
        odd += [token for token in tokens if _MINUS_ZERO.fullmatch(token)]  # Arrow reads no such uint64
    return whole_number_type(where, name, numbers, odd)


def is_inferred_integer(format: CsvSettings, field: pa.Field) -> bool:
    """Return whether a column was inferred to be whole numbers, so that one with zeros in front does not fit."""
    return field.name not in format.given and types.is_integer(field.type)


def changed_number(format: CsvSettings, field: pa.Field, value: bytes) -> str | None:
    """Return why Arrow must not read ``value`` as a number of the type of ``field``; None if it may."""
    text = value.decode(errors="backslashreplace")
    if _read_as_integer(field.type) and _HEX.match(value):
        return f"invalid value '{text}' for {field.type}"
    if is_inferred_integer(format, field) and _PADDED.match(value):
        return f"'{text}' has zeros in front, which {field.type} does not keep"
    return None


def has_padded_number(format: CsvSettings, data: bytes, watched: npt.NDArray[np.uint8]) -> bool:
    """Return whether whole rows have a number with zeros in front in a column in which ``watched`` is not 0."""
    from operators.kernels.csv_rows import has_padded_number, may_have_padded_number

    codes = np.frombuffer(data, np.uint8)
    marks = [ord(mark) if mark is not None else None for mark in (format.delimiter, format.quote, format.escape)]
    if not may_have_padded_number(codes, *[_NONE if mark is None else mark for mark in marks]):
        return False
    return bool(has_padded_number(codes, *[-1 if mark is None else mark for mark in marks], watched))


def hexadecimal_columns(format: CsvSettings, data: bytes, names: Sequence[str], schema: pa.Schema) -> list[str]:
    """Return the integer columns of ``schema`` that have a hexadecimal number in ``data``.

    Arrow reads these as the bits of an integer: 0xFF as -1 where the type is int8. Durations are read as integers.

    Args:
        data: whole rows, whose columns are called ``names``.
    """
    integers = [field.name for field in schema if _read_as_integer(field.type)]
    if not integers or not _maybe_hexadecimal(format, data):
        return []
    texts = read_rows_of_full_length(format, data, names, dict.fromkeys(integers, pa.binary()), integers)
    return [name for name in integers if any(map(_HEX.match, texts[name].unique().drop_null().to_pylist()))]


def _read_as_integer(type_: pa.DataType) -> bool:
    """Return whether Arrow reads a column of ``type_`` as integers, which may be hexadecimal."""
    kind = value_type(type_)
    return types.is_integer(kind) or types.is_duration(kind)


def _maybe_hexadecimal(format: CsvSettings, data: bytes) -> bool:
    """Return whether a hexadecimal number may be in ``data``. Cheap tests come first: every block is searched."""
    if b"x" not in data and b"X" not in data:
        return False
    data = format.unmarked(data)
    codes = np.frombuffer(data, np.uint8)
    if not np.any((codes[:-1] == ord("0")) & ((codes[1:] | 0x20) == ord("x"))):  # X | 0x20 is x
        return False
    return _MAYBE_HEX.search(data) is not None
