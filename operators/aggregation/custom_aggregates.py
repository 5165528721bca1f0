"""User-defined aggregates: a few plain Python functions of numbers, compiled into a loop over the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.expressions import Aggregation, Expr, col
from dataflow.expressions.aggregates import aggregate
from dataflow.expressions.custom import AggregateKernel

__all__ = ["CustomAggregate", "aggregate_kernel"]

_MAX_WORDS = 32


@dataclass(frozen=True, slots=True)
class CustomAggregate:
    """An aggregate function, returned by ``aggregate_kernel``: call it with a column or an expression."""

    kernel: AggregateKernel

    def __call__(self, argument: str | Expr, *, where: Expr | None = None) -> Aggregation:
        expression = col(argument) if isinstance(argument, str) else argument
        return aggregate("kernel", expression, kernel=self.kernel, where=where)


def aggregate_kernel(
    name: str,
    *,
    init: tuple[int | float, ...],
    step: Callable[[Any, Any], None],
    finish: Callable[[Any], int | float],
    merge: Callable[[Any, Any], None] | None = None,
    takes: pa.DataType | None = None,
    gives: pa.DataType | None = None,
) -> CustomAggregate:
    """Return a user-defined aggregate, compiled by numba at once, so that errors show while the graph is built.

    Args:
        name: names the result's column, ``{column}_{name}``, and the aggregate in errors and checkpoints.
        init: the state of a key without rows: up to 32 numbers. It is an int64 array if all of them are ints, else a
            float64 array.
        step: ``step(state, value)`` changes ``state`` in place; rows with a null are skipped.
        finish: ``finish(state)`` returns the result, a number of type ``gives``; a key without values has null instead.
        merge: ``merge(state, other)`` adds the rows of ``other``, which came later, to ``state``. Without it, rows are
            not aggregated before the shuffle by key.
        takes: the type of ``value``: ``pa.float64()`` (the default; for ints, floats, decimals, booleans), or
            ``pa.int64()`` (for ints, booleans, and for dates and times, as their numbers of units).
        gives: the type of the result: float64 by default, else int64, bool, a date or a time.

    Returns: a function of a column's name, or an expression, that returns an ``Aggregation``. It takes ``where=``, the
    predicate of the rows to aggregate.

    The functions are plain Python over numbers, as far as numba compiles it (``math`` and numpy's scalar functions
    included); division by zero gives inf or NaN. Globals that they refer to are compiled in with their current values.
    A restore compares the functions' own source with the checkpoint's, but not those globals, nor values in closures.

    Raises: ``ConfigurationError`` if an argument is invalid or a function does not compile.

    >>> import math
    >>> def add_logarithm(state, value):
    ...     state[0] += math.log(value)
    ...     state[1] += 1
    >>> def join(state, other):
    ...     state[0] += other[0]
    ...     state[1] += other[1]
    >>> geometric = aggregate_kernel(
    ...     "geometric_mean",
    ...     init=(0.0, 0.0),
    ...     step=add_logarithm,
    ...     merge=join,
    ...     finish=lambda state: math.exp(state[0] / state[1]),
    ... )
    >>> geometric("price").name, geometric("price").dtype(pa.schema({"price": pa.int32()}))
    ('price_geometric_mean', DataType(double))
    >>> import dataflow as flow, operators as op
    >>> with flow.Pipeline() as p:
    ...     prices = p.source(op.from_arrow(pa.table({"shop": [1, 2, 1], "price": [2, 5, 8]})))
    ...     prices.key_by("shop").agg(geometric("price").alias("mean")).sink(op.collect(), name="out")
    >>> sorted((row["shop"], round(row["mean"], 9)) for row in p.run().table("out").to_pylist())
    [(1, 4.0), (2, 5.0)]
    """
    takes, gives = takes or pa.float64(), gives or pa.float64()
    if not name.isidentifier():
        raise ConfigurationError(f"aggregate_kernel: name must be a word like 'geometric_mean', got {name!r}")
    if not 1 <= len(init) <= _MAX_WORDS or not all(type(number) in (int, float) for number in init):
        raise ConfigurationError(f"aggregate_kernel {name!r}: init must be 1 to {_MAX_WORDS} numbers, got {init!r}")
    if takes not in (pa.int64(), pa.float64()):
        raise ConfigurationError(f"aggregate_kernel {name!r}: takes must be pa.float64() or pa.int64(), got {takes}")
    if not _is_result(gives):
        raise ConfigurationError(
            f"aggregate_kernel {name!r}: gives must be float64, int64, bool, a date or a time, got {gives}"
        )
    from operators.steps.custom import compiled

    kernel = AggregateKernel(name, tuple(init), step, merge, finish, takes, gives)
    compiled(kernel)
    return CustomAggregate(kernel)


def _is_result(type_: pa.DataType) -> bool:
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        return type_ in (pa.int64(), pa.float64())
    return bool(pa.types.is_boolean(type_) or (pa.types.is_temporal(type_) and not pa.types.is_interval(type_)))
