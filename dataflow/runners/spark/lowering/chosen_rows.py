"""The rows with the lowest ranks, and one row of each key, as Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dataflow.planning.chosen_row_specs import EDGES, RANK, Top, TopSpec, Unique, WindowTop
from dataflow.runners.spark.lowering.inputs import Inputs, typed
from dataflow.runners.spark.lowering.windows import windows_of
from dataflow.runners.spark.session import column, functions, pyspark

__all__ = ["top", "unique", "window_top"]

_RANK: Final = "barrierflow:rank"


def top(inputs: Inputs) -> Any:
    """Lower the first rows of each key."""
    assert isinstance(inputs.node.spec, Top), inputs.where
    return _ranked(inputs, inputs.node.spec, inputs.frames[0], [], {})


def window_top(inputs: Inputs) -> Any:
    """Lower the first rows of each key and window."""
    spec = inputs.node.spec
    assert isinstance(spec, WindowTop), inputs.where
    windows = windows_of(spec.window, spec.time, inputs.schemas[0], inputs.where)
    edges = windows.edges(inputs.node.schema.field(EDGES[0]).type)
    return _ranked(inputs, spec, windows.of(inputs.frames[0]), windows.names, dict(zip(EDGES, edges, strict=True)))


def _ranked(inputs: Inputs, spec: TopSpec, frame: Any, more: Sequence[str], made: Mapping[str, Any]) -> Any:
    f, order = functions(), spec.order
    by = [_ordered(name, descending=descending) for name, descending in order.pairs]
    groups = [*spec.keys, *more]
    if order.ties == "all":
        rank = f.rank().over(_window(groups).orderBy(*by))
    else:
        rank = f.row_number().over(_window(groups).orderBy(*by, *_all_columns(inputs)))
    ranked = frame.select("*", rank.alias(_RANK)).where(column(_RANK) <= f.lit(order.n))
    results = {name: column(name) for name in inputs.schemas[0].names} | {**made, RANK: column(_RANK)}
    return ranked.select(*(typed(results[field.name], field) for field in inputs.node.schema))


def unique(inputs: Inputs) -> Any:
    """Lower one row of each key, which may be any: without event time no order is promised."""
    spec, f = inputs.node.spec, functions()
    assert isinstance(spec, Unique), inputs.where
    number = f.row_number().over(_window(spec.keys).orderBy(*_all_columns(inputs)))
    first = inputs.frames[0].select("*", number.alias(_RANK)).where(column(_RANK) == f.lit(1))
    return first.select(*map(column, inputs.node.schema.names))


def _window(groups: Sequence[str]) -> Any:
    return pyspark("pyspark.sql").Window.partitionBy(*map(column, groups))


def _ordered(name: str, *, descending: bool = False) -> Any:
    """Return an order of rows: nulls last, and NaN above every number."""
    return column(name).desc_nulls_last() if descending else column(name).asc_nulls_last()


def _all_columns(inputs: Inputs) -> Sequence[Any]:
    """Return the order of rows by all columns. If Spark has to choose again, it chooses rows with the same values."""
    return [_ordered(name) for name in inputs.schemas[0].names]
