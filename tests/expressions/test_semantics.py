"""Every line of the tables in ``dataflow.expressions``, held against its examples on the local engine."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import expressions
from tests.expressions.cases import Case, Kept
from tests.expressions.semantics import SEMANTICS

NAMES = {
    "col": flow.col,
    "lit": flow.lit,
    "when": flow.when,
    "coalesce": flow.coalesce,
    "concat_str": flow.concat_str,
    "from_epoch": flow.from_epoch,
}
NAMES |= {"datetime": datetime, "Decimal": Decimal, "pa": pa}  # type: ignore[dict-item]


def arrays(case: Case) -> dict[str, pa.Array]:
    named = {name: (pa.type_for_alias(t) if isinstance(t, str) else t, v) for name, (t, v) in case.columns.items()}
    return {name: pa.array(values, dtype) for name, (dtype, values) in named.items()}


def values(case: Case, batch: pa.RecordBatch) -> list[Any]:
    expr = eval(case.text, NAMES)
    made = expr.evaluate(batch)
    made.validate(full=True)
    assert made.type == expr.dtype(batch.schema)
    return [value.astimezone(datetime.UTC) if aware(value) else value for value in made.to_pylist()]


def aware(value: object) -> bool:
    return isinstance(value, datetime.datetime) and value.tzinfo is not None


def test_every_line_of_the_tables_has_an_example() -> None:
    tables = re.findall(r"^=====.*?\n(.*?)^=====", expressions.__doc__ or "", re.MULTILINE | re.DOTALL)
    lines = [line[:21].replace("`", "").strip() for table in tables for line in table.splitlines()]
    assert {line for line in lines if line} == {case.line for case in SEMANTICS}


@pytest.mark.parametrize("case", [case for case in SEMANTICS if isinstance(case.expected, list)], ids=str)
def test_values_are_those_worked_out_by_hand(case: Case) -> None:
    batch = pa.record_batch(arrays(case))
    assert list(map(repr, values(case, batch))) == list(map(repr, case.expected))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", [case for case in SEMANTICS if isinstance(case.expected, list)], ids=str)
def test_a_slice_an_empty_batch_and_all_nulls_are_no_special_cases(case: Case) -> None:
    whole, expected = pa.record_batch(arrays(case)), case.expected
    assert isinstance(expected, list)
    for start in range(len(expected) + 1):
        assert list(map(repr, values(case, whole.slice(start)))) == list(map(repr, expected[start:]))
    nulls = pa.record_batch({name: pa.nulls(3, column.type) for name, column in arrays(case).items()})
    assert len(values(case, nulls)) == 3


@pytest.mark.parametrize("case", [case for case in SEMANTICS if isinstance(case.expected, type)], ids=str)
def test_what_cannot_be_raises(case: Case) -> None:
    with pytest.raises(case.expected) as caught:  # type: ignore[arg-type]
        values(case, pa.record_batch(arrays(case)))
    assert type(caught.value) is case.expected


@pytest.mark.parametrize("case", [case for case in SEMANTICS if isinstance(case.expected, Kept)], ids=str)
def test_a_filter_keeps_what_is_true(case: Case) -> None:
    with flow.Pipeline("kept") as p:
        rows = p.source(op.from_arrow(pa.table(arrays(case))), name="rows")
        rows.filter(eval(case.text, NAMES)).sink(op.collect(), name="out")
    assert Kept(p.run().table("out")["x"].to_pylist()) == case.expected
