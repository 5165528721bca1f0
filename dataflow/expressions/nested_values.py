"""``list.get`` and ``struct.field`` on the local engine."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dataflow.arrow_values import to_array, to_numbers
from dataflow.expressions.coercion import value_type

__all__ = ["list_get", "struct_field"]


def list_get(lists: pa.Array, index: int) -> pa.Array:
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


def struct_field(structs: pa.Array, name: str) -> pa.Array:
    """Return the values of field ``name``, null where the struct is null."""
    if types.is_null(structs.type):
        return structs
    return pc.struct_field(structs, [structs.type.get_field_index(name)])
