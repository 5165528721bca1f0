"""Values that Arrow's reader of JSON does not take, written as it takes them, and read back.

Arrow reads no maps, and no text but strings. So objects with keys of their own become arrays of entries where the
schema has a map, and where it has text, other values become strings of the text that the file has for them. The rest of
a line stays as it is, so that Arrow converts, and checks, all values in the same way.

>>> rewritten('{"tags": {"a": 1}, "id": 7}', {"tags": pa.map_(pa.string(), pa.int64()), "id": pa.string()})
'{"tags":[{"key":"a","value":1}],"id":"7"}'
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from json import JSONDecoder, dumps
from json.decoder import scanstring  # type: ignore[attr-defined]  # typeshed does not have it
from typing import Final

import pyarrow as pa
from pyarrow import types

from operators.sources.text import Unparsable

__all__ = ["entries_type", "for_python", "has_map", "has_text", "rewritten", "with_maps"]

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r"[^\s,:\[\]{}\"]+")
_INFINITY: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\bInf\b')
"""A string, or an infinity that Arrow reads and Python writes in full."""
_NESTING: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_CHECKED: Final = JSONDecoder(parse_int=str, parse_float=str, strict=False)
_STRICT: Final = False
"""Whether control characters in strings are refused: Arrow accepts them."""
_Part = tuple[str, int]
"""A value as Arrow takes it, and where it ends in the text."""


def entries_type(key: pa.DataType, item: pa.DataType) -> pa.DataType:
    """Return the type of the entries of a map in JSON: ``[{"key": ..., "value": ...}]``."""
    return pa.list_(pa.struct([("key", key), ("value", item)]))


def for_python(text: str) -> str:
    """Return JSON that Arrow reads with its infinities as Python reads them."""
    return _INFINITY.sub(lambda found: found[1] or "Infinity", text) if "Inf" in text else text


def has_map(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is a map, or has one inside."""
    return types.is_map(type_) or any([has_map(type_.field(at).type) for at in range(type_.num_fields)])


def has_text(type_: pa.DataType) -> bool:
    """Return whether ``type_`` is text, or has text inside."""
    return _is_text(type_) or any([has_text(type_.field(at).type) for at in range(type_.num_fields)])


def _is_text(type_: pa.DataType) -> bool:
    kind = type_.value_type if types.is_dictionary(type_) else type_
    return types.is_string(kind) or types.is_large_string(kind)


def rewritten(text: str, columns: Mapping[str, pa.DataType]) -> str:
    """Return the objects of ``text``, a line each, as Arrow takes them for ``columns``.

    Raises: Unparsable for what is no JSON, and for a key that occurs twice in a map.
    """
    row = pa.struct(list(columns.items()))
    objects, at = [], _past_space(text, 0)
    try:
        while at < len(text):
            part, at = _value(text, at, row)
            objects.append(part)
            at = _past_space(text, at)
    except Unparsable:
        raise
    except IndexError as error:
        raise Unparsable("not JSON: it ends early") from error
    except (ValueError, RecursionError) as error:
        raise Unparsable(f"not JSON: {error}") from error
    return "\n".join(objects)


def _value(text: str, at: int, type_: pa.DataType) -> _Part:
    first = text[at]
    if first == "{" and types.is_map(type_):
        return _entries(text, at, type_)
    if first == "{" and types.is_struct(type_):
        fields = {field.name: field.type for field in type_}
        parts, end = _members(text, at, lambda key, at: _value(text, at, fields.get(key, pa.null())))
        return "{" + ",".join(f"{dumps(key)}:{part}" for key, part in parts) + "}", end
    if first == "[" and (types.is_list(type_) or types.is_map(type_)):
        item = pa.struct([("value", type_.item_type)]) if types.is_map(type_) else type_.value_type
        return _items(text, at, item)
    end = _end(text, at)
    if first not in '"n' and _is_text(type_):
        _CHECKED.decode(for_python(text[at:end]))
        return dumps(text[at:end]), end
    return text[at:end], end


def _entries(text: str, at: int, type_: pa.DataType) -> _Part:
    """Return an object as the entries of a map."""
    parts, end = _members(text, at, lambda _, at: _value(text, at, type_.item_type))
    keys = [key for key, _ in parts]
    if repeated := next((key for key in keys if keys.count(key) > 1), None) if len(set(keys)) < len(keys) else None:
        raise Unparsable(f"the key {repeated!r} occurs twice in one object")
    return "[" + ",".join(f'{{"key":{dumps(key)},"value":{part}}}' for key, part in parts) + "]", end


def _members(text: str, at: int, member: Callable[[str, int], _Part]) -> tuple[list[tuple[str, str]], int]:
    """Return the keys of an object with their values by ``member``, and where the object ends."""
    parts: list[tuple[str, str]] = []
    at = _past_space(text, at + 1)
    if text[at] == "}":
        return parts, at + 1
    while True:
        if text[at] != '"':
            raise ValueError(f"expected a key at character {at}")
        key, at = scanstring(text, at + 1, _STRICT)
        at = _past_space(text, at)
        if text[at] != ":":
            raise ValueError(f"expected ':' at character {at}")
        part, at = member(key, _past_space(text, at + 1))
        parts.append((key, part))
        at = _past_space(text, at)
        if text[at] == "}":
            return parts, at + 1
        if text[at] != ",":
            raise ValueError(f"expected ',' at character {at}")
        at = _past_space(text, at + 1)


def _items(text: str, at: int, item: pa.DataType) -> _Part:
    """Return an array with each of its values as Arrow takes it, and where it ends."""
    parts: list[str] = []
    at = _past_space(text, at + 1)
    if text[at] == "]":
        return "[]", at + 1
    while True:
        part, at = _value(text, at, item)
        parts.append(part)
        at = _past_space(text, at)
        if text[at] == "]":
            return "[" + ",".join(parts) + "]", at + 1
        if text[at] != ",":
            raise ValueError(f"expected ',' at character {at}")
        at = _past_space(text, at + 1)


def _end(text: str, at: int) -> int:
    """Return where the value at ``at`` ends. What is inside it need not be JSON."""
    if text[at] == '"':
        return int(scanstring(text, at + 1, _STRICT)[1])
    if text[at] not in "{[":
        scalar = _SCALAR.match(text, at)
        if scalar is None:
            raise ValueError(f"expected a value at character {at}")
        return scalar.end()
    depth = 0
    for mark in _NESTING.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.end()
    raise ValueError(f"what begins at character {at} does not end")


def _past_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too


def with_maps(array: pa.Array, type_: pa.DataType, cast: Callable[[pa.Array, pa.DataType], pa.Array]) -> pa.Array:
    """Return ``array`` in ``type_``: entries become maps, and all else is converted by ``cast``.

    Raises: Unparsable for an entry without a key.
    """
    if not has_map(type_):
        return cast(array, type_)
    if types.is_struct(type_):
        children = [with_maps(array.field(at), field.type, cast) for at, field in enumerate(type_)]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
    if not types.is_map(type_):
        child = with_maps(array.values, type_.value_type, cast)
    else:
        keys, items = array.values.field("key"), array.values.field("value")
        if keys.null_count:
            raise Unparsable("an entry of a map has no key")
        fields = [type_.key_field, type_.item_field]
        child = pa.StructArray.from_arrays(
            [cast(keys, type_.key_type), with_maps(items, type_.item_type, cast)], fields=fields
        )
    return pa.Array.from_buffers(type_, len(array), array.buffers()[:2], array.null_count, array.offset, [child])
