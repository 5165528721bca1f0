"""CSV text read by Arrow into a table, with a rule for nulls in quotes that depends on the type of a column."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyarrow import csv
from pyarrow import types as of

from dataflow.expressions.coercion import value_type
from operators.sources.csv_settings import CsvSettings

__all__ = ["convert_options", "is_text", "parse_options", "read_rows_of_full_length", "read_table"]

_WHOLE: Final = (1 << 30) - 1


def is_text(type_: pa.DataType) -> bool:
    """Return whether a column of ``type_`` holds text or bytes, so that any text is a value of it."""
    kind = value_type(type_)
    is_bytes = of.is_binary(kind) or of.is_large_binary(kind) or of.is_fixed_size_binary(kind)
    return bool(of.is_string(kind) or of.is_large_string(kind) or of.is_string_view(kind) or is_bytes)


def read_table(
    format: CsvSettings,
    data: bytes,
    names: Sequence[str],
    types: Mapping[str, pa.DataType],
    columns: Sequence[str],
    *,
    texts: Collection[str] = (),
    bad_row: Callable[[csv.InvalidRow], str] | None = None,
) -> pa.Table:
    """Return ``columns`` of the rows in ``data``.

    Arrow has one rule for the nulls of all columns. So if there may be null markers in quotes, columns of text that
    have nulls are read a second time.

    Args:
        format: the settings of the reader.
        data: whole rows.
        names: all columns of the rows.
        types: the types of some columns; the others are inferred.
        columns: the columns to read.
        texts: those of them that are text, for ``quoted_nulls``.
        bad_row: called for a row with too few or too many fields; None: such a row raises. Arrow does not call it if
            the row is not UTF-8, so other bytes are replaced first.
    """
    text = format.utf8(data)
    read = csv.ReadOptions(use_threads=False, block_size=_WHOLE, column_names=list(names))
    parse = parse_options(format)
    if bad_row is not None:
        text = text.decode("utf-8", "replace").encode()
        parse.invalid_row_handler = bad_row

    def fields(chosen: Sequence[str], *, quoted_nulls: bool) -> pa.Table:
        typed = {name: types[name] for name in chosen if name in types}
        convert = convert_options(format, typed, chosen, quoted_nulls=quoted_nulls)
        return csv.read_csv(pa.BufferReader(text), read, parse, convert)

    if format.quoted_nulls != "typed" or len(texts) == len(columns):
        return fields(columns, quoted_nulls=format.quoted_nulls == "always")
    table = fields(columns, quoted_nulls=True)
    doubtful = [name for name in texts if table[name].null_count]
    if doubtful and _may_have_quoted_null(format, text):
        again = fields(doubtful, quoted_nulls=False)
        for name in doubtful:
            table = table.set_column(table.schema.get_field_index(name), name, again[name])
    return table


def read_rows_of_full_length(
    format: CsvSettings, data: bytes, names: Sequence[str], types: Mapping[str, pa.DataType], columns: Sequence[str]
) -> pa.Table:
    """Return ``columns`` of the rows in ``data`` that have as many fields as there are ``names``."""
    return read_table(format, data, names, types, columns, bad_row=lambda _: "skip")


def parse_options(format: CsvSettings) -> csv.ParseOptions:
    marks: dict[str, Any] = {"quote_char": format.quote or False, "escape_char": format.escape or False}
    return csv.ParseOptions(delimiter=format.delimiter, **marks, newlines_in_values=True)


def convert_options(
    format: CsvSettings, types: Mapping[str, pa.DataType], columns: Collection[str] = (), *, quoted_nulls: bool = False
) -> csv.ConvertOptions:
    """Return how fields become values; ``columns``: these are read, or all if there are none."""
    return csv.ConvertOptions(
        column_types=dict(types),
        include_columns=list(columns),
        null_values=list(format.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=quoted_nulls,
        decimal_point=format.decimal_point,
    )


def _may_have_quoted_null(format: CsvSettings, text: bytes) -> bool:
    """Return whether a null marker may be in quotes: a quote is before its first character, a quote or an escape."""
    if format.quote is None:
        return False
    starts = [format.quote, format.escape or format.quote, *[marker[0] for marker in format.null_values if marker]]
    return any((format.quote + start).encode() in text for start in dict.fromkeys(starts))
