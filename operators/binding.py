"""From a logical node to the operator that does it. Runners call this; nothing below them does."""

from __future__ import annotations

from typing import assert_never

from dataflow.operator import Operator, OperatorContext
from dataflow.specs import (
    Aggregate,
    Apply,
    Combine,
    Emit,
    Filter,
    FlatMapRows,
    MapBatches,
    MapRows,
    Project,
    Read,
    Spec,
    Union,
    Watermarks,
    WindowAggregate,
    Write,
)

__all__ = ["operator_for"]


def operator_for(spec: Spec, context: OperatorContext) -> Operator:
    """The operator of one subtask, born with ``context``."""
    match spec:
        case Read():
            from operators.transforms.pass_through import PassThrough

            return PassThrough(context)
        case Union():
            from operators.transforms.union import Union as UnionOperator

            return UnionOperator(context)
        case Filter(predicate):
            from operators.transforms.filter import Filter as FilterOperator

            return FilterOperator(context, predicate)
        case Project(columns):
            from operators.transforms.project import Project as ProjectOperator

            return ProjectOperator(context, columns)
        case MapBatches(function, on_error, time):
            from operators.transforms.map_batches import MapBatches as MapBatchesOperator

            return MapBatchesOperator(context, function, on_error, time)
        case MapRows(function, on_error, time):
            from operators.transforms.map_rows import MapRows as MapRowsOperator

            return MapRowsOperator(context, function, on_error, time)
        case FlatMapRows(function, on_error, time):
            from operators.transforms.map_rows import FlatMapRows as FlatMapRowsOperator

            return FlatMapRowsOperator(context, function, on_error, time)
        case Aggregate(keys, aggregations, emit, every):
            from operators.aggregate import KeyedAggregate

            return KeyedAggregate(context, keys, aggregations, emit, every)
        case Combine(target):
            from operators.combine import Combine as CombineOperator

            return CombineOperator(context, target)
        case Watermarks(column, origin, delay, idle_after, on_error, max_drift):
            from operators.transforms.watermarks import Watermarks as WatermarksOperator

            return WatermarksOperator(context, column, origin, delay, idle_after, on_error, max_drift)
        case WindowAggregate(keys, time, window, lateness, aggregations, emit):
            from operators.windows.aggregate import WindowAggregate as WindowAggregateOperator

            if emit is Emit.FINAL:
                return WindowAggregateOperator(context, keys, time, window, 0, aggregations, watermark_delay=lateness)
            return WindowAggregateOperator(context, keys, time, window, lateness, aggregations)
        case Apply(factory):
            return factory(context)
        case Write(sink):
            return sink.writer(context)
        case _:
            assert_never(spec)
