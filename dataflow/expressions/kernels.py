"""The functions of ``Function`` on the local engine: pyarrow kernels over columns already converted to their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_never

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers, to_scalar
from dataflow.expressions.calendar import day_of_year, year
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.coercion import value_type
from dataflow.expressions.localization import localize
from dataflow.expressions.patterns import GROUP, Pattern
from dataflow.expressions.rounding import round_half_away
from dataflow.expressions.time_formats import format_times, parse_format
from dataflow.expressions.truncation import truncate
from dataflow.registry import resolve

__all__ = ["kernel"]

Value = Any  # pa.Array | pa.Scalar; pyarrow has no types
_Kernel = Callable[..., Value]
_F = Function


def kernel(call: Call) -> _Kernel:
    """Return a function of as many columns as ``call`` has arguments; of scalars alone it returns a scalar."""
    on_columns = _kernel(call)

    def apply(*values: Value) -> Value:
        if any([isinstance(value, pa.Array) for value in values]):
            return on_columns(*values)
        return on_columns(*(pa.repeat(value, 1) for value in values))[0]

    return apply


def _kernel(call: Call) -> _Kernel:
    text: Any
    text, more, *_ = (*call.parameters, "", "")
    match call.function:
        case _F.IS_NAN:
            return pc.is_nan
        case _F.IS_FINITE:
            return pc.is_finite
        case _F.HASH:
            return _hash
        case _F.ROUND:
            digits = int(call.parameters[0])
            return lambda value: round_half_away(value, digits)
        case _F.CONCAT:
            return lambda *values: pc.binary_join_element_wise(*values, to_scalar(text, values[0].type))
        case _F.LENGTH:
            return lambda value: pc.utf8_length(value).cast(pa.int64())
        case _F.LOWER:
            return pc.utf8_lower
        case _F.UPPER:
            return pc.utf8_upper
        case _F.STRIP:
            return lambda value: pc.utf8_trim(value, characters=text)
        case _F.STARTS_WITH:
            return lambda value: pc.starts_with(value, pattern=text)
        case _F.ENDS_WITH:
            return lambda value: pc.ends_with(value, pattern=text)
        case _F.CONTAINS:
            pattern = Pattern.of(text, "contains").re2()
            return lambda value: pc.match_substring_regex(value, pattern=pattern)
        case _F.CONTAINS_LITERAL:
            return lambda value: pc.match_substring(value, pattern=text)
        case _F.REPLACE_ALL:
            pattern, plain = Pattern.of(text, "replace_all").re2(), str(more).replace("\\", "\\\\")
            return lambda value: pc.replace_substring_regex(value, pattern=pattern, replacement=plain)
        case _F.REPLACE_ALL_LITERAL:
            return lambda value: pc.replace_substring(value, pattern=text, replacement=str(more))
        case _F.EXTRACT:
            pattern = Pattern.of(text, "extract").re2(int(more))
            return lambda value: pc.struct_field(pc.extract_regex(value, pattern=pattern), GROUP)
        case _F.SPLIT:
            return lambda value: pc.split_pattern(value, pattern=text)
        case _F.SLICE:
            start, stop = _window(*(int(number) for number in call.parameters))
            return lambda value: pc.utf8_slice_codeunits(value, start=start, stop=stop)
        case _F.COUNT:
            return lambda value: pc.count_substring(value, pattern=text).cast(pa.int64())
        case _F.LIST_GET:
            index = int(call.parameters[0])
            return lambda value: _list_get(value, index)
        case _F.STRUCT_FIELD:
            return lambda value: _struct_field(value, text)
        case _F.YEAR:
            return year
        case _F.MONTH:
            return pc.month
        case _F.DAY:
            return pc.day
        case _F.HOUR:
            return pc.hour
        case _F.MINUTE:
            return pc.minute
        case _F.SECOND:
            return _second
        case _F.MILLISECOND:
            return pc.millisecond
        case _F.MICROSECOND:
            return lambda value: pc.add(pc.multiply(pc.millisecond(value), 1000), pc.microsecond(value))
        case _F.WEEKDAY:
            return lambda value: pc.day_of_week(value, count_from_zero=False, week_start=1)
        case _F.ORDINAL_DAY:
            return day_of_year
        case _F.DATE:
            return lambda value: value.cast(pa.date32())
        case _F.TRUNCATE:
            every, offset = (int(length) for length in call.parameters)
            return lambda value: truncate(value, every, offset)
        case _F.LOCALIZE:
            zone, ambiguous, missing = map(str, call.parameters)
            return lambda value: localize(value, zone, ambiguous, missing)
        case _F.STRFTIME:
            parts = parse_format(text)
            return lambda value: format_times(value, parts)
        case _F.FROM_EPOCH:
            return lambda value: value.cast(pa.timestamp(text, "UTC"))
    assert_never(call.function)


def _window(offset: int, length: int | None = None) -> tuple[int, int | None]:
    """Return start and stop of a Python slice with the characters of ``str.slice``."""
    if length is None or (offset < 0 <= offset + length):
        return offset, None
    return offset, offset + length


def _second(value: pa.Array) -> pa.Array:
    """Return the second on the clock of the zone: Arrow's ``second`` assumes offsets of whole minutes."""
    return pc.second(pc.local_timestamp(value) if pa.types.is_timestamp(value.type) and value.type.tz else value)


def _hash(value: pa.Array) -> pa.Array:
    """Return the key hash, its uint64 as int64; by name, because ``dataflow.state`` is a sibling layer."""
    hashes = resolve("function", "hash_rows")([value]).view(np.int64)
    nulls = to_numbers(pc.is_null(value)) if value.null_count else None
    return to_array(hashes, pa.int64(), mask=nulls)


def _list_get(lists: pa.Array, index: int) -> pa.Array:
    """Return the element at ``index`` of each list; negative ones count from the end, null outside."""
    if types.is_null(lists.type):
        return lists
    if types.is_fixed_size_list(lists.type):
        ends = (np.arange(len(lists) + 1, dtype=np.int64) + lists.offset) * lists.type.list_size
    else:
        ends = to_numbers(lists.offsets)
    first, last = ends[:-1], ends[1:]
    places = (first if index >= 0 else last) + np.int64(index)
    outside = (places < first) | (places >= last)
    if lists.null_count:
        outside |= to_numbers(pc.is_null(lists))
    values = lists.values
    if values.type != value_type(values.type) and not types.is_dictionary(values.type):
        values = values.cast(value_type(values.type))  # a view, which has no kernel to take from it
    return values.take(to_array(places, pa.int64(), mask=outside))


def _struct_field(structs: pa.Array, name: str) -> pa.Array:
    """Return the values of field ``name``, null where the struct is null."""
    if types.is_null(structs.type):
        return structs
    return pc.struct_field(structs, [structs.type.get_field_index(name)])
