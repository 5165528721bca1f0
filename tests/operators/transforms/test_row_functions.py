"""Functions per row and per batch, and what becomes of rows they cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch

ROWS = pa.table({"x": [0, 1, 2, 3, None, 5], "s": ["a", "b", "c", "d", "e", "f"]})
X = pa.schema({"x": pa.int64()})


def stream(table: pa.Table = ROWS, **options: Any) -> flow.Stream:
    return flow.Pipeline("rows").source(op.from_arrow(table, **options), name="rows")


def run(made: flow.Stream) -> flow.RunResult:
    """The rows of ``made`` in sink ``out``, and its errors, where it has some, in sink ``errors``."""
    made.sink(op.collect(), name="out")
    if made._node.sides:
        made.side("errors").sink(op.collect(), name="errors")
    return made._pipeline.run("simulated")


def inverse(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": 6 // row["x"]}


def inverse_of_all(batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch["x"].null_count:
        raise ValueError("no nulls, please")
    return pa.record_batch([pc.divide(6, batch["x"])], schema=X)


def test_map_makes_a_row_of_each() -> None:
    made = stream().map(lambda row: {"x": len(row["s"]), "s": row["s"].upper()})
    assert made.collect().to_pylist() == [{"x": 1, "s": s} for s in "ABCDEF"]


def test_flat_map_makes_any_number_of_rows_in_order() -> None:
    def repeated(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from ({"x": i} for i in range(row["x"] or 0))

    assert stream().flat_map(repeated, schema=X).collect()["x"].to_pylist() == [0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 4]


def test_flat_map_takes_none_for_no_rows() -> None:
    assert stream().flat_map(lambda row: None if row["x"] else [row]).collect()["x"].to_pylist() == [0, None]


def test_what_explodes_leaves_in_several_batches() -> None:
    many = stream().flat_map(lambda row: [{"x": i} for i in range(10_000)], schema=X)
    assert many.collect()["x"].to_pylist() == 6 * list(range(10_000))


def test_values_are_converted_to_the_declared_types() -> None:
    schema = pa.schema(
        {
            "f": pa.float32(),
            "d": pa.decimal128(10, 2),
            "t": pa.timestamp("ms", "UTC"),
            "c": pa.dictionary(pa.int32(), pa.string()),
            "l": pa.list_(pa.int8()),
            "n": pa.struct({"a": pa.int64()}),
        }
    )
    row = {"f": 1, "d": Decimal("1.5"), "t": datetime(1969, 1, 1, tzinfo=UTC), "c": "k", "l": [1, None], "n": {"a": 1}}
    table = stream().map(lambda _: row, schema=schema).collect()
    assert table.schema == schema
    assert table.to_pylist() == 6 * [{**row, "f": 1.0, "d": Decimal("1.50")}]


@pytest.mark.parametrize("word", ["map", "flat_map", "map_batches"])
@pytest.mark.parametrize("policy", ["skip", "side"])
@pytest.mark.parametrize("batch_rows", [1, 4, 100])
def test_rows_that_fail_are_left_out_in_order_and_counted(word: str, policy: str, batch_rows: int) -> None:
    functions: dict[str, Callable[[Any], Any]] = {
        "map": inverse,
        "flat_map": lambda row: [inverse(row)],
        "map_batches": inverse_of_all,
    }
    made = getattr(stream(batch_rows=batch_rows), word)(functions[word], schema=X, on_error=policy, name="f")
    result = run(made)
    metrics = result.operator("f")
    assert result.table("out")["x"].to_pylist() == [6, 3, 2, 1]
    assert (metrics.rows_in, metrics.rows_out, metrics.skipped) == (6, 4, 2)
    assert [s.row for s in metrics.samples] == ["{'x': 0, 's': 'a'}", "{'x': None, 's': 'e'}"]
    if policy == "side":
        errors = result.table("errors").to_pylist()
        assert [(e["where"], e["row"]) for e in errors] == [(f"{word} 'f'", s.row) for s in metrics.samples]
        assert errors[0]["error"].startswith(("ZeroDivisionError", "ArrowInvalid: divide by zero"))


def test_a_batch_function_that_filters_and_grows_is_halved_without_loss() -> None:
    def odd_twice(batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
        if 500 in batch["x"].to_pylist():
            raise ValueError("not this one")
        odd = batch.filter(pc.equal(pc.bit_wise_and(batch["x"], 1), 1))
        return [odd, None, odd] if len(batch) == 1 else [odd.take(sorted(2 * list(range(len(odd)))))]

    table = pa.table({"x": range(1_000)})
    result = run(stream(table, batch_rows=300).map_batches(odd_twice, on_error="side", name="f"))
    assert result.table("out")["x"].to_pylist() == [x for x in range(1, 1_000, 2) for _ in range(2)]
    assert result.table("errors")["row"].to_pylist() == ["{'x': 500}"]


def test_only_the_halves_that_fail_are_tried_again() -> None:
    sizes: list[int] = []

    def picky(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(len(batch))
        return inverse_of_all(batch)

    run(stream(pa.table({"x": [1, 2, 3, 1, 2, 3, 1, 0]})).map_batches(picky, on_error="skip"))
    assert sizes == [8, 4, 4, 2, 2, 1, 1]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"x": "two"}, r"map 'f': column 'x' should be int64 but the row has 'two' \(str\)"),
        ({"x": 1.5}, r"column 'x' should be int64 but the row has 1.5 \(float\)"),
        ({"x": float("nan")}, r"column 'x' should be int64 but the row has nan \(float\)"),
        ({"x": 2**70}, r"column 'x' should be int64 but the row has 1180591620717411303424 \(int\)"),
        ({"y": 1}, "column 'x' is missing; column 'y' is not in the declared schema"),
        ({"x": 1, "xx": 1}, r"'xx' is not in the declared schema \(did you mean 'x'\?\)"),
        ({}, "column 'x' is missing"),
    ],
)
def test_an_answer_that_does_not_fit_names_the_row_and_the_column(answer: dict[str, Any], message: str) -> None:
    made = stream().map(lambda row: answer if row["x"] == 3 else {"x": 1}, schema=X, name="f")
    with pytest.raises(SchemaMismatch, match=message) as raised:
        run(made)
    assert any("at map 'f': {'x': 3, 's': 'd'}; on_error='skip'" in note for note in raised.value.__notes__)


@pytest.mark.parametrize(
    ("dtype", "fits", "cut"),
    [
        (pa.int64(), 2.0, 1.5),
        (pa.int64(), Decimal("2.0"), Decimal("1.5")),
        (pa.date32(), datetime(2020, 1, 1), datetime(2020, 1, 1, 12)),
        (pa.timestamp("s"), datetime(2020, 1, 1), datetime(2020, 1, 1, microsecond=5)),
        (pa.duration("ms"), timedelta(milliseconds=1), timedelta(microseconds=1)),
    ],
    ids=str,
)
def test_nothing_is_cut_off_a_value(dtype: pa.DataType, fits: object, cut: object) -> None:
    made = stream().map(
        lambda row: {"v": cut if row["x"] == 3 else fits}, schema=pa.schema({"v": dtype}), on_error="skip"
    )
    result = run(made)
    assert result.table("out")["v"].to_pylist() == 5 * pa.array([fits], dtype).to_pylist()


def test_null_does_not_fit_a_column_that_has_none() -> None:
    strict = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    result = run(stream().map(lambda row: {"x": row["x"]}, schema=strict, on_error="side", name="f"))
    assert result.table("out")["x"].to_pylist() == [0, 1, 2, 3, 5]
    assert "column 'x' should be int64, not null, but the row has None" in result.table("errors")["error"][0].as_py()


@pytest.mark.parametrize(
    ("word", "answer", "message"),
    [
        ("map", None, "the function returned None; to leave rows out use filter or flat_map"),
        ("map", [1], r"a row must be a dict with the columns \['x'\], got \[1\] \(list\)"),
        ("flat_map", {"x": 1}, "must return an iterable of dicts, or None, got dict; put a single row into a list"),
        ("flat_map", "text", "must return an iterable of dicts, or None, got str"),
        ("flat_map", [{"x": 1}, 7], r"a row must be a dict with the columns \['x'\], got 7 \(int\)"),
    ],
)
def test_what_is_no_row_is_refused(word: str, answer: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        run(getattr(stream(), word)(lambda row: answer, schema=X))


def test_all_that_comes_of_a_row_goes_with_it() -> None:
    def pair(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield {"x": row["x"]}
        yield {"x": "late" if row["x"] == 1 else 7}
        if row["x"] == 2:
            raise ValueError("half way")

    result = run(stream().flat_map(pair, schema=X, on_error="side", name="f"))
    assert result.table("out")["x"].to_pylist() == [0, 7, 3, 7, None, 7, 5, 7]
    assert sorted(result.table("errors")["row"].to_pylist()) == ["{'x': 1, 's': 'b'}", "{'x': 2, 's': 'c'}"]


def test_of_a_row_with_two_wrong_answers_the_first_is_told() -> None:
    result = run(stream(ROWS.slice(0, 1)).flat_map(lambda row: [{"x": "1st"}, {"x": "2nd"}], schema=X, on_error="skip"))
    assert ["1st" in sample.error for sample in result.samples] == [True]


def test_the_error_shows_the_row_as_it_came() -> None:
    def spoil(row: dict[str, Any]) -> dict[str, Any]:
        row["x"] = "spoilt"
        raise ValueError("no")

    result = run(stream(ROWS.slice(0, 1)).map(spoil, on_error="skip", name="f"))
    assert result.operator("f").samples[0].row == "{'x': 0, 's': 'a'}"


def test_a_row_that_fails_is_a_note_of_the_error() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        run(stream().map(inverse, schema=X, name="f"))
    assert raised.value.__notes__[0].startswith("at map 'f': {'x': 0, 's': 'a'}; on_error='skip'")


def test_side_errors_need_to_be_asked_for() -> None:
    with pytest.raises(GraphError, match="'f' has no side output 'errors'; on_error='side' gives it one"):
        stream().map(inverse, schema=X, on_error="skip", name="f").side("errors")


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"flat_map\(on_error=\) must be one of \['fail', 'skip', 'side'\]"):
        stream().flat_map(inverse, on_error="ignore")


def test_row_functions_have_no_state() -> None:
    nodes = stream().map(inverse, schema=X).flat_map(lambda row: [row])._pipeline.graph.nodes
    assert [(node.kind, node.stateful) for node in nodes[1:]] == [("maprows", False), ("flatmaprows", False)]
