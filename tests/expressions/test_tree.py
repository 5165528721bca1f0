"""Building, printing, naming and typing expressions."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch, UnknownColumn
from dataflow.expressions import (
    AggregateKind,
    Aggregation,
    Expr,
    coalesce,
    col,
    concat_str,
    count,
    from_epoch,
    lit,
    output_schema,
    when,
)

SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "b": pa.bool_(),
        "t": pa.timestamp("us", "UTC"),
        "d": pa.decimal128(10, 2),
        "k": pa.dictionary(pa.int32(), pa.string()),
        "l": pa.list_(pa.int64()),
    }
)
NAMES = {
    "col": col,
    "lit": lit,
    "when": when,
    "concat_str": concat_str,
    "from_epoch": from_epoch,
    "pa": pa,
    "datetime": datetime,
    "Decimal": Decimal,
}

leaves = st.one_of(
    st.sampled_from(["a", "b", "it's"]).map(col),
    st.one_of(st.integers(-5, 2**64 - 1), st.floats(), st.booleans(), st.none(), st.text(max_size=2)).map(lit),
    st.just(lit(datetime.date(2020, 1, 2))),
    st.just(lit(Decimal("1.50"))),
)


def grown(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    signs = ["+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "&", "|"]
    methods = [
        "-{}",
        "~{}",
        "{}.abs()",
        "{}.is_null()",
        "{}.fill_null(0)",
        "{}.cast('int32')",
        "{}.cast(pa.timestamp('us', 'UTC'))",
        "{}.is_in([1, 2.5])",
        "{}.alias('x')",
        "{}.cast('int8', strict=False)",
        "{}.hash()",
        "{}.is_nan()",
        "{}.between(1, 'b')",
        "{}.str.length()",
        "{}.str.strip()",
        "{}.str.strip('it\\'s')",
        "{}.str.contains('a.')",
        "{}.str.contains('a.', literal=True)",
        "{}.str.replace_all('a.', '$1', literal=True)",
        "{}.str.extract('(a)', 0)",
        "{}.str.extract('(a)')",
        "{}.str.slice(-2)",
        "{}.str.slice(1, 0)",
        "{}.str.count('it\\'s')",
        "{}.round()",
        "{}.round(-2)",
        "{}.list.get(-1)",
        "{}.struct.field('it\\'s')",
        "{}.dt.hour()",
        "{}.dt.strftime('%Y \\'%%')",
        "{}.dt.truncate('1.5h')",
        "{}.dt.truncate('1d', offset='1us')",
        "{}.dt.localize('Europe/Berlin')",
        "{}.dt.localize('+05:30', ambiguous='null', missing='later')",
        "concat_str([{}, 'x', None])",
        "from_epoch({}, 'ns')",
        "concat_str([{}], separator='\\n')",
        "when({}).then('x')",
        "when(True).then({}).when({}).then(None).otherwise(1)",
    ]
    binary = st.builds(
        lambda sign, left, right: eval(f"left {sign} right", {"left": left, "right": right}),
        st.sampled_from(signs),
        inner,
        inner,
    )
    unary = st.builds(
        lambda text, one: eval(text.replace("{}", "one"), {"one": one, **NAMES}), st.sampled_from(methods), inner
    )
    branches = st.builds(
        lambda *parts: when(parts[0]).then(parts[1]).when(parts[2]).then(parts[3]).otherwise(parts[4]), *[inner] * 5
    )
    return binary | unary | branches


@given(st.recursive(leaves, grown, max_leaves=8))
def test_the_text_of_an_expression_gives_it_back(expr: Expr) -> None:
    again = eval(str(expr), NAMES)
    assert again.equals(expr)
    assert structure(again) == structure(expr)


def structure(expr: Expr) -> object:
    own = [repr(getattr(expr, name)) for name in type(expr).__slots__ if not isinstance(getattr(expr, name), Expr)]
    return type(expr), own, [structure(operand) for operand in expr.operands()]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (col("a") * 0.9 > 3, "col('a') * 0.9 > 3"),
        ((col("a") + 1) * 2, "(col('a') + 1) * 2"),
        (col("a") - (col("b") - 1), "col('a') - (col('b') - 1)"),
        ((col("a") > 1) & ~(col("b") == 2), "(col('a') > 1) & ~(col('b') == 2)"),
        (2 - col("a"), "2 - col('a')"),
        (-(col("a") + 1), "-(col('a') + 1)"),
        (lit(1) + 2, "lit(1) + 2"),
        ((col("a") / 2).alias("half"), "(col('a') / 2).alias('half')"),
        (col("a").cast(pa.decimal128(10, 2)), "col('a').cast(pa.decimal128(10, 2))"),
        (col("a").is_in({"y", "x"}), "col('a').is_in(['x', 'y'])"),
        (col("a").cast("int8", strict=False), "col('a').cast('int8', strict=False)"),
        ((col("a") + "x").str.upper(), "(col('a') + 'x').str.upper()"),
        (col("t").dt.truncate(datetime.timedelta(minutes=90)), "col('t').dt.truncate('90min')"),
        (col("t").dt.localize("UTC", missing="null"), "col('t').dt.localize('UTC', missing='null')"),
        (from_epoch("a", "ms"), "from_epoch(col('a'), 'ms')"),
        (from_epoch(lit(5), "s"), "from_epoch(lit(5), 's')"),
        (concat_str([col("a") + 1, "x"]), "concat_str([col('a') + 1, 'x'])"),
        (coalesce(col("a"), col("b") + 1, 0), "col('a').fill_null(col('b') + 1).fill_null(0)"),
        (concat_str([lit("a"), "b"]), "concat_str([lit('a'), lit('b')])"),
        (when(col("a") > 1).then(2).otherwise(None), "when(col('a') > 1).then(2)"),
        (
            when(col("a")).then(2).otherwise(col("b")).alias("c"),
            "when(col('a')).then(2).otherwise(col('b')).alias('c')",
        ),
    ],
)
def test_the_text_reads_like_the_source(expr: Expr, text: str) -> None:
    assert str(expr) == repr(expr) == expr.fingerprint() == text


def test_columns_come_in_order_of_first_use() -> None:
    assert ((col("b") + col("a")) * col("b")).columns() == ("b", "a")


def test_the_name_is_the_alias_or_the_leftmost_column() -> None:
    assert (1 - col("b") * col("a")).name == "b"
    assert col("b").alias("x").alias("y").name == "y"
    assert concat_str(["x", col("b"), col("a")]).name == "b"
    assert when(col("a") > 1).then(0).otherwise(col("b")).name == "b"
    with pytest.raises(GraphError, match="alias"):
        _ = when(col("a") > 1).then(0).name
    with pytest.raises(GraphError, match=r"lit\(1\) \+ 2 refers to no column.*alias"):
        _ = (lit(1) + 2).name


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: bool(col("a")),
        lambda: col("a") > 1 and col("a") < 3,
        lambda: 1 < col("a") < 3,
        lambda: col("a") in [1, 2],
        lambda: not col("a"),
    ],
)
def test_python_logic_is_refused_with_a_hint(misuse: object) -> None:
    with pytest.raises(TypeError, match=r"use & \| ~"):
        misuse()  # type: ignore[operator]


def test_membership_and_iteration_are_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match="is_in"):
        _ = 1 in col("a")
    with pytest.raises(TypeError, match="one column"):
        list(col("a"))
    with pytest.raises(GraphError, match="is_null"):
        col("a").is_in([1, None])


@pytest.mark.parametrize(
    ("misuse", "error", "hint"),
    [
        (lambda: when("a"), TypeError, "condition"),
        (lambda: when(col("a")).then(1).otherwise(2).otherwise(3), GraphError, "closes the branches"),
        (lambda: when(col("a")).then(1).otherwise(2).when(col("b")), GraphError, "closes the branches"),
        (lambda: concat_str("ab"), TypeError, "a list"),
        (lambda: concat_str([]), TypeError, "at least one"),
        (lambda: concat_str(["a", "b"], "-"), TypeError, r"write col\('a'\) for a column"),
        (lambda: concat_str([col("a")], separator=None), TypeError, "separator"),
        (lambda: col("a").str.split(""), GraphError, "empty"),
        (lambda: col("a").str.replace_all("", "x", literal=True), GraphError, "empty"),
        (lambda: col("a").str.starts_with(col("b")), TypeError, "plain text"),
        (lambda: col("a").str.contains(col("b")), TypeError, "pattern as text"),
        (lambda: col("a").str.extract("(a)(b)", 3), GraphError, "groups 0 .* to 2, and no group 3"),
        (lambda: col("a").dt.truncate("1mo"), ConfigurationError, "1h"),
        (lambda: col("a").dt.truncate("0s"), GraphError, "at least"),
        (lambda: col("a").dt.truncate(60), ConfigurationError, "timedelta"),
    ],
)
def test_arguments_without_meaning_are_refused_when_they_are_written(
    misuse: Callable[[], object], error: type[Exception], hint: str
) -> None:
    with pytest.raises(error, match=hint):
        misuse()


def test_intervals_that_a_column_cannot_express_are_refused() -> None:
    schema = pa.schema({"s": pa.timestamp("s"), "d": pa.date32(), "z": pa.timestamp("us", "Nowhere/City")})
    for expr in (col("s").dt.truncate("1500ms"), col("d").dt.truncate("1h"), col("d").dt.truncate("1d", offset="1h")):
        with pytest.raises(SchemaMismatch, match=r"here: .* is too coarse for it.*cast"):
            expr.dtype(schema, "here")
    with pytest.raises(SchemaMismatch, match=r"here: .*Nowhere/City"):
        col("z").dt.hour().dtype(schema, "here")


def test_an_unknown_column_names_the_valid_ones() -> None:
    with pytest.raises(UnknownColumn, match=r"filter 'cheap'.*'ff' \(did you mean 'f'\?\).*'i', 'f'"):
        (col("ff") > 1).dtype(SCHEMA, "filter 'cheap'")


@pytest.mark.parametrize(
    "expr",
    [
        col("s") + 1,
        col("i") == "x",
        col("i") & col("b"),
        ~col("i"),
        -col("s"),
        col("d") // 2,
        col("l") == col("l"),
        col("t") > datetime.datetime(2020, 1, 1),
        col("i").fill_null("x"),
        col("l").cast("int64"),
        col("b") + 1,
        col("s").abs(),
        col("i").is_in(["x"]),
        col("i").str.length(),
        concat_str([col("s"), col("i")]),
        col("s").dt.year(),
        col("i").dt.truncate("1h"),
        col("d").is_nan(),
        col("l").hash(),
        when(col("i")).then(1),
        when(col("b")).then(1).otherwise("x"),
        when(col("b")).then(col("l")).otherwise(col("i")),
        col("l").cast("int64", strict=False),
    ],
)
def test_types_that_do_not_go_together_are_named_with_the_expression(expr: Expr) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        expr.dtype(SCHEMA, "here")
    message = str(caught.value)
    assert message.startswith(f"here: {expr} cannot be computed")
    assert all(str(operand.dtype(SCHEMA)) in message for operand in expr.operands())


@pytest.mark.parametrize(
    ("expr", "dtype"),
    [
        (col("i") / 2, pa.float64()),
        (col("i") + 0.5, pa.float64()),
        (col("d") / 2, pa.float64()),
        (col("d") + col("d"), pa.decimal128(11, 2)),
        (col("d") * 2, pa.decimal128(12, 2)),
        (col("t") - col("t"), pa.duration("us")),
        (col("t") + datetime.timedelta(seconds=1), pa.timestamp("us", "UTC")),
        (col("k") == "x", pa.bool_()),
        (col("k").fill_null("x"), pa.string()),
        (col("i").fill_null(0.5), pa.float64()),
        (col("i") > lit(None), pa.bool_()),
        (col("d") > 1, pa.bool_()),
        (lit(None), pa.null()),
        (col("k"), pa.dictionary(pa.int32(), pa.string())),
        (col("k").str.split(","), pa.list_(pa.string())),
        (col("k").str.extract("(x)"), pa.string()),
        (concat_str([col("k"), col("s"), lit(None)]), pa.string()),
        (col("s").str.length(), pa.int64()),
        (col("t").dt.truncate("1h"), pa.timestamp("us", "UTC")),
        (col("t").dt.date(), pa.date32()),
        (col("t").dt.weekday(), pa.int64()),
        (col("d").hash(), pa.int64()),
        (lit(None).hash(), pa.int64()),
        (when(col("b")).then(col("i")).otherwise(0.5), pa.float64()),
        (when(col("b")).then(1).otherwise(col("i").cast("int8")), pa.int8()),
        (when(col("b")).then(300).otherwise(col("i").cast("int8")), pa.int64()),
        (when(col("b")).then(300).when(col("b")).then(2).otherwise(col("i").cast("int8")), pa.int64()),
        (
            when(col("b")).then(Decimal("1")).when(col("b")).then(Decimal("1.234")).otherwise(col("d")),
            pa.decimal128(11, 3),
        ),
        (
            when(col("b")).then(Decimal("100")).when(col("b")).then(Decimal("1.5")).otherwise(Decimal("1.555")),
            pa.decimal128(6, 3),
        ),
        (when(col("b")).then(None).when(col("b")).then(col("s")), pa.string()),
        (when(col("b")).then(col("k")).otherwise(col("k")), pa.string()),
        (when(col("b")).then(col("l")), pa.list_(pa.int64())),
        (when(col("b")).then(col("d")).otherwise(col("i")), pa.decimal128(22, 2)),
        (when(lit(None)).then(None), pa.null()),
        (col("f").cast("int8", strict=False), pa.int8()),
    ],
)
def test_the_declared_type_is_the_type_of_the_values(expr: Expr, dtype: pa.DataType) -> None:
    assert expr.dtype(SCHEMA) == dtype
    row = {
        "i": 1,
        "f": 1.0,
        "s": "x",
        "b": True,
        "t": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        "d": Decimal("1.5"),
        "k": "x",
        "l": [1],
    }
    for rows in ([], [row], [dict.fromkeys(row)] * 2, [row, dict.fromkeys(row)]):
        values = expr.evaluate(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
        values.validate(full=True)
        assert (values.type, len(values)) == (dtype, len(rows))


def test_expressions_pickle() -> None:
    expr = when((col("a") + 1).cast("int32").is_in([1]) | col("b")).then(col("s").str.split(",")).alias("x")
    assert pickle.loads(pickle.dumps(expr)).equals(expr)


def test_a_projection_keeps_the_fields_of_plain_columns_and_refuses_one_name_twice() -> None:
    field = pa.field("a", pa.int64(), nullable=False, metadata={"unit": "us"})
    made = output_schema([col("a"), (col("a") + 1).alias("b")], pa.schema([field]), "select")
    assert made.equals(pa.schema([field, pa.field("b", pa.int64())]), check_metadata=True)
    with pytest.raises(GraphError, match=r"\['a'\]"):
        output_schema([col("a"), col("a") + 1], pa.schema([field]), "select")


@pytest.mark.parametrize(
    ("made", "name", "text", "dtype"),
    [
        (count(), "count", "count()", pa.int64()),
        (col("i").count(), "i_count", "col('i').count()", pa.int64()),
        (col("i").sum(), "i_sum", "col('i').sum()", pa.int64()),
        (col("f").cast("float32").sum(), "f_sum", "col('f').cast('float32').sum()", pa.float64()),
        (col("i").cast("uint8").sum(), "i_sum", "col('i').cast('uint8').sum()", pa.uint64()),
        (col("d").mean(), "d_mean", "col('d').mean()", pa.float64()),
        (col("i").mean(), "i_mean", "col('i').mean()", pa.float64()),
        ((col("f") * 2).max().alias("top"), "top", "(col('f') * 2).max().alias('top')", pa.float64()),
        (col("k").count(), "k_count", "col('k').count()", pa.int64()),
        (lit(1).sum(), "sum", "lit(1).sum()", pa.int64()),
    ],
)
def test_aggregates_have_names_texts_and_types(made: Aggregation, name: str, text: str, dtype: pa.DataType) -> None:
    assert (made.name, str(made), made.dtype(SCHEMA)) == (name, text, dtype)


def test_aggregates_refuse_types_they_cannot_take() -> None:
    for made in (col("s").sum(), col("b").variance(), col("l").max()):
        with pytest.raises(SchemaMismatch, match=r"here: .*cast"):
            made.dtype(SCHEMA, "here")
    with pytest.raises(UnknownColumn, match="zz"):
        col("zz").sum().dtype(SCHEMA, "here")
    with pytest.raises(ValueError, match="needs a column"):
        Aggregation(AggregateKind.SUM, None)


def test_aggregates_compare_by_structure() -> None:
    assert col("a").max().equals(col("a").max())
    assert not col("a").max().equals(col("a").max().alias("top"))


def test_text_that_is_added_is_told_of_concat_str() -> None:
    with pytest.raises(SchemaMismatch, match=r"; join text with flow.concat_str\(\[col\('s'\), lit\('!'\)\]\)$"):
        (col("s") + "!").dtype(SCHEMA, "here")
    with pytest.raises(SchemaMismatch, match=r"\.cast\(type\) one of them$"):
        (col("s") + col("i")).dtype(SCHEMA, "here")
