"""Aggregates per key, and per key and window, as groups of Spark's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dataflow.contracts.panes import PANE, PANE_INDEX
from dataflow.contracts.updates import CHANGE
from dataflow.planning.aggregate_specs import Aggregate, Grouped, WindowAggregate
from dataflow.runners.spark.lowering.aggregates import lowered
from dataflow.runners.spark.lowering.inputs import Inputs, NotLowered, typed
from dataflow.runners.spark.lowering.windows import windows_of
from dataflow.runners.spark.session import column, functions

__all__ = ["aggregate", "window_aggregate"]

_KEY: Final = "barrierflow:key"
_PART: Final = "barrierflow:part"


def aggregate(inputs: Inputs) -> Any:
    """Lower aggregates per key."""
    spec = inputs.node.spec
    assert isinstance(spec, Aggregate), inputs.where
    if spec.signed:
        raise NotLowered("its rows are signed changes")
    return _grouped(inputs, spec, inputs.frames[0], [], {})


def window_aggregate(inputs: Inputs) -> Any:
    """Lower aggregates per key and window. In a batch, each window comes out once."""
    spec, f = inputs.node.spec, functions()
    assert isinstance(spec, WindowAggregate), inputs.where
    windows = windows_of(spec.window, spec.time, inputs.schemas[0], inputs.where)
    start, end = windows.edges(inputs.node.schema.field("window_start").type)
    made = {
        "window_start": start,
        "window_end": end,
        CHANGE: f.lit(1),
        PANE: f.lit("on_time"),
        PANE_INDEX: f.lit(0),
    }
    return _grouped(inputs, spec, windows.of(inputs.frames[0]), windows.names, made)


def _grouped(inputs: Inputs, spec: Grouped, frame: Any, more: Sequence[str], made: Mapping[str, Any]) -> Any:
    """Return the groups by the keys and the columns ``more``; ``made`` are columns of the output that are neither."""
    schema = inputs.schemas[0]
    keys = {name: f"{_KEY}{number}" for number, name in enumerate(spec.keys)}
    results = dict(made)
    parts: list[Any] = []
    for aggregation in spec.aggregations:
        one = lowered(aggregation, schema, inputs.where)
        names = [f"{_PART}{len(parts) + number}" for number in range(len(one.parts))]
        parts += [part.alias(name) for part, name in zip(one.parts, names, strict=True)]
        results[aggregation.name] = one.result(*map(column, names))
    groups = [*(column(name).alias(alias) for name, alias in keys.items()), *map(column, more)]
    counted = [*parts, *([] if parts else [functions().count(functions().lit(1)).alias(_PART)])]
    grouped = frame.groupBy(*groups).agg(*counted) if groups else frame.agg(*counted)
    results |= {name: column(alias) for name, alias in keys.items()}
    return grouped.select(*(typed(results[field.name], field) for field in inputs.node.schema))
