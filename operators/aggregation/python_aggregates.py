"""Aggregates from plain Python functions over the values of a row, with a state of any Arrow type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.errors import ConfigurationError
from dataflow.expressions import Aggregation, Expr, col
from dataflow.expressions.aggregates import aggregate
from dataflow.expressions.custom import PythonAggregate
from operators.rows import cuts

__all__ = ["aggregate_python"]


def aggregate_python(
    *columns: str | Expr,
    zero: Any,
    add: Callable[..., Any],
    merge: Callable[[Any, Any], Any],
    finish: Callable[[Any], Any] | None = None,
    state: pa.DataType,
    returns: pa.DataType | None = None,
    where: Expr | None = None,
) -> Aggregation:
    """Return an aggregate from plain Python functions, which are called for each row; ``aggregate_kernel`` is faster.

    Args:
        columns: names of columns, or expressions: what ``add`` gets of a row, as Python values, None for null.
        zero: the state of a key without rows, a value of type ``state``. Each key gets a copy of its own.
        add: ``add(state, *values)`` returns the state with one more row; it may change ``state`` and return it.
        merge: ``merge(state, other)`` returns the state of all rows of both; those of ``other`` came later. It is
            called where states of parts of a window are put together.
        finish: ``finish(state)`` returns the result; a key without rows has null instead. None: the state.
        state: the Arrow type of a state. Between batches, and in checkpoints, states are values of this type, so
            functions get what Arrow makes of them: a tuple comes back as a list, a struct as a dict.
        returns: the Arrow type of the result; None: that of the state.
        where: a predicate; only rows for which it is true are aggregated.

    Returns: an argument for ``agg``; ``.alias(name)`` names its column.

    Rows come in the order of their arrival. The functions must return the same for the same arguments. A restore
    compares their own source with the checkpoint's, but not the globals and closures that they refer to. Rows are not
    aggregated before the shuffle by key.

    ``run`` fails if a function returns a value that is not of its type.

    Raises: ConfigurationError if there is no column, an argument has a wrong type, or ``zero`` is no ``state``.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> def add_step(path, step):
    ...     return path if path and path[-1] == step else [*path, step]
    >>> clicks = pa.table({"user": ["a", "b", "a", "a"], "page": ["home", "home", "home", "cart"]})
    >>> paths = flow.Pipeline().source(op.from_arrow(clicks)).key_by("user").agg(
    ...     path=op.aggregate_python(
    ...         "page",
    ...         zero=[],
    ...         add=add_step,
    ...         merge=lambda path, later: path + later,
    ...         finish=lambda path: " > ".join(path),
    ...         state=pa.list_(pa.string()),
    ...         returns=pa.string(),
    ...     )
    ... )
    >>> paths.collect().sort_by("user")["path"].to_pylist()
    ['home > cart', 'home']
    """
    for name, function in (("add", add), ("merge", merge), ("finish", finish)):
        if not callable(function) and not (name == "finish" and function is None):
            raise ConfigurationError(f"aggregate_python({name}=) must be a function, got {function!r}")
    for name, type_ in (("state", state), ("returns", returns)):
        if not isinstance(type_, pa.DataType) and not (name == "returns" and type_ is None):
            raise ConfigurationError(
                f"aggregate_python({name}=) must be an Arrow type such as pa.int64(), got {type_!r}"
            )
    if not columns or not all([isinstance(column, str | Expr) for column in columns]):
        raise ConfigurationError(
            f"aggregate_python takes the columns that add() gets, as names or expressions, got {columns!r}"
        )
    if finish is None and returns not in (None, state):
        raise ConfigurationError(f"aggregate_python without finish= returns its state, {state}, not returns={returns}")
    try:
        to_array([zero], state)
        if cuts(state, [zero]):
            raise pa.ArrowInvalid("a fraction would be cut off")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, OverflowError) as error:
        raise ConfigurationError(f"aggregate_python(zero={zero!r}) is no state={state}: {error}") from error
    first, *more = [col(column) if isinstance(column, str) else column for column in columns]
    functions = PythonAggregate(zero, add, merge, finish, state, state if returns is None else returns)
    return aggregate("aggregate_python", first, more=tuple(more), functions=functions, where=where)
