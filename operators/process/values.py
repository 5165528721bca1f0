"""Python values of an Arrow type: checked when they are set or emitted, so that nothing is cut off later.

A value is checked where the user's code passes it on, so the error is raised there, and ``get`` returns the same before
and after the value went through Arrow.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import storage_dtype, to_array, to_scalar
from dataflow.contracts.declared_schema import misplaced_nulls
from dataflow.errors import SchemaMismatch
from operators.rows import cuts

__all__ = ["Converter", "canonical", "shown"]

_SHOWN: Final = 80
_NAN: Final = float("nan")


class Converter:
    """Checks values of ``type_``. ``where`` begins its errors, as in "process 'overdue': state 'since'".

    >>> Converter(pa.int8(), "state 'n'").checked(2.0)
    2
    >>> Converter(pa.int8(), "state 'n'").checked(300)
    Traceback (most recent call last):
    dataflow.errors.SchemaMismatch: state 'n': expected int8, got 300 (int)
    """

    def __init__(self, type_: pa.DataType, where: object, *, nullable: bool = True) -> None:
        self.type = type_
        self.is_nested = pa.types.is_nested(type_)
        self._where = where
        self._field = pa.field("value", type_, nullable=nullable)
        self._fits = _quick_check(type_)
        self._nullable = nullable
        is_number = pa.types.is_integer(type_) or pa.types.is_float64(type_)
        self._dtype = storage_dtype(type_) if is_number else None

    def checked(self, value: Any) -> Any:
        """Return ``value`` as Arrow would return it. Raises: SchemaMismatch if it does not fit the type."""
        if self._fits(value):
            return value
        if value is None and self._nullable:
            return None
        return self._converted(value)

    def all_checked(self, values: Sequence[Any]) -> list[Any]:
        """Return ``values`` as Arrow would return them, in one conversion if all fit. Raises: as ``checked``.

        >>> Converter(pa.list_(pa.int64()), "state 'n'").all_checked([(1, 2), None])
        [[1, 2], None]
        """
        if len(values) > 1 and not all(map(self._fits, values)):
            with suppress(Exception):  # the value that does not fit is named below
                if (converted := self._convert(values)) is not None:
                    return converted
        return [self.checked(value) for value in values]

    def _converted(self, value: Any) -> Any:
        try:
            converted = self._convert([value])
        except Exception as error:  # pyarrow raises a dozen kinds
            raise self._misfit(value) from error
        if converted is None:
            raise self._misfit(value)
        return converted[0]

    def _convert(self, values: Sequence[Any]) -> list[Any] | None:
        """Return ``values`` as Arrow returns them; None or an error: one of them does not fit."""
        given = [
            value.as_py() if isinstance(value, pa.Scalar) else value.item() if _is_numpy(value) else value
            for value in values
        ]
        array = to_array(given, self.type)
        if cuts(self.type, given) or any(misplaced_nulls(array, self._field)):
            return None
        if pa.types.is_boolean(self.type) and not all(value is None or isinstance(value, bool) for value in given):
            return None
        return array.to_pylist()

    def _misfit(self, value: object) -> SchemaMismatch:
        expected = f"{self.type}" if self._nullable else f"{self.type}, not null"
        return SchemaMismatch(f"{self._where}: expected {expected}, got {shown(value)}")

    def copied(self, value: Any) -> Any:
        """Return a value that the caller may change."""
        return copy.deepcopy(value) if self.is_nested else value

    def array(self, values: Sequence[Any]) -> pa.Array:
        """Return checked values as an array."""
        if self._dtype is not None and None not in values:
            return to_array(np.array(values, self._dtype), self.type)
        return to_array(list(values), self.type)

    def column(self, values: Any, rows: int) -> pa.Array:
        """Return values for ``rows`` rows, of Arrow, numpy or Python, as an array of the type.

        Raises: SchemaMismatch for another number of values, or values that do not fit.
        """
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
            values = pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values
        if isinstance(values, pa.Scalar) or not hasattr(values, "__len__") or isinstance(values, str | bytes):
            scalar = self.checked(values)
            values = pa.repeat(to_scalar(scalar, self.type), rows)
        elif isinstance(values, np.ndarray) and values.dtype.kind != "O":
            values = to_array(values) if values.dtype.kind in "biuf" else pa.array(values)
        elif not isinstance(values, pa.Array):
            values = to_array([self.checked(value) for value in values], self.type)
        if len(values) != rows:
            raise SchemaMismatch(f"{self._where}: expected {rows} values, one for each slot, got {len(values)}")
        if values.type != self.type:
            values = self._cast(values)
        if not self._nullable and values.null_count:
            raise SchemaMismatch(f"{self._where}: expected {self.type}, not null, but {values.null_count} are null")
        return values

    def _cast(self, values: pa.Array) -> pa.Array:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if not _is_same_kind(values.type, self.type):
            raise SchemaMismatch(f"{self._where}: expected {self.type}, got an array of {values.type}; cast it")
        try:
            return values.cast(self.type)
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"{self._where}: an array of {values.type} does not fit {self.type}: {error}"
            ) from error


def canonical(key: Any) -> Any:
    """Return a key of a mapping such that equal keys of state are equal in Python: all NaNs are one.

    >>> canonical(float("nan")) is canonical(-float("nan")), canonical(0.0)
    (True, 0.0)
    """
    if type(key) is float:
        return _NAN if key != key else key + 0.0
    return key


def shown(value: object) -> str:
    """Return a value for messages, at most ``_SHOWN`` characters of it, with its class."""
    text = " ".join(repr(value).split())
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return f"{text} ({type(value).__name__})"


def _is_numpy(value: object) -> bool:
    return isinstance(value, np.generic)


def _is_same_kind(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether values may be cast if nothing is lost: numbers to numbers, times to times, text to text."""
    types = pa.types
    kinds: Sequence[Callable[[pa.DataType], bool]] = (
        lambda type_: types.is_integer(type_) or types.is_floating(type_),
        lambda type_: types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_),
        lambda type_: types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_),
        lambda type_: types.is_timestamp(type_) and (type_.tz is None) == (wanted.tz is None),
        types.is_duration,
        types.is_decimal,
    )
    if types.is_null(found):
        return True
    if types.is_timestamp(found) != types.is_timestamp(wanted):
        return False
    return any(kind(found) and kind(wanted) for kind in kinds)


def _quick_check(type_: pa.DataType) -> Callable[[Any], bool]:
    """Return a test that is true only for values that Arrow returns as they are; it need not be true for all."""
    types = pa.types
    if types.is_integer(type_):
        low = 0 if types.is_unsigned_integer(type_) else -(1 << (type_.bit_width - 1))
        high = low + (1 << type_.bit_width)
        return lambda value: type(value) is int and low <= value < high
    if types.is_float64(type_):
        return lambda value: type(value) is float
    if types.is_boolean(type_):
        return lambda value: type(value) is bool
    if types.is_string(type_) or types.is_large_string(type_):
        return lambda value: type(value) is str and value.isascii()
    if types.is_binary(type_) or types.is_large_binary(type_):
        return lambda value: type(value) is bytes
    if types.is_timestamp(type_) and type_.unit == "us" and type_.tz is None:
        return lambda value: type(value) is datetime and value.tzinfo is None
    return lambda value: False
