"""Calls of ``dataflow.expressions.Function`` on Spark: native functions if they return the same, else local kernels.

A local kernel runs in Python workers that exchange Arrow batches with Spark, so ``dataflow`` must be installed there.
Three functions need one: ``hash``, whose arithmetic wraps, and ``dt.truncate`` and ``dt.localize`` in a time zone,
because Spark has another database of time zones.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.errors import UnsupportedOnRunner
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.kernels import kernel
from dataflow.expressions.patterns import Pattern
from dataflow.runners.spark.expressions.microseconds import PER_UNIT, from_ticks, to_ticks
from dataflow.runners.spark.expressions.numbers import round_half_away
from dataflow.runners.spark.expressions.run_time_errors import fail
from dataflow.runners.spark.expressions.shared_columns import Operand, bind
from dataflow.runners.spark.expressions.spark_types import carrier, spark_type
from dataflow.runners.spark.expressions.time_parts import format_times, part
from dataflow.runners.spark.session import functions

__all__ = ["call"]

_F = Function
_DAY: Final = 86_400_000_000
_TO_THE_END: Final = 2**31 - 1


def call(node: Call, arguments: list[Operand], compute: tuple[pa.DataType, ...], result: pa.DataType, what: str) -> Any:
    """Return the column of call ``node`` on ``arguments``, whose values are of the types ``compute``.

    Raises: UnsupportedOnRunner if it needs a local kernel and pyspark is too old for Arrow functions.
    """
    first, own = arguments[0], compute[0]
    if node.function is _F.HASH or (node.function is _F.TRUNCATE and _has_clock(own)):
        return _locally(node, first.column, own, result, what)
    if node.function is _F.TRUNCATE:
        every, offset = (int(length) for length in node.parameters)
        return first.bind(lambda time: _truncated(time, own, every, offset))
    if node.function is _F.LOCALIZE:
        return _localized(node, first.column, own, result, what)
    if node.function is _F.ROUND:
        return round_half_away(first, int(node.parameters[0]), own, result, what)
    if node.function is _F.STRFTIME:
        return first.bind(lambda time: format_times(time, own, str(node.parameters[0]), what))
    if node.function is _F.LIST_GET:
        index = int(node.parameters[0])
        return functions().try_element_at(first.column, functions().lit(index + 1 if index >= 0 else index))
    if node.function is _F.STRUCT_FIELD:
        return first.column.getField(str(node.parameters[0]))
    if node.function is _F.FROM_EPOCH:
        per_unit = functions().lit(PER_UNIT[str(node.parameters[0])]).cast("bigint")
        return from_ticks(first.column * per_unit, result)
    if node.function.value.startswith("dt."):
        return part(node.function, first.column, own)
    return _of_text_or_float(node, arguments)


def _has_clock(dtype: pa.DataType) -> bool:
    return types.is_timestamp(dtype) and dtype.tz not in (None, "UTC")


def _of_text_or_float(node: Call, arguments: list[Operand]) -> Any:
    f = functions()
    column = arguments[0].column
    text, more = (*(str(parameter) for parameter in node.parameters), "", "")[:2]
    match node.function:
        case _F.IS_NAN:
            return ~(f.abs(column) <= f.lit(float("inf")))  # NaN is greatest, and null stays null
        case _F.IS_FINITE:
            return f.abs(column) < f.lit(float("inf"))
        case _F.CONCAT:
            apart = [piece for argument in arguments for piece in (f.lit(text), argument.column)]
            return f.concat(*apart[1:])
        case _F.LENGTH:
            return f.char_length(column).cast("bigint")
        case _F.LOWER | _F.UPPER:
            return f.translate(column, *_case_mapping(node.function))
        case _F.STRIP:
            return f.btrim(column, f.lit(text)) if text else column
        case _F.STARTS_WITH:
            return f.startswith(column, f.lit(text))
        case _F.ENDS_WITH:
            return f.endswith(column, f.lit(text))
        case _F.CONTAINS:
            return column.rlike(Pattern.of(text, "contains").java())
        case _F.CONTAINS_LITERAL:
            return f.contains(column, f.lit(text))
        case _F.REPLACE_ALL:
            plain = more.replace("\\", "\\\\").replace("$", "\\$")
            return f.regexp_replace(column, Pattern.of(text, "replace_all").java(), plain)
        case _F.REPLACE_ALL_LITERAL:
            return f.replace(column, f.lit(text), f.lit(more))
        case _F.EXTRACT:
            pattern = Pattern.of(text, "extract").java()
            return arguments[0].bind(lambda s: f.when(s.rlike(pattern), f.regexp_extract(s, pattern, int(more))))
        case _F.SPLIT:
            return f.split(column, re.escape(text), -1)
        case _F.SLICE:
            start, *length = (int(number) for number in node.parameters)
            return f.substring(column, start + 1 if start >= 0 else start, (length or [_TO_THE_END])[0])
        case _F.COUNT:
            removed = f.char_length(column) - f.char_length(f.replace(column, f.lit(text), f.lit("")))
            return f.call_function("div", removed, f.lit(len(text))).cast("bigint")
    raise AssertionError(f"{node.function} is no function of text or floats")


@cache
def _case_mapping(function: Function) -> tuple[str, str]:
    """Return the characters that the local kernel changes, and their images: Spark's own mapping changes lengths."""
    mapped = pc.utf8_lower if function is _F.LOWER else pc.utf8_upper
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    pairs = [(old, new) for old, new in zip(every, mapped(pa.array(every)).to_pylist(), strict=True) if old != new]
    return "".join(old for old, _ in pairs), "".join(new for _, new in pairs)


def _truncated(time: Any, own: pa.DataType, every: int, offset: int) -> Any:
    f = functions()
    if types.is_date32(own):
        days = f.unix_date(time).cast("bigint")
        return f.date_from_unix_date(_floored(days, every // _DAY, offset // _DAY).cast("int"))
    floored = bind(to_ticks(time, own), lambda ticks: _floored(ticks, every, offset))
    if types.is_date64(own):
        return from_ticks(floored, pa.timestamp("us")).cast("date")
    return from_ticks(floored, own)


def _floored(ticks: Any, every: int, offset: int) -> Any:
    f = functions()
    length, start = (f.lit(number).cast("bigint") for number in (every, offset))
    return ticks - f.pmod(f.pmod(ticks, length) - start, length)


def _localized(node: Call, column: Any, own: pa.DataType, result: pa.DataType, what: str) -> Any:
    """Return the instants of ``dt.localize``. Its kernel gives null instead of raising, and then Spark raises.

    So a row that does not take a branch of ``when`` cannot raise, although Spark also calls the kernel for it.
    """
    zone, *choices = map(str, node.parameters)
    if zone == "UTC":
        return from_ticks(to_ticks(column, own), result)
    f = functions()

    def instants(*choices: str) -> Any:
        return _locally(Call(node.function, node.arguments, (zone, *choices)), column, own, result, what)

    chosen = instants(*(choice.replace("raise", "null") for choice in choices))
    match choices:
        case ["raise", "null"]:
            case, checked = "twice", instants("null", "later")
        case ["null", "raise"]:
            case, checked = "never", instants("earlier", "null")
        case ["raise", "raise"]:
            case, checked = "twice or never", chosen
        case ["raise", _]:
            case, checked = "twice", chosen
        case [_, "raise"]:
            case, checked = "never", chosen
        case _:
            return chosen
    refused = fail(
        ValueError,
        f"{what}: the clock of {zone} shows one of these times {case}; choose a time with ambiguous= and missing=, or "
        "filter such rows out first",
    )
    return f.when(column.isNull() | checked.isNotNull(), chosen).otherwise(refused)


def _locally(node: Call, column: Any, own: pa.DataType, result: pa.DataType, what: str) -> Any:
    f = functions()
    if not hasattr(f, "arrow_udf"):
        reason = f"{node.function.value} needs Arrow functions, which pyspark has from 4.1 on"
        raise UnsupportedOnRunner(what, "spark", reason, "pip install -U pyspark")
    carried = carrier(result)

    def compute(values: pa.Array) -> pa.Array:
        return kernel(node)(values.cast(own)).cast(carried)

    return f.arrow_udf(compute, spark_type(result, what))(column)
