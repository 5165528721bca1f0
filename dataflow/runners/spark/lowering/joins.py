"""Joins as Spark's. As in SQL, null equals nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

from dataflow.planning.join_specs import IntervalJoin, Join, UnboundedJoin, WindowJoin
from dataflow.runners.spark.lowering.inputs import Inputs, NotLowered, typed
from dataflow.runners.spark.lowering.windows import event_ticks, windows_of
from dataflow.runners.spark.session import column, functions

__all__ = ["interval_join", "unbounded_join", "window_join"]

_TIME: Final = "time"
_SIDES: Final = ("barrierflow:left:", "barrierflow:right:")


def unbounded_join(inputs: Inputs) -> Any:
    """Lower a join of all rows with equal keys."""
    spec = inputs.node.spec
    assert isinstance(spec, UnboundedJoin), inputs.where
    if any(spec.signed_inputs):
        raise NotLowered("its rows are signed changes")
    left, right = (_side(inputs, spec, port, inputs.frames[port], {}) for port in (0, 1))
    return _joined(inputs, spec, left, right, [], {})


def interval_join(inputs: Inputs) -> Any:
    """Lower a join of rows whose times are in an interval of each other."""
    spec, f = inputs.node.spec, functions()
    assert isinstance(spec, IntervalJoin), inputs.where
    times = [event_ticks(time, schema, inputs.where) for time, schema in zip(spec.times, inputs.schemas, strict=True)]
    left, right = (_side(inputs, spec, port, inputs.frames[port], {_TIME: times[port]}) for port in (0, 1))
    distance = column(_SIDES[1] + _TIME) - column(_SIDES[0] + _TIME)
    within = [distance >= f.lit(-(-spec.low // 1000)), distance <= f.lit(spec.high // 1000)]
    return _joined(inputs, spec, left, right, within, {})


def window_join(inputs: Inputs) -> Any:
    """Lower a join of rows of one window."""
    spec, f = inputs.node.spec, functions()
    assert isinstance(spec, WindowJoin), inputs.where
    sides = []
    for port in (0, 1):
        windows = windows_of(spec.window, spec.times[port], inputs.schemas[port], inputs.where)
        own = {name: column(name) for name in windows.names}
        sides.append(_side(inputs, spec, port, windows.of(inputs.frames[port]), own))
    same = [column(_SIDES[0] + name) == column(_SIDES[1] + name) for name in windows.names]

    def with_edges(joined: Any) -> Any:
        either = [f.coalesce(*(column(side + name) for side in _SIDES)).alias(name) for name in windows.names]
        return joined.select("*", *either)

    kind = inputs.node.schema.field("window_start").type
    start, end = windows.edges(kind)
    left, right = sides
    return _joined(inputs, spec, left, right, same, {"window_start": start, "window_end": end}, with_edges)


def _side(inputs: Inputs, spec: Join, port: int, frame: Any, more: Mapping[str, Any]) -> Any:
    """Return the rows of one side, whose columns have names that the other side does not have."""
    keys = (spec.columns.keys.left, spec.columns.keys.right)[port]
    columns = {f"key{number}": column(name) for number, name in enumerate(keys)}
    columns |= {f"of:{name}": column(origin) for name, origin in spec.columns.of(port, inputs.node.schema)}
    return frame.select(*(value.alias(_SIDES[port] + name) for name, value in {**columns, **more}.items()))


def _joined(
    inputs: Inputs,
    spec: Join,
    left: Any,
    right: Any,
    also: list[Any],
    made: Mapping[str, Any],
    then: Callable[[Any], Any] = lambda joined: joined,
) -> Any:
    """Return the pairs with equal keys for which ``also`` is true; ``made`` are columns of the output of no side."""
    f, schema = functions(), inputs.node.schema
    names = [f"key{number}" for number in range(len(spec.columns.keys.left))]
    equal = [column(_SIDES[0] + name) == column(_SIDES[1] + name) for name in names]
    joined = then(left.join(right, reduce(lambda one, other: one & other, [*equal, *also]), spec.how))
    results = dict(made)
    for key, name in zip(spec.columns.keys.left, names, strict=True):
        results[key] = f.coalesce(*(column(side + name) for side in _SIDES))
    for port in (0, 1):
        results |= {name: column(f"{_SIDES[port]}of:{name}") for name, _ in spec.columns.of(port, schema)}
    return joined.select(*(typed(results[field.name], field) for field in schema))
