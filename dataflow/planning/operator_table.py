"""The table from specs to the classes of their operators: the only list of the kinds of operators.

The library's classes are named as ``module:class``, so a pipeline imports only the operators that it has, when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.contracts.spec import Spec
from dataflow.errors import ConfigurationError
from dataflow.planning import (
    aggregate_specs,
    batch_specs,
    chosen_row_specs,
    join_specs,
    lookup_specs,
    process_specs,
    specs,
    triggered_specs,
)

__all__ = ["make_operator", "operator_class", "register", "registered_specs", "specs_of"]

_TABLE: dict[type[Spec], str | Callable[..., Operator]] = {
    specs.Read: "operators.transforms.pass_through:PassThrough",
    specs.Filter: "operators.transforms.filter:FilterOperator",
    specs.Project: "operators.transforms.project:ProjectOperator",
    specs.AddRows: "operators.transforms.project:ProjectOperator",
    specs.MapBatches: "operators.transforms.map_batches:MapBatchesOperator",
    specs.MapRows: "operators.transforms.map_rows:MapRowsOperator",
    specs.FlatMapRows: "operators.transforms.map_rows:FlatMapRowsOperator",
    specs.Watermarks: "operators.transforms.watermarks:WatermarkOperator",
    specs.EventTimes: "operators.transforms.event_times:EventTimesOperator",
    specs.LatestTimes: "operators.transforms.event_times:LatestTimesOperator",
    specs.ProcessingTime: "operators.transforms.processing_time:ProcessingTimeOperator",
    aggregate_specs.Aggregate: "operators.aggregation.aggregate:AggregateOperator",
    aggregate_specs.WindowAggregate: "operators.windows.aggregate:WindowAggregateOperator",
    triggered_specs.TriggeredAggregate: "operators.windows.triggered_windows:TriggeredWindowOperator",
    triggered_specs.TriggeredSessionAggregate: "operators.windows.triggered_sessions:TriggeredSessionOperator",
    triggered_specs.GlobalAggregate: "operators.windows.triggered_windows:TriggeredGlobalOperator",
    triggered_specs.CountAggregate: "operators.windows.count_windows:CountWindowOperator",
    aggregate_specs.SlidingAggregate: "operators.windows.sliding:SlidingAggregateOperator",
    aggregate_specs.SessionAggregate: "operators.windows.sessions:SessionAggregateOperator",
    aggregate_specs.MergingAggregate: "operators.windows.merging:MergingWindowOperator",
    join_specs.UnboundedJoin: "operators.joins.unbounded:UnboundedJoinOperator",
    join_specs.ExpiringJoin: "operators.joins.expiring:ExpiringJoinOperator",
    join_specs.AsofJoin: "operators.joins.asof:AsofJoinOperator",
    join_specs.ForwardAsofJoin: "operators.joins.asof_forward:ForwardAsofJoinOperator",
    join_specs.IntervalJoin: "operators.joins.interval:IntervalJoinOperator",
    join_specs.WindowJoin: "operators.joins.windowed:WindowJoinOperator",
    chosen_row_specs.Unique: "operators.chosen_rows.unique:UniqueOperator",
    chosen_row_specs.LastOfKey: "operators.aggregation.aggregate:AggregateOperator",
    chosen_row_specs.Top: "operators.chosen_rows.top:TopOperator",
    chosen_row_specs.SignedTop: "operators.chosen_rows.signed_top:SignedTopOperator",
    chosen_row_specs.WindowTop: "operators.chosen_rows.window_top:WindowTopOperator",
    lookup_specs.Lookup: "operators.lookup.lookup:LookupOperator",
    process_specs.ProcessKeys: "operators.process.keyed:KeyedProcessOperator",
    process_specs.ProcessBatches: "operators.process.batched:BatchProcessOperator",
    process_specs.ProcessKeysInOrder: "operators.batch.keyed_process:KeyedProcessInOrder",
    process_specs.ProcessBatchesInOrder: "operators.batch.batch_process:BatchProcessInOrder",
    batch_specs.NumberRows: "operators.batch.number_rows:NumberRowsOperator",
    batch_specs.AddChange: "operators.transforms.project:ProjectOperator",
    batch_specs.DropPlace: "operators.transforms.project:ProjectOperator",
    batch_specs.Sorted: "operators.batch.sorted:SortedOperator",
    process_specs.OneOrder: "operators.transforms.pass_through:PassThrough",
    aggregate_specs.Combine: "operators.aggregation.combine:CombineOperator",
    specs.Union: "operators.transforms.union:UnionOperator",
    specs.Apply: "operators.transforms.custom:applied",
    specs.Write: "operators.transforms.custom:writer",
}


def register(spec: type[Spec], operator: str | Callable[..., Operator]) -> None:
    """Register ``operator`` as the implementation of ``spec`` in every pipeline.

    Call it in the module that defines ``spec``: that is the module which workers import, on Spark and elsewhere.

    Args:
        spec: a subclass of `Spec`.
        operator: the class of the operator, or its name as ``module:class``, which is imported when a pipeline runs. It
            is called with an `OperatorContext` and ``spec.arguments()``.

    Raises: ConfigurationError if ``spec`` is no class of specs, if another operator is registered for it, or if
        ``operator`` is neither a class nor such a name.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Sample(Spec):
    ...     every: int
    >>> register(Sample, "jobs.sampling:SampleOperator")
    >>> register(Sample, "jobs:Other")
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: register: Sample already has the operator jobs.sampling:SampleOperator; \
define another spec for jobs:Other
    """
    if not (isinstance(spec, type) and issubclass(spec, Spec)):
        raise ConfigurationError(f"register: expected a subclass of dataflow.Spec, got {spec!r}")
    named = isinstance(operator, str) and all(operator.partition(":"))
    if not named and (isinstance(operator, str | Operator) or not callable(operator)):
        raise ConfigurationError(
            f"register: expected an Operator class, or 'module:class' as in 'jobs.sampling:Sample', got {operator!r}"
        )
    if _name(_TABLE.setdefault(spec, operator)) != _name(operator):
        raise ConfigurationError(
            f"register: {spec.__name__} already has the operator {_name(_TABLE[spec])}; define another spec for "
            f"{_name(operator)}"
        )


def operator_class(spec: Spec) -> Any:
    """Return the class that implements ``spec``, imported now.

    Raises: ConfigurationError if there is none, or if it cannot be imported.
    """
    operator = _TABLE.get(type(spec))
    kind = f"{type(spec).__module__}.{type(spec).__qualname__}"
    if operator is None:
        raise ConfigurationError(
            f"no operator is registered for {kind}; call dataflow.register({type(spec).__name__}, ...) in module "
            f"{type(spec).__module__}"
        )
    if not isinstance(operator, str):
        return operator
    module, _, name = operator.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"the operator {operator} of {kind} cannot be imported: {error}; correct its name in dataflow.register(...)"
        ) from error


def make_operator(spec: Spec, context: OperatorContext) -> Operator:
    """Return the operator of one subtask, made with ``context``.

    Raises: ConfigurationError if no operator is registered for the spec; the errors of its constructor.
    """
    return operator_class(spec)(context, *spec.arguments())


def registered_specs() -> list[type[Spec]]:
    """Return the specs that have an operator, the library's and those that were registered.

    >>> [spec.__name__ for spec in registered_specs()][:2]
    ['Read', 'Filter']
    """
    return list(_TABLE)


def specs_of(kind: str) -> list[type[Spec]]:
    """Return the registered specs that checkpoints call ``kind``, by the name of the class.

    >>> specs_of("aggregate")
    [<class 'dataflow.planning.aggregate_specs.Aggregate'>]
    """
    return [spec for spec in registered_specs() if spec.__name__.lower() == kind]


def _name(operator: str | Callable[..., Operator]) -> str:
    """Return the name of an operator as ``module:class``."""
    if isinstance(operator, str):
        return operator
    return f"{operator.__module__}:{getattr(operator, '__qualname__', operator)}"
