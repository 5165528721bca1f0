"""Every line of the tables in ``dataflow.expressions``, held against its examples on Spark; and what Spark refuses."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.expressions import Expr, col, lit, when
from dataflow.runners.spark import translated
from tests.expressions.cases import Case
from tests.expressions.semantics import SEMANTICS
from tests.runners.spark.engine import on_spark

UNKNOWN_TO_SPARK = ("uint64", "time64[us]")


def known(case: Case) -> bool:
    written = [str(dtype) for dtype, _ in case.columns.values()]
    return "uint64" not in case.text and not any(dtype in UNKNOWN_TO_SPARK for dtype in written)


VALUES = [case for case in SEMANTICS if known(case) and isinstance(case.expected, list)]
ERRORS = [case for case in SEMANTICS if known(case) and isinstance(case.expected, type)]


def read(case: Case, prefix: str = "") -> Expr:
    """The expression of a case over columns that have ``prefix`` before their names."""
    names = {"col": lambda name: col(prefix + name), "lit": lit, "when": when, "concat_str": flow.concat_str}
    return eval(case.text, names | {"datetime": datetime, "Decimal": Decimal, "pa": pa})


def table(case: Case, prefix: str = "", rows: int = 0) -> pa.Table:
    """The columns of a case, with nulls up to ``rows``."""
    columns = {}
    for name, (dtype, values) in case.columns.items():
        typed = pa.type_for_alias(dtype) if isinstance(dtype, str) else dtype
        columns[prefix + name] = pa.array([*values, *[None] * (rows - len(values))], typed)
    return pa.table(columns)


def values(made: pa.Array) -> list[Any]:
    found = made.to_pylist()
    return [value.astimezone(datetime.UTC) if getattr(value, "tzinfo", None) else value for value in found]


@pytest.fixture(scope="module")
def answers(spark: Any) -> list[list[Any]]:
    """All cases side by side in one wide table, for one job costs as much as one case."""
    rows = max(len(case.expected) for case in VALUES)  # type: ignore[arg-type]
    sides = [table(case, f"{i}_", rows) for i, case in enumerate(VALUES)]
    wide = pa.table({name: side[name] for side in sides for name in side.column_names})
    made = on_spark(spark, wide, [read(case, f"{i}_") for i, case in enumerate(VALUES)])
    return [values(array)[: len(case.expected)] for case, array in zip(VALUES, made, strict=True)]  # type: ignore[arg-type]


@pytest.mark.parametrize("case", range(len(VALUES)), ids=[str(case) for case in VALUES])
def test_values_are_those_worked_out_by_hand(answers: list[list[Any]], case: int) -> None:
    assert list(map(repr, answers[case])) == list(map(repr, VALUES[case].expected))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", ERRORS, ids=str)
def test_what_cannot_be_raises(spark: Any, case: Case) -> None:
    assert type(failure(spark, table(case), read(case))) is case.expected


def failure(spark: Any, rows: pa.Table, expr: Expr) -> Exception | None:
    """What the local engine would raise in the place of what Spark raises."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        on_spark(spark, rows, [expr])
    return translated(caught.value)
