"""The steps of aggregates over signed changes, by kind."""

from __future__ import annotations

import pyarrow as pa

from dataflow.expressions import AggregateKind, Aggregation
from operators.steps.signed import SignedCount, SignedStep, SignedSum, SignedTotal, SignedVariance
from operators.steps.signed_values import SignedDistinct, SignedExtreme, SignedList
from operators.steps.step import StepPlace

__all__ = ["signed_step"]


def signed_step(aggregation: Aggregation, place: StepPlace) -> SignedStep:
    """Return the step of an aggregate over signed changes; the last argument of ``place`` has the weights."""
    match aggregation.kind:
        case AggregateKind.COUNT:
            return SignedCount(place)
        case AggregateKind.SUM if not pa.types.is_floating(place.dtype):
            return SignedSum(place)
        case AggregateKind.SUM | AggregateKind.MEAN:
            return SignedTotal(place, aggregation.kind)
        case AggregateKind.VARIANCE | AggregateKind.STDDEV:
            return SignedVariance(place, aggregation.kind, aggregation.ddof)
        case AggregateKind.MIN | AggregateKind.MAX:
            return SignedExtreme(place, aggregation.kind)
        case AggregateKind.COUNT_DISTINCT:
            return SignedDistinct(place)
        case AggregateKind.TO_LIST:
            return SignedList(place, some_rows=aggregation.where is not None)
    raise AssertionError(f"{aggregation} over signed changes")
