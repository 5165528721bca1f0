"""Loops beside pyarrow: the same rows, nulls and errors, whatever the batch."""

from __future__ import annotations

import datetime
import math
import random
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.expressions import Expr, col, lit
from dataflow.planning.specs import Filter, Project
from operators.fusion.runs import Run, RunStep
from operators.fusion.source import Nulls, fuses
from tests.operators.fusion.chains import Looped, outcome, spelt
from tests.seeds import in_soak, seeds, some_by_default

NUMBERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64"]
SCHEMA = pa.schema(
    {
        "i8": pa.int8(),
        "i16": pa.int16(),
        "i32": pa.int32(),
        "i64": pa.int64(),
        "u8": pa.uint8(),
        "u16": pa.uint16(),
        "u32": pa.uint32(),
        "u64": pa.uint64(),
        "f32": pa.float32(),
        "f64": pa.float64(),
        "f16": pa.float16(),
        "b": pa.bool_(),
        "c": pa.bool_(),
        "ts": pa.timestamp("us", "UTC"),
        "us": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "took": pa.duration("ms"),
        "at": pa.time64("ns"),
        "s": pa.string(),
        "k": pa.dictionary(pa.int32(), pa.string()),
        "dec": pa.decimal128(9, 2),
        "list": pa.list_(pa.int8()),
    }
)
CARRIED = ["i8", "u16", "i64", "f32", "b", "ts", "day", "s", "k", "dec", "list"]
"""A column of each width and kind: each that a loop carries takes long to compile."""
SIZES = [0, 1, 2, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 3000]


FLOATS = [0.0, -0.0, 0.5, -1.5, 2.0, 3.7, -0.25]
WILD_FLOATS = [0.0, -0.0, float("nan"), float("inf"), -float("inf"), 0.5, -1.5, 1e30, 2.0**63, -(2.0**63), 2.0**24 + 1]


def values(dtype: pa.DataType, *, wild: bool) -> pa.Array:
    """What a column is drawn from."""
    if pa.types.is_integer(dtype):
        unsigned = pa.types.is_unsigned_integer(dtype)
        bits = dtype.bit_width - (not unsigned)
        extremes = [0, 1, 2**bits - 1, 2**bits - 2] + ([] if unsigned else [-(2**bits), -1])
        return pa.array(extremes if wild else range(0 if unsigned else -4, 6), dtype)
    if pa.types.is_floating(dtype):
        return pa.array(WILD_FLOATS if wild and dtype != pa.float16() else FLOATS, dtype)
    if pa.types.is_dictionary(dtype):
        return pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pa.array(["x", "y", None]))
    if pa.types.is_string(dtype):
        return pa.array(["", "a", "long enough to matter"])
    if pa.types.is_boolean(dtype):
        return pa.array([False, True])
    if pa.types.is_list(dtype):
        return pa.array([[], [1], [1, 1]], dtype)
    if pa.types.is_decimal(dtype):
        return pa.array([Decimal(value) for value in range(-9, 10)], dtype)
    width = pa.int32() if dtype.bit_width == 32 else pa.int64()
    return pa.array(range(0 if pa.types.is_time(dtype) else -5, 6), width).cast(dtype)


def column(dtype: pa.DataType, rows: int, draw: np.random.Generator, *, wild: bool, nulls: float) -> pa.Array:
    among = values(dtype, wild=wild)
    return among.take(pa.array(draw.integers(len(among), size=rows), mask=draw.random(rows) < nulls))


def batch(schema: pa.Schema, seed: int, *, wild: bool, rows: int | None = None) -> pa.RecordBatch:
    """Columns with and without nulls, as a slice that begins and ends anywhere."""
    draw = np.random.default_rng(seed)
    rows = int(draw.choice(SIZES)) if rows is None else rows
    before, behind = int(draw.integers(12)), int(draw.integers(3))
    nulls = draw.choice([0.0, 0.0, 0.3, 1.0])
    arrays = [
        column(dtype, before + rows + behind, draw, wild=wild, nulls=draw.choice([0.0, nulls]))
        for dtype in schema.types
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(before, rows)


class Trees:
    """Random expressions of a type, over ``SCHEMA``."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def number(self, depth: int) -> Expr:
        draw = self.draw
        if depth == 0:
            return draw.choice([col(draw.choice(NUMBERS)), lit(draw.choice([0, 1, -3, 7, 8, 2.5, -0.0, 123]))])
        a = self.number(depth - 1)
        b = self.number(draw.randrange(depth))
        return draw.choice(
            [
                lambda: a + b,
                lambda: a - b,
                lambda: a * b,
                lambda: a / b,
                lambda: a // draw.choice([3, -3, 4, 123, -1, 1]),
                lambda: a % draw.choice([3, -3, 8, 123, -1, 1]),
                lambda: a // b,
                lambda: a % b,
                lambda: -a,
                lambda: a.abs(),
                lambda: a.round(draw.choice([-2, 0, 2])),
                lambda: a.fill_null(draw.choice([0, 3, 2.5])),
                lambda: a.cast(draw.choice(["int64", "float32", "float64", "int16"])),
                lambda: self.truth(depth - 1).cast("int32"),
            ]
        )()

    def truth(self, depth: int) -> Expr:
        draw = self.draw
        if depth == 0:
            return draw.choice(
                [col("b"), col("c"), col("ts") < col("us"), col("day") >= lit(datetime.date(1970, 1, 2))]
            )
        a, b = self.number(depth - 1), self.number(draw.randrange(depth))
        p, q = self.truth(depth - 1), self.truth(draw.randrange(depth))
        return draw.choice(
            [
                lambda: a == b,
                lambda: a != b,
                lambda: a < b,
                lambda: a <= b,
                lambda: a > b,
                lambda: a >= b,
                lambda: a % 3 == 0,
                lambda: p & q,
                lambda: p | q,
                lambda: ~p,
                lambda: p == q,
                lambda: p < q,
                lambda: a.is_null(),
                lambda: a.is_not_null(),
                lambda: a.is_in([0, 2, 5]),
                lambda: p.fill_null(value=True),
                lambda: a.cast("bool"),
            ]
        )()


def sound(expr: Expr) -> bool:
    """Whether the expression has a type and a loop, so that its kernel is worth compiling."""
    try:
        return fuses(Run(SCHEMA, (Project((expr.alias("x"),)),)))
    except Exception:
        return False


@cache
def looped(seed: int) -> Looped:
    """Two filters around a projection of random trees, and columns of every kind carried along."""
    trees = Trees(seed)
    numbers = [e for e in (trees.number(1 + i % 3) for i in range(60)) if sound(e)][:4]
    truths = [e for e in (trees.truth(1 + i % 3) for i in range(60)) if sound(e)][:4]
    assert len(numbers) == len(truths) == 4, "few trees have loops"
    made = [e.alias(f"x{i}") for i, e in enumerate(numbers)] + [e.alias(f"p{i}") for i, e in enumerate(truths[2:])]
    steps: tuple[RunStep, ...] = (
        Filter(truths[0] | col("b")),
        Project((*map(col, SCHEMA.names), *made)),
        Filter(col("p0") | (col("x0") < 3) | truths[1]),
        Project(tuple(col(name) for name in [*CARRIED, *(f"x{i}" for i in range(4)), *(f"p{i}" for i in range(2))])),
    )
    return Looped(steps, SCHEMA)


def check(loop: Looped, given_: pa.RecordBatch) -> None:
    plain = outcome(lambda: loop.plain(given_))
    assert outcome(lambda: loop(given_).batches) == plain
    if loop.emitted.counts:
        assert list(loop.emitted.counts[0]) == loop.plain.rows


@pytest.mark.parametrize("tree", seeds(1, 8))
@given(seed=st.integers(0, 2**32))
def test_random_trees_over_mild_data_are_the_same(tree: int, seed: int) -> None:
    check(looped(tree), batch(SCHEMA, seed, wild=False))


@pytest.mark.parametrize("tree", seeds(1, 8))
@given(seed=st.integers(0, 2**32))
def test_random_trees_over_extremes_are_the_same_or_raise_the_same(tree: int, seed: int) -> None:
    check(looped(tree), batch(SCHEMA, seed, wild=True, rows=seed % 4))


@pytest.mark.parametrize("batches", [24, *in_soak(60)])
def test_mild_batches_do_go_through_the_loop(batches: int) -> None:
    went = 0
    for seed in range(batches):
        check(looped(0), batch(SCHEMA, seed, wild=False))
        went += not looped(0).fell_back
    assert went > 2 / 3 * batches


X = pa.schema(
    {"i": pa.int64(), "j": pa.int64(), "u": pa.uint64(), "v": pa.uint64(), "f": pa.float64(), "g": pa.float32()}
)
RISKY = [
    col("i") + col("j"),
    col("i") - col("j"),
    col("i") * col("j"),
    col("u") + col("v"),
    col("u") - col("v"),
    col("u") * col("v"),
    col("i") // col("j"),
    col("i") % col("j"),
    col("u") // col("v"),
    col("u") + col("i"),
    -col("i"),
    col("i").abs(),
    col("f").cast("int64"),
    col("f").cast("uint64"),
    col("g").cast("int32"),
    col("i").cast("int8"),
    col("i").cast("uint32"),
    col("u").cast("int64"),
    col("i") // -1,
    col("i") % -1,
]


@cache
def risky(number: int) -> Looped:
    return Looped((Project((RISKY[number].alias("x"), col("i"))),), X)


@pytest.mark.parametrize(
    ("number", "rows"),
    some_by_default([(n, 60) for n in range(0, len(RISKY), 3)], range(len(RISKY)), [60, 120]),
)
def test_one_row_raises_in_both_or_is_the_same_in_both(number: int, rows: int) -> None:
    loop, looked = risky(number), 0
    for seed in range(rows):
        check(loop, batch(X, seed, wild=True, rows=1))
        looked += not loop.fell_back
    assert looked > rows / 10, "hardly a row went through the loop"


def rows(*values: Sequence[object], schema: pa.Schema = X) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=False)) for row in values], schema=schema)


def test_an_overflow_is_that_of_the_operator_even_where_a_later_filter_drops_the_row() -> None:
    steps = (Filter(col("i") > 0), Project((col("i"), (col("i") * 4).alias("x"))), Filter(col("i") < 3))
    loop = Looped(steps, X)
    with pytest.raises(OverflowError, match=r"select 'op': col\('i'\) \* 4: overflow"):
        loop(rows([1], [2**62]))
    assert spelt(loop(rows([1], [-(2**62)])).batches) == spelt(loop.plain(rows([1], [-(2**62)])))
    assert not loop.fell_back


def test_a_projection_without_a_filter_passes_columns_on_without_a_copy() -> None:
    schema = pa.schema({"i": pa.int64(), "s": pa.string()})
    loop = Looped((Project((col("i"), col("s"), (col("i") * 2 + 1).alias("x"))),), schema)
    given_ = rows([1, "a"], [2, None], schema=schema)
    (made,) = loop(given_).batches
    assert made["i"].buffers()[1].address == given_["i"].buffers()[1].address
    assert made["x"].to_pylist() == [3, 5]
    assert not loop.fell_back


def test_filters_that_drop_nothing_hand_out_the_batch_itself() -> None:
    loop = Looped((Filter(col("i") > 0), Filter(col("i") < 9)), X)
    given_ = rows([1], [2])
    assert loop(given_).batches[0] is given_
    assert loop.emitted.counts == [[2, 2]]


def test_of_many_columns_some_are_carried_by_pyarrow() -> None:
    schema = pa.schema({f"c{i}": pa.int32() for i in range(20)})
    loop = Looped((Filter(col("c0") % 2 == 0), Project((*map(col, schema.names), (-col("c19")).alias("x")))), schema)
    given_ = batch(schema, 5, wild=False, rows=100)
    check(loop, given_)
    assert len(loop.fused.loops[Nulls.ANY].generated.writes) == 17
    assert not loop.fell_back


def test_a_batch_of_another_schema_is_left_to_the_operators() -> None:
    loop = Looped((Filter(col("i") > 0), Filter(col("i") < 9)), X)
    odd = rows([1], [2]).rename_columns(["i", "jj", "u", "v", "f", "g"])
    loop(odd)
    assert loop.fell_back


HALVES = [
    0.5,
    1.5,
    -2.5,
    0.49999999999999994,
    -0.2,
    -0.0,
    1.245,
    25.0,
    -35.0,
    1e300,
    4503599627370496.5,
    math.nan,
    -math.inf,
]


@pytest.mark.parametrize("digits", [-1, 0, 2])
def test_the_loop_rounds_halves_as_pyarrow_does(digits: int) -> None:
    schema = pa.schema({"f": pa.float64(), "i": pa.int64()})
    rounded = (col("f").round(digits).alias("x"), col("i").round(abs(digits)).alias("y"))
    loop = Looped((Project(rounded),), schema)
    check(loop, pa.record_batch([[*HALVES, None], [*range(len(HALVES)), None]], schema=schema))
    assert not loop.fell_back
