"""Which types a function takes and makes: one rule for each member of ``Function``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa
from pyarrow import types

from dataflow.errors import SchemaMismatch
from dataflow.expressions.calls import Call, Function
from dataflow.expressions.coercion import family, value_type

if TYPE_CHECKING:
    from dataflow.expressions.typing import Typed

__all__ = ["NANOSECONDS", "signature"]

_F = Function
_TIMESTAMPS: Final = ("timestamp", "timestamp with zone")
NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9


def signature(
    call: Call, arguments: tuple[Typed, ...], where: str
) -> tuple[pa.DataType, tuple[pa.DataType, ...]] | None:
    """The type of the result and those the arguments are brought to; None where the function does not take them.

    Raises: SchemaMismatch where a length of time is finer than the column's unit.
    """
    given = [value_type(argument.dtype) for argument in arguments]
    families = {family(dtype) for dtype in given} - {"null"}
    own = given[0]
    match call.function:
        case _F.IS_NAN | _F.IS_FINITE:
            return (pa.bool_(), (pa.float64(),)) if families <= {"int", "float"} else None
        case _F.HASH:
            return (pa.int64(), (own,)) if "other" not in families or types.is_fixed_size_binary(own) else None
        case _F.YEAR | _F.MONTH | _F.DAY | _F.WEEKDAY | _F.ORDINAL_DAY:
            return _temporal(pa.int64(), own, families <= {"date", *_TIMESTAMPS})
        case _F.HOUR | _F.MINUTE | _F.SECOND | _F.MILLISECOND | _F.MICROSECOND:
            return _temporal(pa.int64(), own, families <= {"time", *_TIMESTAMPS})
        case _F.DATE:
            return _temporal(pa.date32(), own, families <= {"date", *_TIMESTAMPS})
        case _F.TRUNCATE:
            if families <= {"date", *_TIMESTAMPS}:
                _check_unit(call, own, where)
            return _temporal(own, own, families <= {"date", *_TIMESTAMPS})
    if not families <= {"string"}:
        return None
    text = pa.large_string() if pa.large_string() in given else pa.string()
    compute = (text,) * len(given)
    match call.function:
        case _F.LENGTH:
            return pa.int64(), compute
        case _F.STARTS_WITH | _F.ENDS_WITH | _F.CONTAINS | _F.CONTAINS_LITERAL:
            return pa.bool_(), compute
        case _F.CONCAT | _F.LOWER | _F.UPPER | _F.STRIP | _F.REPLACE_ALL | _F.REPLACE_ALL_LITERAL | _F.EXTRACT:
            return text, compute
        case _F.SPLIT:
            return pa.list_(text), compute
    assert_never(call.function)


def _temporal(
    dtype: pa.DataType,
    own: pa.DataType,
    takes: bool,  # noqa: FBT001 - a finding, not a mode
) -> tuple[pa.DataType, tuple[pa.DataType, ...]] | None:
    if not takes:
        return None
    compute = pa.timestamp("us") if types.is_null(own) else own
    return (compute if types.is_null(dtype) else dtype), (compute,)


def _check_unit(call: Call, own: pa.DataType, where: str) -> None:
    """Intervals have to begin where the column has a value."""
    if types.is_null(own):
        return
    unit = _DAY if types.is_date(own) else NANOSECONDS[own.unit]
    if any(1000 * int(length) % unit for length in call.parameters):
        finer = "a timestamp" if types.is_date(own) else "a finer unit"
        raise SchemaMismatch(f"{where}: {call}: {own} has no such times; .cast() it to {finer} first")
