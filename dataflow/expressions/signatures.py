"""Argument and result types of functions: one rule for each member of ``Function``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array
from dataflow.errors import SchemaMismatch, did_you_mean
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.coercion import family, value_type

if TYPE_CHECKING:
    from dataflow.expressions.typing import Typed

__all__ = ["NANOSECONDS", "signature"]

_F = Function
NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9
_DATED: Final = {"date", "timestamp", "timestamp with zone"}
_TIMED: Final = {"time", "timestamp", "timestamp with zone"}

_Signature = tuple[pa.DataType, tuple[pa.DataType, ...]]


def signature(call: Call, arguments: tuple[Typed, ...], where: str) -> _Signature | None:
    """Return the result's type and the types to convert the arguments to; None if the function does not take them.

    Raises: SchemaMismatch for an unknown time zone, and for a length of time that the column's unit cannot express.
    """
    given = [value_type(argument.dtype) for argument in arguments]
    families = {family(dtype) for dtype in given} - {"null"}
    if call.function.value.startswith("dt."):
        return _temporal(call, given[0], families, where)
    if call.function.value.startswith("str.") or call.function is _F.CONCAT:
        return _textual(call, given) if families <= {"string"} else None
    if call.function is _F.ROUND:
        return _rounded(given[0], int(call.parameters[0]))
    if call.function is _F.LIST_GET:
        return _element(given[0])
    if call.function is _F.STRUCT_FIELD:
        return _field(call, given[0], where)
    if call.function is _F.HASH:
        hashed = "other" not in families or types.is_fixed_size_binary(given[0])
        return (pa.int64(), (given[0],)) if hashed else None
    if call.function is _F.FROM_EPOCH:
        return (pa.timestamp(str(call.parameters[0]), "UTC"), (pa.int64(),)) if families <= {"int"} else None
    assert call.function in (_F.IS_NAN, _F.IS_FINITE), f"no types for {call.function}"
    return (pa.bool_(), (pa.float64(),)) if families <= {"int", "float"} else None


def _rounded(own: pa.DataType, digits: int) -> _Signature | None:
    match family(own):
        case "int" | "null":
            wide = pa.uint64() if types.is_uint64(own) else pa.int64()
            return wide, (wide,)
        case "float":
            return pa.float64(), (pa.float64(),)
        case "decimal":
            wide = own if digits >= own.scale else _with_one_more_digit(own)
            return wide, (wide,)
    return None


def _with_one_more_digit(own: pa.DataType) -> pa.DataType:
    """Return a decimal type that holds rounded values such as 10.00 of 9.99, unless all its digits are in use."""
    if types.is_decimal256(own):
        return pa.decimal256(min(own.precision + 1, 76), own.scale)
    return pa.decimal128(min(own.precision + 1, 38), own.scale)  # narrower decimals have few kernels


def _element(own: pa.DataType) -> _Signature | None:
    if types.is_null(own):
        return own, (own,)
    if not (types.is_list(own) or types.is_large_list(own) or types.is_fixed_size_list(own)):
        return None
    element = own.value_type
    return element if types.is_dictionary(element) else value_type(element), (own,)


def _field(call: Call, own: pa.DataType, where: str) -> _Signature | None:
    if types.is_null(own):
        return own, (own,)
    if not types.is_struct(own):
        return None
    name, names = str(call.parameters[0]), [field.name for field in own]
    if names.count(name) != 1:
        found = f"has {names.count(name)} fields {name!r}" if name in names else f"has no field {name!r}"
        raise SchemaMismatch(f"{where}: {call}: the struct {found}{did_you_mean(name, names)}; its fields are {names}")
    return own.field(name).type, (own,)


def _textual(call: Call, given: list[pa.DataType]) -> _Signature:
    text = pa.large_string() if pa.large_string() in given else pa.string()
    compute = (text,) * len(given)
    match call.function:
        case _F.LENGTH | _F.COUNT:
            return pa.int64(), compute
        case _F.STARTS_WITH | _F.ENDS_WITH | _F.CONTAINS | _F.CONTAINS_LITERAL:
            return pa.bool_(), compute
        case _F.SPLIT:
            return pa.list_(text), compute
    return text, compute


def _temporal(call: Call, own: pa.DataType, families: set[str], where: str) -> _Signature | None:
    timed = call.function in (_F.HOUR, _F.MINUTE, _F.SECOND, _F.MILLISECOND, _F.MICROSECOND)
    if not families <= (_TIMED if timed else _DATED):
        return None
    if types.is_null(own):
        own = pa.timestamp("us")
    if types.is_timestamp(own) and own.tz is not None:
        _check_zone(call, own, where)
    if call.function is _F.LOCALIZE:
        return _localized(call, own, where)
    match call.function:
        case _F.DATE:
            return pa.date32(), (own,)
        case _F.TRUNCATE:
            _check_lengths(call, own, where)
            return own, (own,)
        case _F.STRFTIME:
            return pa.string(), (own,)
    return pa.int64(), (own,)


def _localized(call: Call, own: pa.DataType, where: str) -> _Signature | None:
    if not types.is_timestamp(own):
        return None
    zone = str(call.parameters[0])
    if own.tz is not None:
        raise SchemaMismatch(
            f"{where}: {call}: expected timestamps without a zone, found {own}, which are instants already; to see "
            f"them on the clock of {zone}, write .cast('timestamp[{own.unit}, tz={zone}]')"
        )
    return pa.timestamp(own.unit, zone), (own,)


def _check_zone(call: Call, own: pa.DataType, where: str) -> None:
    try:
        pc.local_timestamp(to_array([0], own))
    except pa.ArrowInvalid as error:
        raise SchemaMismatch(f"{where}: {call}: {own}: {error}; .cast() it to a zone that exists") from None


def _check_lengths(call: Call, own: pa.DataType, where: str) -> None:
    """Raise SchemaMismatch if an interval begins at a time that the column's type cannot hold."""
    unit = _DAY if types.is_date(own) else NANOSECONDS[own.unit]
    lengths = [1000 * int(length) for length in call.parameters]
    if any(length % unit for length in lengths):
        finer = "a timestamp" if types.is_date(own) else "a finer unit"
        raise SchemaMismatch(f"{where}: {call}: {own} is too coarse for it; .cast() it to {finer} first")
    if any(length // unit >= 2**63 for length in lengths):
        raise SchemaMismatch(f"{where}: {call}: the interval is too long for {own}; make it shorter")
