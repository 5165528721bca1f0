"""The kinds of aggregates, and everything about a kind that does not depend on how it is computed.

Other files of the library ask the properties of ``Aggregation``, which are made of this table, and name no kind. How a
kind is computed is said once by the operators (``operators.aggregation.kinds``) and once for Spark
(``dataflow.runners.spark.lowering.aggregates``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa
from pyarrow import types

from dataflow.expressions.coercion import family

__all__ = ["KINDS", "AggregateKind", "Kind", "is_value", "is_word", "kernel_takes", "words_of"]


class AggregateKind(Enum):
    """The kinds of aggregates. All but COUNT and COUNT_DISTINCT return null if no value counts.

    >>> from dataflow.expressions import col
    >>> col("price").max().kind
    <AggregateKind.MAX: 'max'>
    """

    COUNT = "count"
    COUNT_DISTINCT = "count_distinct"
    SUM = "sum"
    MEAN = "mean"
    VARIANCE = "variance"
    STDDEV = "stddev"
    MIN = "min"
    MAX = "max"
    FIRST = "first"
    LAST = "last"
    ARG_MIN = "arg_min"
    ARG_MAX = "arg_max"
    QUANTILE = "quantile"
    TO_LIST = "to_list"
    KERNEL = "kernel"
    PYTHON = "aggregate_python"


Result = Callable[[pa.DataType], pa.DataType | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of aggregate.

    Attributes:
        result: returns the type of the result by that of the argument, None for types that it does not take. The
            user's functions say themselves what they take and return.
        takes: these types in words.
        needs: the attributes of an ``Aggregation`` that it must have.
        may_have: those that it may have besides; all may have a name and a predicate.
        chooses_a_row: whether the result is the argument's value in one row.
        goes_by_arrival: whether the result may depend on the order in which rows arrive.
        orders_by_time: whether its rows are in order of event time, where there is one and no order is given.
        orders_by_text: whether text may be the order of its rows.
        slides: whether its cost for a row of a sliding window does not depend on the number of rows in the window.
        never_null: whether the result has a value where there is none to aggregate.
        free_of_order: whether rows may be folded in any order: the result is the same, bit by bit.
    """

    result: Result
    takes: str = "all but nested types and views"
    needs: frozenset[str] = frozenset({"argument"})
    may_have: frozenset[str] = frozenset()
    chooses_a_row: bool = False
    goes_by_arrival: bool = False
    orders_by_time: bool = False
    orders_by_text: bool = False
    slides: bool = False
    free_of_order: bool = False
    never_null: bool = False


def is_word(given: pa.DataType) -> bool:
    """Return whether values fit into 64 bits and have an order."""
    kind = family(given)
    return kind in ("int", "float", "bool", "date", "time", "duration", "null") or kind.startswith("timestamp")


def is_value(given: pa.DataType) -> bool:
    """Return whether values are no nested ones."""
    return is_word(given) or family(given) in ("string", "binary", "decimal") or types.is_fixed_size_binary(given)


def kernel_takes(given: pa.DataType, takes: pa.DataType) -> bool:
    """Return whether values of type ``given`` can be those that a kernel takes."""
    if types.is_floating(takes):
        return family(given) in ("int", "float", "decimal", "bool", "null")
    return is_word(given) and not types.is_floating(given) and not types.is_uint64(given)


def words_of(has: Callable[[Kind], bool]) -> str:
    """Return the words of the kinds for which ``has`` is true.

    >>> words_of(lambda kind: kind.chooses_a_row)
    'first, last, arg_min, arg_max'
    """
    return ", ".join([kind.value for kind, each in KINDS.items() if has(each)])


def _count(given: pa.DataType) -> pa.DataType:
    return pa.int64()


def _count_of_values(given: pa.DataType) -> pa.DataType | None:
    return pa.int64() if is_value(given) else None


def _same(given: pa.DataType) -> pa.DataType | None:
    return given if is_value(given) else None


def _list(given: pa.DataType) -> pa.DataType | None:
    return pa.list_(given) if is_value(given) else None


def _mean(given: pa.DataType) -> pa.DataType | None:
    return pa.float64() if family(given) in ("int", "float", "decimal", "bool", "null") else None


def _spread(given: pa.DataType) -> pa.DataType | None:
    return pa.float64() if family(given) in ("int", "float", "decimal", "null") else None


def _quantile(given: pa.DataType) -> pa.DataType | None:
    return given if family(given) == "duration" else _spread(given)


def _sum(given: pa.DataType) -> pa.DataType | None:
    match family(given):
        case "int":
            return pa.uint64() if types.is_unsigned_integer(given) else pa.int64()
        case "bool" | "null":
            return pa.int64()
        case "float":
            return pa.float64()
        case "duration":
            return given
        case "decimal" if not types.is_decimal256(given):
            return pa.decimal128(38, given.scale)
    return None


def _of_functions(given: pa.DataType) -> pa.DataType | None:
    raise AssertionError("an aggregate of the user's says itself what it returns")


def _choice(needs: str = "", *, by_time: bool = False) -> Kind:
    return Kind(
        result=_same,
        needs=frozenset({"argument", *needs.split()}),
        may_have=frozenset({"by"}),
        chooses_a_row=True,
        goes_by_arrival=True,
        orders_by_time=by_time,
        slides=by_time,
    )


_SPREAD: Final = Kind(result=_spread, takes="integers, floats or decimals", may_have=frozenset({"ddof"}), slides=True)
_EXTREME: Final = Kind(result=_same, slides=True, free_of_order=True)

KINDS: Final[dict[AggregateKind, Kind]] = {
    AggregateKind.COUNT: Kind(result=_count, needs=frozenset(), slides=True, free_of_order=True, never_null=True),
    AggregateKind.COUNT_DISTINCT: Kind(result=_count_of_values, slides=True, free_of_order=True, never_null=True),
    AggregateKind.SUM: Kind(
        result=_sum, takes="integers, floats, booleans, durations, or decimals of up to 38 digits", slides=True
    ),
    AggregateKind.MEAN: Kind(result=_mean, takes="integers, floats, booleans or decimals", slides=True),
    AggregateKind.VARIANCE: _SPREAD,
    AggregateKind.STDDEV: _SPREAD,
    AggregateKind.MIN: _EXTREME,
    AggregateKind.MAX: _EXTREME,
    AggregateKind.FIRST: _choice(by_time=True),
    AggregateKind.LAST: _choice(by_time=True),
    AggregateKind.ARG_MIN: _choice("by"),
    AggregateKind.ARG_MAX: _choice("by"),
    AggregateKind.QUANTILE: Kind(
        result=_quantile,
        takes="integers, floats, decimals or durations",
        needs=frozenset({"argument", "q"}),
        free_of_order=True,
    ),
    AggregateKind.TO_LIST: Kind(
        result=_list, may_have=frozenset({"by"}), goes_by_arrival=True, orders_by_time=True, orders_by_text=True
    ),
    AggregateKind.KERNEL: Kind(result=_of_functions, needs=frozenset({"argument", "kernel"})),
    AggregateKind.PYTHON: Kind(
        result=_of_functions,
        needs=frozenset({"argument", "functions"}),
        goes_by_arrival=True,
    ),
}
"""Every kind, in the order in which errors list them."""
