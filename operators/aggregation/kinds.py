"""How the operators compute each kind of aggregate: its words in a record, and what adds rows and takes them back.

Other files of the operators ask this table, and name no kind. What does not depend on how a kind is computed is in
``dataflow.expressions.aggregate_kinds``. Rows may be folded before a shuffle, because records can be merged, if all of
their steps are ``mergeable``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from dataflow.expressions import AggregateKind, Aggregation
from dataflow.state.arrays import GREATEST, LEAST, is_bytes, is_word
from operators.aggregation.passes import Field
from operators.aggregation.word_columns import MeanColumn, WordColumn
from operators.kernels.instructions import COUNT, EXTREME, SUM, SUM_FLOAT, SUM_UNSIGNED
from operators.steps.choice import Choosing
from operators.steps.custom import CustomStep
from operators.steps.decimals import DecimalSum
from operators.steps.distinct import CountDistinct
from operators.steps.extreme import BytesExtreme
from operators.steps.lists import ToList
from operators.steps.moments import StandardDeviation, Variance
from operators.steps.python import PythonStep
from operators.steps.signed import (
    SignedCount,
    SignedDeviation,
    SignedMean,
    SignedStep,
    SignedSum,
    SignedTotal,
    SignedVariance,
)
from operators.steps.signed_values import SignedDistinct, SignedExtreme, SignedList
from operators.steps.step import Step, StepPlace

__all__ = ["KINDS", "Computed", "computed"]

_INFINITY = 0x7FF0000000000000

Column = WordColumn | Step
Taken = Callable[[Aggregation, pa.DataType], pa.DataType | None]


def _is_taken_as_it_is(aggregation: Aggregation, given: pa.DataType) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """How a kind is computed: by words of its own, or by those of a group of aggregates.

    Attributes:
        column: returns the words and the result of an aggregate at a place; None: it is one of a group, a choice of a
            row or the quantiles of a column.
        signed: the same for rows that may be taken back, whose weights are the last argument of the place. None: rows
            cannot be taken back, or it is one of a group.
        choosing: the row that it chooses, if it chooses one.
        has_flag: whether a record without a value has a flag that is not set; else its words say so.
        takes: returns the type that the argument is cast to; None: it is taken as it is.
        takes_nulls: whether rows where the argument is null count.
        least: of an extreme, whether it is the least; None: it is no extreme.
        is_apart: returns whether sliding windows compute results of a type without a record, from rows.
    """

    column: Callable[[Aggregation, StepPlace], Column] | None = None
    signed: Callable[[Aggregation, StepPlace], SignedStep] | None = None
    choosing: Choosing | None = None
    has_flag: bool = True
    takes: Taken = _is_taken_as_it_is
    takes_nulls: bool = False
    least: bool | None = None
    is_apart: Callable[[pa.DataType], bool] = lambda dtype: False


def computed(aggregation: Aggregation) -> Computed:
    """Return how an aggregate is computed."""
    return KINDS[aggregation.kind]


def _as_float(aggregation: Aggregation, given: pa.DataType) -> pa.DataType:
    return pa.float64()


def _as_wide_decimal(aggregation: Aggregation, given: pa.DataType) -> pa.DataType | None:
    return pa.decimal128(38, given.scale) if pa.types.is_decimal(given) else None


def _as_kernel_takes(aggregation: Aggregation, given: pa.DataType) -> pa.DataType | None:
    assert aggregation.kernel is not None, f"{aggregation} has no kernel"
    return pa.float64() if pa.types.is_floating(aggregation.kernel.takes) else None


def _argument(place: StepPlace) -> int:
    """Return the number of the argument; 0: there is none."""
    return place.arguments[0] if place.arguments else 0


def _count(aggregation: Aggregation, place: StepPlace) -> Column:
    return WordColumn(place, Field("count", COUNT, place.word, _argument(place)))


def _sum(aggregation: Aggregation, place: StepPlace) -> Column:
    if pa.types.is_decimal(place.dtype):
        return DecimalSum(place)
    operation = SUM_UNSIGNED if pa.types.is_unsigned_integer(place.dtype) else SUM
    operation = SUM_FLOAT if pa.types.is_floating(place.dtype) else operation
    return WordColumn(place, Field("sum", operation, place.word, _argument(place)))


def _mean(aggregation: Aggregation, place: StepPlace) -> Column:
    argument = _argument(place)
    total, count = Field("sum", SUM_FLOAT, place.word, argument), Field("count", COUNT, place.word + 1, argument)
    return MeanColumn(place, total, count)


def _extreme(*, least: bool) -> Computed:
    def column(aggregation: Aggregation, place: StepPlace) -> Column:
        if not is_word(place.dtype):
            return BytesExtreme(place, least=least)
        floating = pa.types.is_floating(place.dtype)
        flip = LEAST if place.dtype == pa.uint64() else 0
        field = Field(
            "min" if least else "max",
            EXTREME,
            place.word,
            _argument(place),
            flip=~flip if least else flip,
            mask=GREATEST if floating else 0,
            largest=_INFINITY if floating else GREATEST,
        )
        return WordColumn(place, field)

    return Computed(
        column=column, signed=lambda a, place: SignedExtreme(place, least=least), least=least, is_apart=is_bytes
    )


def _signed_sum(aggregation: Aggregation, place: StepPlace) -> SignedStep:
    return SignedTotal(place) if pa.types.is_floating(place.dtype) else SignedSum(place)


def _list(aggregation: Aggregation, place: StepPlace) -> Column:
    order = place.types[1] if aggregation.by is not None else None
    return ToList(place, order, some_rows=aggregation.where is not None)


def _kernel(aggregation: Aggregation, place: StepPlace) -> Column:
    assert aggregation.kernel is not None, f"{aggregation} has no kernel"
    return CustomStep(place, aggregation.kernel)


def _functions(aggregation: Aggregation, place: StepPlace) -> Column:
    assert aggregation.functions is not None, f"{aggregation} has no functions"
    return PythonStep(place, aggregation.functions, some_rows=aggregation.where is not None)


KINDS: Final[dict[AggregateKind, Computed]] = {
    AggregateKind.COUNT: Computed(column=_count, signed=lambda a, place: SignedCount(place), has_flag=False),
    AggregateKind.COUNT_DISTINCT: Computed(
        column=lambda a, place: CountDistinct(place),
        signed=lambda a, place: SignedDistinct(place),
        has_flag=False,
        is_apart=lambda dtype: True,
    ),
    AggregateKind.SUM: Computed(column=_sum, signed=_signed_sum, takes=_as_wide_decimal),
    AggregateKind.MEAN: Computed(column=_mean, signed=lambda a, place: SignedMean(place), takes=_as_float),
    AggregateKind.VARIANCE: Computed(
        column=lambda a, place: Variance(place, a.ddof),
        signed=lambda a, place: SignedVariance(place, a.ddof),
        has_flag=False,
        takes=_as_float,
    ),
    AggregateKind.STDDEV: Computed(
        column=lambda a, place: StandardDeviation(place, a.ddof),
        signed=lambda a, place: SignedDeviation(place, a.ddof),
        has_flag=False,
        takes=_as_float,
    ),
    AggregateKind.MIN: _extreme(least=True),
    AggregateKind.MAX: _extreme(least=False),
    AggregateKind.FIRST: Computed(choosing=Choosing(least=True, latest=False, skips_null=False)),
    AggregateKind.LAST: Computed(choosing=Choosing(least=False, latest=True, skips_null=False)),
    AggregateKind.ARG_MIN: Computed(choosing=Choosing(least=True, latest=False, skips_null=True)),
    AggregateKind.ARG_MAX: Computed(choosing=Choosing(least=False, latest=False, skips_null=True)),
    AggregateKind.QUANTILE: Computed(),
    AggregateKind.TO_LIST: Computed(
        column=_list,
        signed=lambda a, place: SignedList(place, some_rows=a.where is not None),
        has_flag=False,
        takes_nulls=True,
    ),
    AggregateKind.KERNEL: Computed(column=_kernel, takes=_as_kernel_takes),
    AggregateKind.PYTHON: Computed(column=_functions, takes_nulls=True),
}
