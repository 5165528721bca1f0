"""Recovery of the good rows of a CSV block that has bad ones, column by column.

Arrow converts all of a block or fails. So the fields are first read as bytes, without the rows that have too few or too
many. Then the distinct values of a column are converted together. Arrow names the first value that does not fit, and
the search continues after it. A column costs one attempt for each distinct bad value, however often it occurs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, types

from dataflow.arrow_values import to_array, to_numbers, to_scalar
from operators.sources.csv_numbers import changed_number
from operators.sources.csv_settings import CsvSettings
from operators.sources.csv_tables import convert_options, is_text, read_table
from operators.sources.text import Unparsable, Wrong
from operators.sources.time_parsers import has_formats, parse_by_formats

__all__ = ["rescued"]

_FIRST: Final = 64  # values tried after a bad one, then four times as many, and so on
_ROW: Final = re.compile(r"In CSV column #0: Row #(\d+): CSV conversion error to .*?: (.*)", re.DOTALL)


def rescued(
    format: CsvSettings, names: Sequence[str], schema: pa.Schema, data: bytes
) -> tuple[pa.RecordBatch, list[Wrong]]:
    """Return the rows of ``data`` that can be converted to ``schema``, and the others."""
    rows = [(start, end) for start, end in pairwise([0, *format.ends(data)]) if data[start:end].strip(b"\r\n")]
    wrong = _miscounted(format, names, data)
    kept = [row for row in range(len(rows)) if row not in wrong]
    fields = _fields(format, names, schema, [data[slice(*rows[row])] for row in kept])
    assert len(kept) == fields.num_rows, f"{len(kept)} rows end here, and Arrow found {fields.num_rows}"
    good = np.ones(len(kept), np.bool_)
    columns = []
    for field in schema:
        column, errors = _column(format, field, fields[field.name])
        for at, message in errors.items():
            good[at] = False
            wrong.setdefault(kept[at], Unparsable(message))
        columns.append(column)
    batch = pa.RecordBatch.from_arrays(columns, schema=schema).filter(to_array(good))
    return batch, [Wrong(*rows[row], wrong[row]) for row in sorted(wrong)]


def _miscounted(format: CsvSettings, names: Sequence[str], data: bytes) -> dict[int, Exception]:
    """Return the rows that have a wrong number of fields, by row number; empty lines do not count."""
    wrong: dict[int, Exception] = {}

    def leave_out(row: csv.InvalidRow) -> str:
        wrong[row.number - 1] = Unparsable(f"expected {row.expected_columns} fields, found {row.actual_columns}")
        return "skip"

    first = names[:1]
    read_table(format, data, names, dict.fromkeys(first, pa.binary()), first, texts=first, bad_row=leave_out)
    return wrong


def _fields(format: CsvSettings, names: Sequence[str], schema: pa.Schema, rows: Sequence[bytes]) -> pa.Table:
    """Return the fields of rows as bytes."""
    as_bytes = dict.fromkeys(schema.names, pa.binary())
    if not rows:
        return pa.schema(as_bytes).empty_table()
    texts = [field.name for field in schema if is_text(field.type)]
    return read_table(format, b"".join(rows), names, as_bytes, schema.names, texts=texts).combine_chunks()


def _column(format: CsvSettings, field: pa.Field, fields: pa.ChunkedArray) -> tuple[pa.Array, dict[int, str]]:
    """Return a column, null where a field cannot be converted, and an error message for each such field."""
    encoded = fields.combine_chunks().dictionary_encode()
    typed, errors = _values(format, field, encoded.dictionary.to_pylist())
    indices = to_numbers(encoded.indices.fill_null(to_scalar(-1, encoded.indices.type)))
    bad = np.flatnonzero(np.isin(indices, list(errors)))
    return typed.take(encoded.indices), {int(at): errors[int(indices[at])] for at in bad}


def _values(format: CsvSettings, field: pa.Field, values: Sequence[bytes]) -> tuple[pa.Array, dict[int, str]]:
    hint = "" if field.name in format.given else " (a type inferred from the first rows; schema= gives another)"
    reasons = {at: reason for at, value in enumerate(values) if (reason := changed_number(format, field, value))}
    errors = {at: f"column {field.name!r}: {reason}{hint}" for at, reason in reasons.items()}
    if not format.timestamp_parsers or not has_formats(field.type):
        return _values_by_arrow(format, field, values, hint, errors)
    times, unread = parse_by_formats(format.timestamp_parsers, to_array(values, pa.binary()), field.type)
    rest = np.flatnonzero(unread).tolist()
    hint = f", nor a time in timestamp_parsers={list(format.timestamp_parsers)}{hint}"
    texts = [values[at] for at in rest]
    others, wrong = _values_by_arrow(format, field, texts, hint, _local_times(format, field, texts))
    both = pa.concat_arrays([times, others])
    places = np.arange(len(values))
    places[rest] = np.arange(len(values), len(values) + len(rest))
    return both.take(to_array(places)), {rest[at]: message for at, message in wrong.items()}


def _values_by_arrow(
    format: CsvSettings, field: pa.Field, values: Sequence[bytes], hint: str, errors: dict[int, str]
) -> tuple[pa.Array, dict[int, str]]:
    """Return the values, null where one cannot be converted, and all errors; those known before are in ``errors``."""
    lines = [b'"' + value.replace(b'"', b'""') + b'"\n' for value in values]
    convert = convert_options(format, {field.name: field.type})
    start, count = 0, len(lines)
    while start < len(lines):
        try:
            _converted(lines[start : start + count], field, convert)
            start, count = start + count, 4 * count
        except pa.ArrowInvalid as error:
            named = _ROW.match(str(error))
            if named is None and count > 1:  # then one by one
                count = 1
                continue
            bad = start + (int(named[1]) if named else 1) - 1
            reason = _reason(named[2] if named else str(error), field.type, values[bad])
            errors.setdefault(bad, f"column {field.name!r}: {reason}{'' if 'UTF8' in reason else hint}")
            start, count = bad + 1, _FIRST
    good = [line for at, line in enumerate(lines) if at not in errors]
    places = np.zeros(len(lines), np.int64)
    places[[at for at in range(len(lines)) if at not in errors]] = np.arange(len(good))
    mask = np.isin(np.arange(len(lines)), list(errors))
    return _converted(good, field, convert).take(to_array(places, mask=mask)), errors


def _reason(message: str, type_: pa.DataType, value: bytes) -> str:
    """Return why Arrow does not convert ``value`` to ``type_``. Its advice on offsets is for other programs."""
    return _no_offset(type_, value) if message.startswith("expected a zone offset") else f"{message} for {type_}"


def _local_times(format: CsvSettings, field: pa.Field, values: Sequence[bytes]) -> dict[int, str]:
    """Return an error message for each value that would fit a format if the column had no zone."""
    if not types.is_timestamp(field.type) or field.type.tz is None:
        return {}
    texts = to_array(values, pa.binary())
    _, unread = parse_by_formats(format.timestamp_parsers, texts, pa.timestamp(field.type.unit))
    local = np.flatnonzero(~unread).tolist()
    return {at: f"column {field.name!r}: {_no_offset(field.type, values[at])}" for at in local}


def _no_offset(type_: pa.DataType, value: bytes) -> str:
    return (
        f"{value.decode(errors='replace')!r} has no offset from UTC, which {type_} needs; read times on a local clock "
        f"as timestamp[{type_.unit}], and say with .dt.localize({type_.tz!r}) which clock it is"
    )


def _converted(lines: Sequence[bytes], field: pa.Field, convert: csv.ConvertOptions) -> pa.Array:
    if not lines:
        return to_array([], field.type)
    text = b"".join(lines)
    read = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=[field.name])
    parse = csv.ParseOptions(newlines_in_values=True)
    return csv.read_csv(pa.BufferReader(text), read, parse, convert)[field.name].chunk(0)
