"""Types by name, for ``cast`` and ``schema=`` of text sources.

Names are pyarrow's; times with a zone and decimals are written as pyarrow prints them. A name that means another width
elsewhere is refused: ``float`` has 32 bits in Arrow and SQL and 64 in Python, ``i8`` 64 in numpy and 8 in Rust.

>>> print(named_type("int32", "cast"), named_type("timestamp[us, tz=UTC]", "cast"), named_type("decimal128(9, 2)", "x"))
int32 timestamp[us, tz=UTC] decimal128(9, 2)
>>> named_type("float", "cast")
Traceback (most recent call last):
dataflow.errors.GraphError: cast: 'float' means 32 bits in one place and 64 in another; write 'float64' or 'float32'
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array
from dataflow.errors import GraphError

__all__ = ["named_type", "zoned_type"]

_ZONED: Final = re.compile(r"timestamp\[(s|ms|us|ns), ?tz=([^\]]+)\]")
_DECIMAL: Final = re.compile(r"decimal(128|256)\((\d{1,2}), ?(-?\d{1,2})\)")
_SHORT: Final = re.compile(r"(f(?=[248])|[iu])([1248])")  # numpy's names, in bytes
_FULL: Final = {"i": "int", "u": "uint", "f": "float"}
_INSTEAD: Final = {
    **dict.fromkeys(("int", "integer", "long", "bigint"), "'int64' or 'int32'"),
    **dict.fromkeys(("short", "smallint", "byte", "tinyint"), "'int16' or 'int8'"),
    **dict.fromkeys(("text", "varchar", "object"), "'string'"),
    **dict.fromkeys(("datetime", "datetime64", "timestamp"), "'timestamp[us]' or 'timestamp[us, tz=UTC]'"),
    "date": "'date32'",
    "time": "'time64[us]' or 'time32[s]'",
    "duration": "'duration[us]'",
    "bytes": "'binary'",
    "decimal": "'decimal128(18, 2)'",
    "decimal128": "'decimal128(18, 2)'",
}


def named_type(name: str, where: str) -> pa.DataType:
    """Return the type called ``name``.

    Args:
        name: ``"int32"``, ``"string"``, ``"timestamp[us]"``, ``"timestamp[us, tz=UTC]"``, ``"decimal128(9, 2)"``, ...
        where: begins the error's text.

    Raises: GraphError for a name that is unknown or ambiguous, and for an unknown time zone.
    """
    if name.lower() == "float":
        raise GraphError(
            f"{where}: {name!r} means 32 bits in one place and 64 in another; write 'float64' or 'float32'"
        )
    if short := _SHORT.fullmatch(name.lower()):
        full = f"{_FULL[short[1]]}{8 * int(short[2])}"
        raise GraphError(f"{where}: {name!r} counts bytes in numpy and bits elsewhere; write {full!r} for numpy's")
    if zoned := _ZONED.fullmatch(name):
        return zoned_type(zoned[1], zoned[2], where)
    try:
        if decimal := _DECIMAL.fullmatch(name):
            return (pa.decimal128 if decimal[1] == "128" else pa.decimal256)(int(decimal[2]), int(decimal[3]))
        return pa.type_for_alias(name)
    except ValueError:
        instead = _INSTEAD.get(name.lower(), "a pyarrow type, or its name such as 'int64', 'string' or 'timestamp[us]'")
        raise GraphError(f"{where}: there is no type {name!r}; write {instead}") from None


def zoned_type(unit: str, zone: str, where: str) -> pa.DataType:
    """Return the type of timestamps on the clock of ``zone``.

    Raises: GraphError, whose text begins with ``where``, if there is no such zone.
    """
    dtype = pa.timestamp(unit, zone)
    try:
        pc.assume_timezone(to_array([0], pa.timestamp(unit)), zone)  # local_timestamp takes "", which is no zone
    except pa.ArrowInvalid as error:
        raise GraphError(f"{where}: {dtype}: no such time zone: {error}; write one such as Europe/Berlin") from None
    return dtype
