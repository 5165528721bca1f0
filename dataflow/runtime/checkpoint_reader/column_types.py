"""Read back the types of columns, which a manifest stores as the text that pyarrow prints.

>>> type_of("list<item: struct<a: timestamp[us, tz=UTC], b: decimal128(9, 2)>>").value_type.field("b").type
Decimal128Type(decimal128(9, 2))
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from dataflow.errors import CheckpointDamaged
from dataflow.untrusted import excerpt

__all__ = ["schema_of", "type_of"]


def schema_of(columns: Any, what: str) -> pa.Schema:
    """Return the schema that ``dataflow.planning.graph.schema_json`` made into ``columns``.

    Raises: CheckpointDamaged, which begins with ``what``, unless ``columns`` is a list of names and types.
    """
    pairs = isinstance(columns, list) and all([isinstance(c, list) and len(c) == 2 for c in columns])
    if not pairs or not all([isinstance(text, str) for column in columns for text in column]):
        raise CheckpointDamaged(f"{what}: expected a list of columns and their types, found {excerpt(columns)}")
    return pa.schema([(name, type_of(text)) for name, text in columns])


def type_of(text: str) -> pa.DataType:
    """Return the type that pyarrow prints as ``text``; null for one that it does not print completely.

    >>> type_of("extension<tensor>")
    DataType(null)
    """
    try:
        return _type(text)
    except (ValueError, KeyError, pa.ArrowInvalid):
        return pa.null()


def _type(text: str) -> pa.DataType:
    if zoned := re.fullmatch(r"timestamp\[(s|ms|us|ns), tz=(.+)\]", text):
        return pa.timestamp(zoned[1], zoned[2])
    if decimal := re.fullmatch(r"decimal(32|64|128|256)\((\d+), (-?\d+)\)", text):
        return getattr(pa, f"decimal{decimal[1]}")(int(decimal[2]), int(decimal[3]))
    if binary := re.fullmatch(r"fixed_size_binary\[(\d+)\]", text):
        return pa.binary(int(binary[1]))
    if nested := re.fullmatch(r"(list|large_list|struct|dictionary)<(.*)>", text, re.DOTALL):
        return _nested(nested[1], nested[2])
    return pa.type_for_alias(text)


def _nested(kind: str, inner: str) -> pa.DataType:
    if kind == "struct":
        return pa.struct([_field(part) for part in _parts(inner)])
    if kind == "dictionary":
        entries = dict(part.split("=", 1) for part in _parts(inner))
        return pa.dictionary(_type(entries["indices"]), _type(entries["values"]), entries["ordered"] == "1")
    return (pa.list_ if kind == "list" else pa.large_list)(_field(inner))


def _field(text: str) -> pa.Field:
    name, _, kind = text.partition(": ")
    plain = kind.removesuffix(" not null")
    return pa.field(name, _type(plain), plain == kind)


def _parts(text: str) -> list[str]:
    """Return the parts of a text that commas separate, outside all brackets."""
    if not text:
        return []
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<[(") - (character in ">])")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]
