"""Values of Parquet files in another type than the file has: in that of other files, or in one that a user declared.

``is_readable`` decides by types alone, before any row is read. ``converted`` changes values, and never wraps or rounds
one: integers become float64, and times become finer, value by value.

INT96 times have nanoseconds and more years than int64 holds of these, so Arrow wraps them, and it cuts digits if it
reads them as microseconds. Read in both units, a time shows whether it lost either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.dictionaries import widened_array
from operators.parquet_types import is_one_type, list_field

__all__ = ["DoesNotFit", "check_digits", "converted", "is_readable", "per_unit", "readable_type"]

_UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
"""Decimal digits of the largest integer, by bits; one more for 64 bits without a sign."""
_MOST_DIGITS: Final = 76  # of decimal256


class DoesNotFit(ValueError):
    """A value that its declared type cannot hold. The text is a clause that follows the value."""


def is_readable(stored: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether a column of type ``stored`` can be read as ``declared``, as far as its type shows.

    >>> is_readable(pa.int32(), pa.int64()), is_readable(pa.int64(), pa.int32())
    (True, False)
    >>> is_readable(pa.list_(pa.timestamp("ms")), pa.large_list(pa.timestamp("us")))
    True
    """
    if types.is_null(stored) or types.is_null(declared):
        return bool(types.is_null(stored))
    if types.is_dictionary(stored) or types.is_dictionary(declared):
        return is_readable(*[t.value_type if types.is_dictionary(t) else t for t in (stored, declared)])
    if types.is_struct(stored) and types.is_struct(declared):
        same = [field.name for field in stored] == [field.name for field in declared]
        return same and all(is_readable(one.type, other.type) for one, other in zip(stored, declared, strict=True))
    if types.is_map(stored) and types.is_map(declared):
        return is_readable(stored.key_type, declared.key_type) and is_readable(stored.item_type, declared.item_type)
    if (one := list_field(stored)) is not None and (other := list_field(declared)) is not None:
        both_fixed = types.is_fixed_size_list(stored) and types.is_fixed_size_list(declared)
        same = not both_fixed or stored.list_size == declared.list_size
        return same and is_readable(one.type, other.type)
    return is_one_type(stored, declared) or _widens(stored, declared)


def readable_type(stored: Sequence[pa.DataType]) -> pa.DataType | None:
    """Return a type as which columns of all types ``stored`` can be read if it is declared; None: there is none.

    >>> print(readable_type([pa.int64(), pa.uint64()]), readable_type([pa.int64(), pa.uint64(), pa.float32()]))
    decimal128(20, 0) double
    >>> readable_type([pa.int64(), pa.string()])
    """
    kinds = list(dict.fromkeys(type_ for type_ in stored if not types.is_null(type_)))
    candidates = _candidates(kinds) if kinds else iter([pa.null()])
    return next((type_ for type_ in candidates if all(is_readable(kind, type_) for kind in kinds)), None)


def _candidates(kinds: Sequence[pa.DataType]) -> Iterator[pa.DataType]:
    """Yield types that may hold the values of all ``kinds``, and one that does, if there is one."""
    first = kinds[0]
    if all(types.is_struct(kind) and kind.num_fields == first.num_fields for kind in kinds):
        fields = [readable_type([kind.field(place).type for kind in kinds]) for place in range(first.num_fields)]
        if None not in fields:
            yield pa.struct([(field.name, type_) for field, type_ in zip(first, fields, strict=True)])
    elif all(map(types.is_map, kinds)):
        key, item = readable_type([kind.key_type for kind in kinds]), readable_type([kind.item_type for kind in kinds])
        if key is not None and item is not None:
            yield pa.map_(key, item)
    elif all(list_field(kind) is not None for kind in kinds):
        value = readable_type([kind.value_type for kind in kinds])
        sizes = {kind.list_size if types.is_fixed_size_list(kind) else None for kind in kinds}
        if value is not None:
            yield pa.list_(value, sizes.pop() or -1) if len(sizes) == 1 else pa.list_(value)
    yield from (*kinds, pa.int16(), pa.int32(), pa.int64())
    whole = [kind for kind in kinds if types.is_integer(kind) or types.is_decimal(kind)]
    scale = max([kind.scale for kind in whole if types.is_decimal(kind)], default=0)
    digits = scale + max([_whole_digits(kind) for kind in whole], default=0)
    if 0 < digits <= _MOST_DIGITS:
        yield (pa.decimal128 if digits <= 38 else pa.decimal256)(digits, scale)
    yield pa.float64()


def _whole_digits(type_: pa.DataType) -> int:
    """Return how many decimal digits before the point an integer or decimal type has."""
    if types.is_decimal(type_):
        return int(type_.precision - type_.scale)
    return _DIGITS[type_.bit_width] + bool(types.is_uint64(type_))


def _widens(stored: pa.DataType, declared: pa.DataType) -> bool:
    if types.is_integer(stored):
        if types.is_decimal(declared):
            return _whole_digits(stored) <= _whole_digits(declared)
        if types.is_integer(declared):
            more = declared.bit_width > stored.bit_width
            same = types.is_signed_integer(stored) == types.is_signed_integer(declared)
            return bool(more and (same or types.is_signed_integer(declared)))
        return bool(types.is_float64(declared))
    if types.is_floating(stored):
        return bool(types.is_floating(declared) and stored.bit_width <= declared.bit_width)
    if types.is_decimal(stored) and types.is_decimal(declared):
        return bool(_whole_digits(declared) >= _whole_digits(stored) and declared.scale >= stored.scale)
    return per_unit(stored, declared) is not None


def per_unit(stored: pa.DataType, declared: pa.DataType) -> int | None:
    """Return how many units of the times ``declared`` one unit of ``stored`` has; None: they are not such times."""
    if types.is_timestamp(stored) and types.is_timestamp(declared):
        alike = (stored.tz is None) == (declared.tz is None)
    else:
        alike = any(is_one(stored) and is_one(declared) for is_one in (types.is_time, types.is_duration))
    if not alike or _UNITS[declared.unit] < _UNITS[stored.unit]:
        return None
    return _UNITS[declared.unit] // _UNITS[stored.unit]


def converted(array: pa.Array, type_: pa.DataType, fine: pa.Array | None = None) -> pa.Array:
    """Return ``array`` in ``type_``, in which its own type is readable.

    Args:
        array: values of a file, INT96 times in microseconds.
        type_: the type to return.
        fine: the same values with INT96 times in nanoseconds; None: there are no such times, or ``type_`` has them in
            microseconds.

    Raises: DoesNotFit.
    """
    if fine is not None and fine.type == array.type:
        fine = None
    if array.type == type_ and fine is None:
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), type_)
    if isinstance(array, pa.ExtensionArray):
        return converted(array.storage, type_)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, converted(array, type_.storage_type))
    if types.is_dictionary(type_):
        return _dictionary(array, type_)
    if types.is_dictionary(array.type):
        return converted(array.dictionary_decode(), type_)
    if types.is_struct(array.type) and types.is_struct(type_):
        children = [
            converted(array.field(place), field.type, None if fine is None else fine.field(place))
            for place, field in enumerate(type_)
        ]
        return pa.StructArray.from_arrays(children, fields=list(type_), mask=_nulls(array))
    if types.is_map(array.type) and types.is_map(type_):
        return _map(array, type_, fine)
    if list_field(array.type) is not None and list_field(type_) is not None:
        return _list(array, type_, fine)
    return _flat(array, type_) if fine is None else _int96(array, type_, fine)


def check_digits(coarse: pa.Array, fine: pa.Array) -> None:
    """Raise DoesNotFit if an INT96 time, given in microseconds and in nanoseconds, has finer digits than the first."""
    for us, ns in zip(_leaves(coarse), _leaves(fine), strict=True):
        if us.type != ns.type:
            valid = us.is_valid()
            whole, numbers = _words(us.filter(valid)), _words(ns.filter(valid))
            with np.errstate(over="ignore"):
                finer = numbers - whole * 1_000  # wraps as Arrow does, so it is what was cut, in every year
            if finer.any():
                raise DoesNotFit(
                    f"has digits finer than microseconds (and {finer[finer != 0][0]} ns); declare its column with "
                    "schema= as timestamp[ns], or as timestamp[us] to round such times down"
                )


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Yield the values inside of structs, lists and maps."""
    if types.is_struct(array.type):
        children = [array.field(place) for place in range(array.type.num_fields)]
    elif types.is_map(array.type) and len(array):
        children = [part.slice(*_span(array)) for part in (array.keys, array.items)]
    elif list_field(array.type) is not None and len(array):
        flat = _with_offsets(array)
        children = [flat.values.slice(*_span(flat))]
    else:
        yield array
        return
    for child in children:
        yield from _leaves(child)


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _dictionary(array: pa.Array, type_: pa.DataType) -> pa.Array:
    encoded = array if types.is_dictionary(array.type) else converted(array, type_.value_type).dictionary_encode()
    wide = widened_array(encoded)
    values = converted(wide.dictionary, type_.value_type)
    made = pa.DictionaryArray.from_arrays(wide.indices, values, ordered=type_.ordered)
    return made if made.type == type_ else made.cast(type_)


def _map(array: pa.Array, type_: pa.DataType, fine: pa.Array | None) -> pa.Array:
    offsets, first, end = _offsets(array)
    keys, items = [
        converted(
            getattr(array, part).slice(first, end - first),
            field.type,
            None if fine is None else getattr(fine, part).slice(*_span(fine)),
        )
        for part, field in (("keys", type_.key_field), ("items", type_.item_field))
    ]
    return pa.MapArray.from_arrays(offsets, keys, items, type_, mask=_nulls(array))


def _list(array: pa.Array, type_: pa.DataType, fine: pa.Array | None) -> pa.Array:
    if types.is_fixed_size_list(type_) and types.is_fixed_size_list(array.type):
        size = type_.list_size
        values, finer = [
            None if each is None else each.values.slice(each.offset * size, len(each) * size) for each in (array, fine)
        ]
        return pa.FixedSizeListArray.from_arrays(
            converted(values, type_.value_type, finer), type=type_, mask=_nulls(array)
        )
    array = _with_offsets(array)
    fine = None if fine is None else _with_offsets(fine)
    offsets, first, end = _offsets(array)
    finer = None if fine is None else fine.values.slice(*_span(fine))
    values = converted(array.values.slice(first, end - first), type_.value_type, finer)
    large = types.is_large_list(array.type)
    own = (pa.large_list if large else pa.list_)(type_.value_field)
    made = (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, values, own, mask=_nulls(array))
    try:
        return made if made.type == type_ else made.cast(type_)
    except pa.ArrowInvalid as error:
        raise DoesNotFit(f"is no list of the length that {type_} has") from error


def _with_offsets(array: pa.Array) -> pa.Array:
    """Return a list of any layout as one that has offsets. Arrow's casts confuse the nested lists of a slice."""
    if types.is_list(array.type) or types.is_large_list(array.type):
        return array
    lengths = to_numbers(pc.fill_null(pc.list_value_length(array), 0))
    offsets = to_array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    field = array.type.value_field
    return pa.LargeListArray.from_arrays(offsets, array.flatten(), pa.large_list(field), mask=_nulls(array))


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Return the offsets of a list or map, from 0, and the first and the last one of its own."""
    first, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    return pc.subtract(array.offsets, array.offsets[0]), first, end


def _span(array: pa.Array) -> tuple[int, int]:
    _, first, end = _offsets(array)
    return first, end - first


def _flat(array: pa.Array, type_: pa.DataType) -> pa.Array:
    factor = per_unit(array.type, type_)
    if factor is not None:
        return _times(array, type_, factor)
    if not is_readable(array.type, type_):  # the footer says that there are only nulls
        raise DoesNotFit(f"is no {type_}, and the statistics of the file have only nulls for its column")
    if types.is_integer(array.type) and types.is_float64(type_):
        _check_exact(array)
    return array.cast(type_, safe=False)  # what is readable fits


def _times(array: pa.Array, type_: pa.DataType, factor: int) -> pa.Array:
    if factor == 1:
        return array.view(type_)
    own, word = [pa.int32() if types.is_time32(time) else pa.int64() for time in (array.type, type_)]
    try:
        return pc.multiply_checked(array.view(own).cast(word), pa.scalar(factor, word)).view(type_)
    except pa.ArrowInvalid as error:
        raise DoesNotFit(f"is outside the range of {type_}") from error


def _check_exact(array: pa.Array) -> None:
    numbers = to_numbers(array.drop_null())
    floats = numbers.astype(np.float64)
    exact = floats < float(2 ** (array.type.bit_width - types.is_signed_integer(array.type)))
    exact[exact] = floats[exact].astype(numbers.dtype) == numbers[exact]
    if not exact.all():
        raise DoesNotFit("is between two neighbouring numbers of float64, which would round it")


def _int96(coarse: pa.Array, type_: pa.DataType, fine: pa.Array) -> pa.Array:
    """Return INT96 times, given in microseconds and in nanoseconds, in the unit of ``type_``."""
    if type_.unit == "us":
        return coarse.view(type_)
    valid = coarse.is_valid()
    if (np.floor_divide(_words(fine.filter(valid)), 1_000) != _words(coarse.filter(valid))).any():
        raise DoesNotFit(f"is outside the years that {type_} has, 1677 to 2262; declare timestamp[us]")
    return fine.view(type_)


def _words(times: pa.Array) -> npt.NDArray[Any]:
    return to_numbers(times.view(pa.int64()))
