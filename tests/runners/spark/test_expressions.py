"""Every line of the tables in ``dataflow.expressions``, held against its examples on Spark; and what Spark refuses."""

from __future__ import annotations

import datetime
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
from dataflow.errors import ConfigurationError, UnsupportedOnRunner
from dataflow.expressions import Expr, col, lit, when
from dataflow.runners.spark import to_column
from tests.expressions.cases import Case, Kept
from tests.expressions.semantics import SEMANTICS
from tests.runners.spark.engine import failure, frame, on_spark, plain
from tests.seeds import in_soak

ZONED = pa.timestamp("us", "America/New_York")
UNKNOWN_TO_SPARK = ("uint64", "time64[us]", "decimal256(40, 2)")


def known(case: Case) -> bool:
    written = [str(dtype) for dtype, _ in case.columns.values()]
    return "uint64" not in case.text and not any(dtype in UNKNOWN_TO_SPARK for dtype in written)


VALUES = [case for case in SEMANTICS if known(case) and isinstance(case.expected, list)]
ERRORS = [case for case in SEMANTICS if known(case) and isinstance(case.expected, type)]
FIRST_ERRORS = [case for n, case in enumerate(ERRORS) if case.line not in [before.line for before in ERRORS[:n]]]
"""One for each line of the tables, because each fails a query of its own."""


def read(case: Case, prefix: str = "") -> Expr:
    """The expression of a case over columns that have ``prefix`` before their names."""
    names = {"col": lambda name: col(prefix + name), "lit": lit, "when": when, "concat_str": flow.concat_str}
    names["coalesce"] = flow.coalesce
    names["from_epoch"] = lambda made, unit: flow.from_epoch(prefix + made if isinstance(made, str) else made, unit)
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


@pytest.mark.parametrize("case", [*FIRST_ERRORS, *in_soak(*(e for e in ERRORS if e not in FIRST_ERRORS))], ids=str)
def test_what_cannot_be_raises(spark: Any, case: Case) -> None:
    assert type(failure(spark, table(case), read(case))) is case.expected


@pytest.mark.parametrize("case", [case for case in SEMANTICS if isinstance(case.expected, Kept)], ids=str)
def test_a_filter_keeps_what_is_true(spark: Any, case: Case) -> None:
    rows = table(case)
    kept = frame(spark, rows).filter(to_column(read(case), rows.schema)).toArrow()
    assert Kept(kept["x"].to_pylist()) == case.expected


@pytest.mark.parametrize("case", [case for case in SEMANTICS if not known(case)], ids=str)
def test_what_spark_has_no_type_for_is_refused_before_anything_runs(spark: Any, case: Case) -> None:
    with pytest.raises(UnsupportedOnRunner, match="not on the spark runner: Spark has no type for the values of"):
        to_column(read(case), table(case).schema)


SCHEMA = pa.schema(
    {
        "a": pa.float64(),
        "m": pa.decimal128(20, 2),
        "t": pa.timestamp("us"),
        "ns": pa.timestamp("ns"),
        "c": pa.time64("us"),
        "i": pa.int64(),
        "u": pa.uint64(),
    }
)


@pytest.mark.parametrize(
    ("expr", "reason"),
    [
        (col("a").cast("string"), "Spark's cast from double to string"),
        (col("t").cast("string"), r"Spark's cast from timestamp\[us\] to string"),
        (col("a").cast(pa.decimal128(9, 2)), "Spark's cast from double to decimal"),
        (col("m") / 2, r"Spark's cast from decimal128\(20, 2\) to double"),
        (col("m").cast("float64", strict=False), "Spark's cast from decimal"),
        (col("ns"), r"no type for the values of timestamp\[ns\]; .* timestamp\[us\]"),
        (col("c").is_null(), "no type for the values of time64"),
        (col("i").cast("uint64"), "no type for the values of uint64; cast to int64"),
        (col("u").is_null(), "uint64"),
        (flow.from_epoch("i", "ns"), r"no type for the values of timestamp\[ns, tz=UTC\]; .* timestamp\[us\]"),
        (when(col("i") != 0).then((col("i") * 2).hash()), "of rows that do not take the branch"),
        (when(col("a") > 0).then(0.0).otherwise(-0.0), "does not distinguish the constants 0.0 and -0.0"),
    ],
    ids=str,
)
def test_what_spark_would_compute_otherwise_is_refused_with_a_way_out(spark: Any, expr: Expr, reason: str) -> None:
    with pytest.raises(UnsupportedOnRunner, match=reason) as caught:
        to_column(expr, SCHEMA, "select")
    assert str(caught.value).startswith("select: ")


def test_a_session_whose_integers_wrap_is_refused(spark: Any) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(ConfigurationError, match=r"spark\.sql\.ansi\.enabled=true .* wrap"):
            to_column(col("i") + 1, SCHEMA)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_a_narrowing_cast_counts_although_spark_joins_casts(spark: Any) -> None:
    numbers = [2**31 - 1, -(2**24) - 1, 2**53 + 1, 2**62 + 2**38 + 1, -(2**63), 123_456_789, 7, None]
    small = [None if number is None else number % 2**31 for number in numbers]
    table = pa.table(
        {
            "i": pa.array(numbers, pa.int64()),
            "w": pa.array(small, pa.int32()),
            "u": pa.array(small, pa.uint32()),
            "f": pa.array([None if number is None else number / 3 for number in numbers]),
            "m": pa.array(
                [None if number is None else Decimal(number) / 10**4 for number in small], pa.decimal128(20, 4)
            ),
            "t": pa.array(small, pa.timestamp("us")),
        }
    )
    floats = [col(name).cast("float32") for name in "iwuf"]
    floats += [(col("w") + 1).cast("float32"), col("i").hash().cast("float32")]
    wide = [use for x in floats for use in (x.cast("float64"), x + 0.0, x * 0.5, x == 2.0**31, x < 2.0**31, x.round(1))]
    narrow = {
        "i": ["int8", "int32", "decimal128(9, 2)"],
        "m": ["int8", "decimal128(9, 2)"],
        "t": ["timestamp[s]", "date32"],
    }
    for name, targets in narrow.items():
        casts = [col(name).cast(target, strict=False) for target in targets]
        back = table.schema.field(name).type
        wide += [cast.cast(back) for cast in casts if not pa.types.is_decimal(back) or cast is not casts[0]]
    expected = [expr.evaluate(table.to_batches()[0]) for expr in wide]
    assert expected[6].to_pylist()[0] == 2.0**31
    found = on_spark(spark, table, wide)
    for expr, one, other in zip(wide, found, expected, strict=True):
        assert plain(one) == plain(other), expr


WITHOUT = """
import sys
sys.modules["pyspark"] = None
import pyarrow as pa
from dataflow import col
from dataflow.errors import ConfigurationError
from dataflow.runners.spark import to_column
try:
    to_column(col("x"), pa.schema({"x": pa.int64()}))
except ConfigurationError as error:
    print(error)
"""


def test_without_pyspark_the_error_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert "pip install 'barrierflow[spark]'" in done.stdout


def test_hashes_and_truncated_times_may_stand_anywhere_in_arithmetic(spark: Any) -> None:
    rows = pa.table({"a": [1, -7, None], "z": pa.array([0, 1_730_615_400_000_000, None], ZONED)})
    hashed, hour = (col("a") * 3).hash(), (col("z") + datetime.timedelta(hours=1)).dt.truncate("1h")
    exprs = [hashed % 16, (col("a") + 1) // (hashed % 5), hashed.cast("float64") // (col("a") / 2), hour.dt.hour() - 1]
    (batch,) = rows.to_batches()
    made = on_spark(spark, rows, exprs)
    assert [plain(array) for array in made] == [plain(expr.evaluate(batch)) for expr in exprs]
