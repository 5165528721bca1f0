"""The rule of each kind of operator that Spark can compute; see the package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from dataflow.contracts.spec import Spec
from dataflow.errors import UnsupportedOnRunner
from dataflow.planning.aggregate_specs import Aggregate, WindowAggregate
from dataflow.planning.batch_specs import AddChange, DropPlace, NumberRows
from dataflow.planning.chosen_row_specs import Top, Unique, WindowTop
from dataflow.planning.graph import Graph, Node
from dataflow.planning.join_specs import IntervalJoin, UnboundedJoin, WindowJoin
from dataflow.planning.specs import AddRows, EventTimes, Filter, Project, Read, Union
from dataflow.planning.triggered_specs import TriggeredAggregate
from dataflow.runners.spark.expressions.spark_types import carrier
from dataflow.runners.spark.lowering.chosen_rows import top, unique, window_top
from dataflow.runners.spark.lowering.groups import aggregate, window_aggregate
from dataflow.runners.spark.lowering.inputs import Inputs, NotLowered, Rule
from dataflow.runners.spark.lowering.joins import interval_join, unbounded_join, window_join
from dataflow.runners.spark.lowering.rows import event_times, filtered, numbered, projected, read, union
from dataflow.runners.spark.lowering.stand_in import StandIn
from dataflow.runners.spark.session import without_spark

__all__ = ["lower", "reason_against"]

_RULES: Final[Mapping[type[Spec], Rule]] = {
    Read: read,
    NumberRows: numbered,
    Filter: filtered,
    Project: projected,
    AddRows: projected,
    AddChange: projected,
    DropPlace: projected,
    EventTimes: event_times,
    Union: union,
    Aggregate: aggregate,
    WindowAggregate: window_aggregate,
    TriggeredAggregate: window_aggregate,
    UnboundedJoin: unbounded_join,
    IntervalJoin: interval_join,
    WindowJoin: window_join,
    Top: top,
    WindowTop: window_top,
    Unique: unique,
}


def lower(node: Node, graph: Graph, frames: Sequence[Any], session: Any) -> Any:
    """Return the DataFrame of the rows of ``node``, with the types of ``spark_schema(node.schema)``.

    Args:
        node: an operator of a batch, for which ``reason_against`` returns None.
        graph: its graph.
        frames: the DataFrames of its inputs.
        session: the session, which is the active one.
    """
    return _RULES[type(node.spec)](_inputs(node, graph, frames, session))


def reason_against(node: Node, graph: Graph) -> str | None:
    """Return why Spark cannot compute ``node`` exactly as the local engine does; None: it can. Needs no session."""
    rule = _RULES.get(type(node.spec))
    if rule is None and node.spec.calls_users_code:
        return "it calls a function"
    if rule is None:
        ordered = node.spec.row_order is not None
        return "it goes by the order of its rows" if ordered else f"Spark has no operator like it ({node.spec.kind})"
    inputs = [graph.schema_of(edge) for edge in node.inputs]
    if (reason := _against_columns([*inputs, node.schema])) is not None:
        return reason
    stand_in = StandIn()
    try:
        with without_spark(stand_in):
            rule(_inputs(node, graph, [stand_in] * len(inputs), stand_in))
    except NotLowered as error:
        return str(error)
    except UnsupportedOnRunner as error:
        return error.reason
    return None


def _inputs(node: Node, graph: Graph, frames: Sequence[Any], session: Any) -> Inputs:
    return Inputs(node, [graph.schema_of(edge) for edge in node.inputs], frames, session)


def _against_columns(schemas: Sequence[pa.Schema]) -> str | None:
    """Return why rows with these columns cannot be in a DataFrame."""
    for schema in schemas:
        for field in schema:
            if carrier(field.type) is None:
                return f"Spark has no type for the values of column {field.name!r}, {field.type}"
            if not field.name or "`" in field.name:
                return f"Spark takes no column with the name {field.name!r}"
        if same := [name for name, count in Counter(name.lower() for name in schema.names).items() if count > 1]:
            return f"names that differ only in case are one name in Spark: {same[0]!r}"
    return None
