"""JSON lines as Arrow parses them, and the types of columns that are inferred from the first of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json import JSONDecoder
from math import isfinite
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import csv, json, types

from dataflow.contracts.row_errors import OnError
from dataflow.errors import SourceError
from operators.sources.blocks import Block
from operators.sources.json_values import for_python
from operators.sources.text import Unparsable, undecodable
from operators.sources.text_source import inferred_type, whole_number, whole_number_type

__all__ = ["OTHER_ENCODINGS", "count_lines", "decode_objects", "infer_schema", "parse_lines"]

OTHER_ENCODINGS: Final = "JSON is UTF-8: convert the file, such as with iconv -f latin1 -t utf-8"
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_AMBIGUOUS: Final = re.compile(rb'[0-9]{19}|NaN|Inf|"[0-9]{4}-[0-9]{2}-[0-9]{2}')
"""Text in which Arrow may infer other types than ``read_csv``. Whole numbers outside int64 have 19 digits, those beside
NaN or Inf may be rounded if they have 16, and text that Arrow takes for times begins with a date.
"""
_MOST_LEVELS: Final = 100
"""Types are compared and converted level by level, in calls within calls."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[0-9T:.Z+ -]*")


def count_lines(data: bytes) -> int:
    """Return how many lines are not blank. Raises: Unparsable unless each of them begins an object, in UTF-8.

    Arrow checks neither: it returns invalid text, and a line that is ``null`` ends the process.
    """
    if not data.isascii():
        try:
            data.decode()
        except UnicodeDecodeError as error:
            raise Unparsable(f"not UTF-8: {error}") from error
    text = np.frombuffer(data, np.uint8)
    ends = text == ord("\n")
    lines = int(np.count_nonzero(ends)) + (not data.endswith(b"\n"))
    if np.count_nonzero(ends[:-1] & (text[1:] == ord("{"))) + data.startswith(b"{") == lines:
        return lines
    rows = [line for line in data.split(b"\n") if line.strip()]
    if not all(line.lstrip().startswith(b"{") for line in rows):
        raise Unparsable("expected a JSON object, {...}, in each line")
    return len(rows)


def parse_lines(data: bytes, options: json.ParseOptions) -> pa.Table:
    """Return the objects of whole lines, as one piece."""
    read = json.ReadOptions(use_threads=False, block_size=len(data) + 1)
    return json.read_json(pa.BufferReader(data), read, options)


def infer_schema(path: str, block: Block, on_error: OnError, wanted: Sequence[str] | None) -> pa.Schema | SourceError:
    """Return the fields of as many of the first rows as can be parsed, with types that hold their values.

    If bad lines do not end the job, the other lines are used, and the error is returned if there are none.

    Raises: SourceError if the first line is bad, and bad lines end the job.
    """
    lines = [line for line in block.data.split(b"\n") if line.strip()]
    failed: SourceError | None = None
    count = len(lines)
    while True:
        first = b"\n".join(lines[:count])
        try:
            schema = _fields(first)
            break
        except _BAD as error:
            if failed is None and on_error is not OnError.FAIL:
                failed = _unparsable(path, block, lines[0], error, on_error)
                lines = [line for line in lines if _is_row(line)]
                count = len(lines)
                if not lines:
                    return failed
            elif count == 1:
                raise _unparsable(path, block, first, error, on_error) from error
            else:
                count //= 2
    if _AMBIGUOUS.search(first):
        where, objects = f"read_json({path!r})", list(decode_objects(first.decode()))
        for at, field in enumerate(schema):
            if wanted is None or field.name in wanted:
                values = [row[field.name] for row in objects if field.name in row]
                schema = schema.set(at, field.with_type(_exact_type(where, field.name, field.type, values)))
    return pa.schema({field.name: inferred_type(field.type) for field in schema})


_BAD: Final = (pa.ArrowException, Unparsable)


def _fields(data: bytes) -> pa.Schema:
    """Return the fields of whole lines, by Arrow's inference. Raises: ``_BAD``."""
    count_lines(data)
    schema = parse_lines(data, json.ParseOptions()).schema
    if any([_is_deep(type_, _MOST_LEVELS) for type_ in schema.types]):
        raise Unparsable(f"more than {_MOST_LEVELS} levels of objects and arrays; schema= may read them as text")
    return schema


def _is_deep(type_: pa.DataType, levels: int) -> bool:
    """Return whether a type has more than ``levels`` lists and structs inside each other."""
    inside = [type_.field(place).type for place in range(type_.num_fields)]
    return bool(inside) and (levels == 0 or any([_is_deep(one, levels - 1) for one in inside]))


def _is_row(line: bytes) -> bool:
    try:
        _fields(line)
    except _BAD:
        return False
    return True


def _unparsable(path: str, block: Block, line: bytes, error: Exception, on_error: OnError) -> SourceError:
    """Return the error for a first line from which no columns can be inferred, with no other line that is good."""
    cause = undecodable(line, "utf-8", block.at)
    if cause is not None:
        instead = f"{path}:{block.line}: {cause}; {OTHER_ENCODINGS}"
    elif line.lstrip().startswith(b"["):
        instead = "write one object a line, such as with jq -c '.[]'"
    elif on_error is OnError.FAIL:
        instead = f"correct {path}:{block.line}, leave bad lines out with on_error='skip', or give schema="
    else:
        instead = "correct the file, or give schema="
    row = "its first row cannot" if on_error is OnError.FAIL else "none of its first rows can"
    return SourceError(
        f"read_json({path!r}): {row} be parsed ({error}), so there is nothing to infer columns from; {instead}"
    )


def decode_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of ``text``, which Arrow could parse, with whole numbers as they are written."""
    decoder, at = JSONDecoder(parse_int=whole_number), 0
    text = for_python(text)
    while (at := _SPACE.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        row, at = decoder.raw_decode(text, at)
        yield row


def _exact_type(where: str, column: str, type_: pa.DataType, values: Sequence[Any]) -> pa.DataType:
    """Return the type that ``read_csv`` would infer for ``values``, given Arrow's ``type_``.

    Whole numbers that Arrow would round are integers; text that ``read_csv`` reads as dates or timestamps is these.
    """
    valid = [value for value in values if value is not None]
    if types.is_struct(type_):
        return pa.struct(
            [
                field.with_type(
                    _exact_type(
                        where,
                        f"{column}.{field.name}",
                        field.type,
                        [value[field.name] for value in valid if field.name in value],
                    )
                )
                for field in type_
            ]
        )
    if types.is_list(type_):
        items = [item for value in valid for item in value]
        return pa.list_(_exact_type(where, f"{column}[]", type_.value_type, items))
    if types.is_floating(type_) and not any(isinstance(value, float) and isfinite(value) for value in valid):
        others = [str(value) for value in valid if isinstance(value, float)]  # NaN and infinities
        numbers = [value for value in valid if not isinstance(value, float)]
        return whole_number_type(where, column, numbers, others) or type_
    if types.is_string(type_) or types.is_timestamp(type_):
        return _time_type(valid) or pa.string()
    return type_


def _time_type(texts: Sequence[str]) -> pa.DataType | None:
    """Return the type that ``read_csv`` infers for ``texts`` if it is a date or a timestamp, else None."""
    if not texts or not all(_TIME.fullmatch(text) for text in texts):
        return None
    lines = "\n".join(texts).encode()
    read = csv.ReadOptions(use_threads=False, block_size=len(lines) + 1, column_names=["text"])
    (found,) = csv.read_csv(pa.BufferReader(lines), read).schema.types
    return found if types.is_date(found) or types.is_timestamp(found) else None
