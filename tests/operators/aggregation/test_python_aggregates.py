"""Aggregates of plain Python functions: the rows they get, restores, memory, and mistakes that name the function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError
from dataflow.expressions import Aggregation, col
from dataflow.runners.faults import Faults
from operators.aggregation.records import Records
from operators.steps.python import PythonStep
from tests.operators.operating import records_table, restore_records

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64(), "s": pa.string()})
STATE = pa.struct({"total": pa.int64(), "texts": pa.list_(pa.string())})
Row = tuple[int, int | None, str | None]


def add(state: dict[str, Any], x: int | None, s: str | None) -> dict[str, Any]:
    state["total"] += x or 0
    state["texts"].append(s)  # in place: the state is this call's own
    return state


def merge(state: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {"total": state["total"] + other["total"], "texts": state["texts"] + other["texts"]}


def finish(state: dict[str, Any]) -> str:
    return f"{state['total']}: {'+'.join(text or '-' for text in state['texts'])}"


def both(**changes: Any) -> Aggregation:
    given = {"zero": {"total": 0, "texts": []}, "add": add, "merge": merge, "state": STATE}
    return op.aggregate_python("x", "s", **{**given, "finish": finish, "returns": pa.string(), **changes})


def folded(aggregation: Aggregation, *parts: Sequence[Row]) -> Records:
    records = Records([aggregation], SCHEMA, "test")
    for rows in parts:
        columns = [pa.array(column, type_) for column, type_ in zip(zip(*rows, strict=True), SCHEMA.types, strict=True)]
        records.fold(pa.record_batch(columns, schema=SCHEMA), np.array([row[0] for row in rows], np.int32), 3)
    return records


def results(records: Records) -> list[Any]:
    return records.read(np.arange(3, dtype=np.int32))[0].to_pylist()


FIRST: list[Row] = [(0, 1, "a"), (2, 5, None), (0, None, "b")]
SECOND: list[Row] = [(2, 6, "c"), (0, 2, "d")]


def test_functions_get_each_row_once_and_in_order_with_nulls() -> None:
    assert results(folded(both(), FIRST, SECOND)) == ["3: a+b+d", None, "11: -+c"]


def test_rows_for_which_the_predicate_is_not_true_are_left_out() -> None:
    assert results(folded(both(where=col("x") > 1), FIRST, SECOND)) == ["2: d", None, "11: -+c"]
    assert results(folded(both(where=col("x") > 9), FIRST, SECOND)) == [None, None, None]


def test_without_finish_the_state_is_the_result() -> None:
    total = op.aggregate_python("x", zero=0, add=lambda t, x: t + (x or 0), merge=lambda a, b: a + b, state=pa.int32())
    assert total.dtype(SCHEMA) == pa.int32()
    assert results(folded(total, FIRST)) == [1, None, 5]


def test_a_restore_changes_nothing() -> None:
    restored = Records([both()], SCHEMA, "test")
    restore_records(restored, records_table(folded(both(), FIRST), 3))
    batch = pa.record_batch([pa.array([2]), pa.array([6]), pa.array(["c"])], schema=SCHEMA)
    restored.fold(batch, np.array([2], np.int32), 3)
    assert results(restored) == ["1: a+b", None, "11: -+c"]


def test_states_merge_into_those_of_earlier_rows() -> None:
    earlier, later = folded(both(), FIRST), folded(both(), SECOND)
    (step,), (other,) = earlier._layout.steps, later._layout.steps
    assert isinstance(step, PythonStep)
    assert isinstance(other, PythonStep)
    slots = np.array([0, 2], np.int32)
    step.join(earlier._records, slots, other.states(later._records.rows[slots]))
    assert results(earlier) == ["3: a+b+d", None, "11: -+c"]


def test_memory_follows_the_states_that_are_held() -> None:
    records = folded(both(add=lambda state, x, s: state), *[FIRST] * 1_500)
    (step,) = records._layout.steps
    assert isinstance(step, PythonStep)
    assert sum(map(len, step._kept.values().arrays)) < 2_000
    assert len(step._kept.values().arrays) < 20


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"add": lambda state, x, s: None}, r"add\(state, ...\) returned None; it must return the new state"),
        ({"add": lambda state, x, s: "text"}, "add returned a value that is no struct"),
        ({"finish": lambda state: 5}, "finish returned a value that is no string"),
        (
            {"add": lambda state, x, s: {**state, "total": 0.5}},
            "add returned a value .*fraction of .*0.5.* would be cut",
        ),
    ],
)
def test_a_wrong_value_names_the_function(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        results(folded(both(**changes), FIRST))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"zero": "text"}, "zero='text'"),
        ({"add": None}, r"aggregate_python\(add=\) must be a function"),
        ({"state": int}, r"aggregate_python\(state=\) must be an Arrow type"),
        ({"finish": None}, "without finish= returns its state"),
    ],
)
def test_mistakes_show_up_when_it_is_made(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        both(**changes)
    with pytest.raises(ConfigurationError, match="takes the columns"):
        op.aggregate_python(zero=0, add=add, merge=merge, state=pa.int64())


def test_a_key_without_rows_differs_from_one_whose_state_is_none() -> None:
    given = {"merge": merge, "state": pa.int64(), "finish": repr, "returns": pa.string()}
    newest = op.aggregate_python("x", zero=None, add=lambda state, x: x, **given)  # type: ignore[arg-type]
    records, restored = folded(newest, FIRST), Records([newest], SCHEMA, "test")
    restore_records(restored, records_table(records, 3))
    assert results(restored) == results(records) == ["None", None, "5"]


def test_the_fingerprint_depends_on_each_function_and_column() -> None:
    given = [both(), both(add=lambda state, x, s: state), both(merge=lambda a, b: b), both(where=col("x") > 1)]
    given.append(op.aggregate_python("x", zero=0, add=add, merge=merge, state=pa.int64()))
    assert len({aggregation.fingerprint() for aggregation in given}) == 5
    assert both().equals(both())


def test_a_pipeline_that_crashes_gives_the_rows_of_python() -> None:
    rows = [(n % 7, n, f"t{n}") for n in range(300)]
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], schema=SCHEMA)
    with flow.Pipeline() as p:
        keyed = p.source(op.from_arrow(table, batch_rows=20), name="rows").key_by("k")
        keyed.agg(found=both(), emit="final", name="all").sink(op.collect(), name="out")
    crashing = flow.SimulatedRunner(seed=3, faults=Faults(crashes=2))
    out = p.run(crashing, checkpoint=flow.Checkpointing(flow.MemoryStore(), every="1ms")).table("out")
    expected = {
        k: f"{sum(n for g, n, _ in rows if g == k)}: {'+'.join(s for g, _, s in rows if g == k)}" for k in range(7)
    }
    assert {row["k"]: row["found"] for row in out.to_pylist()} == expected
