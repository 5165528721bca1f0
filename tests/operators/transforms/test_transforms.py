"""Filter, project, map_batches and union over every shape of batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.errors import GraphError, SchemaMismatch, UnknownColumn
from dataflow.expressions import Expr, col, lit, output_schema
from operators.transforms.filter import FilterOperator
from operators.transforms.map_batches import MapBatchesOperator
from operators.transforms.project import ProjectOperator
from operators.transforms.union import UnionOperator

SCHEMA = pa.schema({"x": pa.int64(), "k": pa.dictionary(pa.int32(), pa.string())})


class Emitted(list[pa.RecordBatch]):
    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        batch.validate(full=True)
        assert batch.num_rows, "an empty batch was emitted"
        self.append(batch)


def context(output: pa.Schema, *inputs: pa.Schema) -> OperatorContext:
    return OperatorContext(
        "op", 0, 1, inputs or (SCHEMA,), output, range(128), 128, None, ManualClock(), lambda due: None
    )


def batch(*xs: int | None) -> pa.RecordBatch:
    """A slice, with a dictionary column that repeats its keys."""
    rows = [0, *xs, 0]
    keys = pa.array([None if x is None else f"k{x % 2}" for x in rows]).dictionary_encode()
    return pa.record_batch([pa.array(rows, pa.int64()), keys], schema=SCHEMA).slice(1, len(xs))


def emitted(operator: Operator, *batches: pa.RecordBatch) -> Emitted:
    out = Emitted()
    for each in batches:
        for _ in operator.process(0, each, out) or ():
            pass
    return out


def rows(out: Emitted) -> list[dict[str, Any]]:
    return [row for each in out for row in each.to_pylist()]


@pytest.mark.parametrize(
    ("predicate", "kept"),
    [
        (col("x") > 2, [3, 4]),
        (col("k") == "k1", [1, 3]),
        (col("k").is_in(["k0", "zz"]), [2, 4]),
        (col("k") == col("k"), [1, 2, 3, 4]),
        (col("x").is_null(), [None]),
        (lit(value=True), [1, 2, None, 3, 4]),
        (lit(value=False), []),
        (lit(None), []),
        (col("x") == lit(None), []),
        (~(col("x") > 2) | col("x").is_null(), [1, 2, None]),
    ],
)
def test_a_filter_keeps_the_rows_where_the_predicate_is_true(predicate: Expr, kept: list[int | None]) -> None:
    out = emitted(FilterOperator(context(SCHEMA), predicate), batch(1, 2, None, 3, 4), batch())
    assert [row["x"] for row in rows(out)] == kept
    assert all(each.schema == SCHEMA for each in out)


def test_a_filter_that_passes_everything_copies_nothing() -> None:
    given = batch(1, 2)
    assert emitted(FilterOperator(context(SCHEMA), col("x") > 0), given)[0] is given


@pytest.mark.parametrize("given", [batch(), batch(None), batch(None, None)])
def test_a_filter_over_nothing_or_nulls_emits_nothing(given: pa.RecordBatch) -> None:
    assert emitted(FilterOperator(context(SCHEMA), col("x") % 0 == 0), given) == []


def test_a_filter_sees_nulls_inside_a_dictionary() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int32()), pa.array(["a", None]))
    given = pa.record_batch({"x": [1, 2, 3, 4], "k": keys})
    assert [row["x"] for row in rows(emitted(FilterOperator(context(SCHEMA), col("k").is_null()), given))] == [2, 3]
    assert [row["x"] for row in rows(emitted(FilterOperator(context(SCHEMA), col("k") != "b"), given))] == [1, 4]


def test_a_filter_refuses_what_is_no_predicate() -> None:
    with pytest.raises(SchemaMismatch, match=r"filter 'op'.*is int64"):
        FilterOperator(context(SCHEMA), col("x") + 1)
    with pytest.raises(UnknownColumn, match=r"filter 'op'.*'y'"):
        FilterOperator(context(SCHEMA), col("y") > 1)


def project(*columns: Expr, schema: pa.Schema = SCHEMA) -> ProjectOperator:
    return ProjectOperator(context(output_schema(columns, schema, "select"), schema), columns)


@pytest.mark.parametrize("given", [(), (1,), (1, None, 3), (None, None)])
def test_a_projection_makes_a_row_of_each_row(given: tuple[int | None, ...]) -> None:
    out = emitted(project(col("k"), (col("x") * 2).alias("twice"), lit("c").alias("c")), batch(*given))
    assert [(row["twice"], row["c"]) for row in rows(out)] == [(None if x is None else 2 * x, "c") for x in given]


def test_a_projection_passes_plain_columns_on_without_a_copy() -> None:
    given = batch(1, 2)
    (made,) = emitted(project(col("x").alias("y"), col("k")), given)
    assert made["y"].buffers()[1].address == given["x"].buffers()[1].address
    assert made.schema.names == ["y", "k"]


def test_a_projection_on_no_columns_keeps_the_number_of_rows() -> None:
    (made,) = emitted(project(), batch(1, 2, 3))
    assert (made.num_rows, made.num_columns) == (3, 0)
    (again,) = emitted(project(lit(7).alias("n"), schema=pa.schema([])), made)
    assert again.to_pydict() == {"n": [7, 7, 7]}


def test_a_projection_refuses_one_name_twice_and_no_name() -> None:
    for columns in ([col("x"), col("x") + 1], [lit(1)]):
        with pytest.raises(GraphError, match="alias"):
            ProjectOperator(context(SCHEMA), columns)


def test_an_overflow_names_the_operator_and_the_expression() -> None:
    with pytest.raises(OverflowError, match=r"select 'op': col\('x'\) \* 4: overflow"):
        emitted(project(col("x") * 4), batch(2**62))


OUTPUT = pa.schema({"y": pa.int64()})
Y = pa.record_batch({"y": [1, 2]})


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda b: Y, [[1, 2]]),
        (lambda b: pa.Table.from_batches([Y, Y]), [[1, 2], [1, 2]]),
        (lambda b: [Y, None, Y.slice(0, 0), pa.Table.from_batches([Y])], [[1, 2], [1, 2]]),
        (lambda b: None, []),
        (lambda b: Y.slice(0, 0), []),
        (lambda b: [], []),
    ],
)
def test_map_batches_emits_what_the_function_answers(function: Callable[[Any], Any], expected: list[list[int]]) -> None:
    out = emitted(MapBatchesOperator(context(OUTPUT), function), batch(1))
    assert [each["y"].to_pylist() for each in out] == expected


def test_map_batches_orders_the_columns_as_declared() -> None:
    output = pa.schema({"a": pa.int64(), "b": pa.int64()})
    out = emitted(MapBatchesOperator(context(output), lambda b: pa.record_batch({"b": [2], "a": [1]})), batch(1))
    assert (out[0].schema, rows(out)) == (output, [{"a": 1, "b": 2}])


def test_map_batches_emits_no_metadata_but_that_of_the_declared_schema() -> None:
    found = emitted(
        MapBatchesOperator(context(OUTPUT), lambda b: Y.replace_schema_metadata({"by": "the function"})), batch(1)
    )
    assert found[0].schema.equals(OUTPUT, check_metadata=True)


def test_map_batches_consumes_an_iterable_one_batch_at_a_time() -> None:
    made: list[int] = []

    def endless(given: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        while True:
            made.append(1)
            yield Y

    out = Emitted()
    pending = MapBatchesOperator(context(OUTPUT), endless).process(0, batch(1), out)
    assert pending is not None
    next(pending)
    next(pending)
    assert (len(made), len(out)) == (2, 2)


def test_map_batches_does_not_call_the_function_for_no_rows() -> None:
    assert emitted(MapBatchesOperator(context(OUTPUT), lambda b: pytest.fail("called")), batch()) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (pa.record_batch({"z": [1]}), "'y' .int64. is missing.*'z' is not in the declared schema"),
        (pa.record_batch({"y": ["1"]}), "'y' should be int64 but is string"),
        (pa.table({"y": [1], "yy": [2]}), r"'yy' is not in the declared schema \(did you mean 'y'"),
        ([Y, pa.record_batch({"y": [1.0]})], "'y' should be int64 but is double"),
        (pa.record_batch([[1], [2]], names=["y", "y"]), "'y' occurs twice"),
    ],
)
def test_map_batches_names_the_operator_and_the_column_that_is_wrong(answer: object, message: str) -> None:
    with pytest.raises(SchemaMismatch, match=rf"map_batches 'op'.*{message}"):
        emitted(MapBatchesOperator(context(OUTPUT), lambda b: answer), batch(1))


FRAMES: dict[str, Callable[[pa.RecordBatch], Any]] = {
    "polars": lambda b: polars.from_arrow(b).filter(polars.col("x") > 1),
    "polars in a list": lambda b: [None, polars.from_arrow(b).filter(polars.col("x") > 1)],
    "duckdb": lambda b: duckdb.from_arrow(pa.Table.from_batches([b])).filter("x > 1"),
    "pandas": lambda b: b.to_pandas()[lambda frame: frame["x"] > 1],
    "a struct array": lambda b: pa.array(b.to_pylist(), pa.struct(list(b.schema))).filter(pc.greater(b["x"], 1)),
    "a reader": lambda b: pa.Table.from_batches([b.filter(pc.greater(b["x"], 1))]).to_reader(),
}


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize("text", [pa.string(), pa.large_string()], ids=str)
def test_map_batches_takes_frames_of_other_libraries(make: str, text: pa.DataType) -> None:
    if make == "pandas":
        pytest.importorskip("pandas")
    given = pa.record_batch({"x": [1, 2, 3], "s": pa.array(["a", None, "c"], text)})
    answer = FRAMES[make](given)
    if isinstance(answer, pa.RecordBatchReader):  # pyarrow's own types are held to what was declared
        assert answer.schema == given.schema
    out = emitted(MapBatchesOperator(context(given.schema, given.schema), lambda b: answer), given)
    assert rows(out) == [{"x": 2, "s": None}, {"x": 3, "s": "c"}]
    assert all(each.schema == given.schema for each in out)


def test_map_batches_takes_categories_of_polars() -> None:
    declared = pa.schema({"c": pa.dictionary(pa.int32(), pa.string())})
    frame = polars.DataFrame({"c": ["a", "b", "a"]}, schema={"c": polars.Categorical})
    out = emitted(MapBatchesOperator(context(declared), lambda b: frame), batch(1))
    assert (out[0].schema, rows(out)) == (declared, [{"c": "a"}, {"c": "b"}, {"c": "a"}])


def test_map_batches_holds_frames_to_the_declared_schema() -> None:
    frame = polars.DataFrame({"y": [1.5], "yy": [1]})
    with pytest.raises(SchemaMismatch, match=r"'y' should be int64 but is double.*'yy' is not in the declared"):
        emitted(MapBatchesOperator(context(OUTPUT), lambda b: frame), batch(1))


@pytest.mark.parametrize("answer", [7, "text", {"y": [1]}, [Y, 7], polars.Series([1]), pa.array([1])])
def test_map_batches_refuses_what_is_no_batch(answer: object) -> None:
    with pytest.raises(TypeError, match="map_batches 'op': the function must return"):
        emitted(MapBatchesOperator(context(OUTPUT), lambda b: answer), batch(1))


def test_a_union_passes_every_port_on_under_one_schema() -> None:
    strict = pa.schema([pa.field("y", pa.int64(), nullable=False)])
    union = UnionOperator(context(OUTPUT, OUTPUT, strict))
    out = Emitted()
    for port, given in enumerate((Y, pa.record_batch([[3]], schema=strict), Y.slice(0, 0))):
        union.process(port % 2, given, out)
    assert rows(out) == [{"y": 1}, {"y": 2}, {"y": 3}]
    assert all(each.schema == OUTPUT for each in out)
