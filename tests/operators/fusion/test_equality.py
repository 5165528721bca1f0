"""Loops beside pyarrow: the same rows, nulls and errors, whatever the batch."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from decimal import Decimal
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.expressions import Expr, col, lit
from dataflow.specs import Filter, Project
from operators.fusion.runs import Run, Step
from operators.fusion.source import Nulls, fuses
from tests.operators.fusion.chains import Looped, outcome, spelt

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
SIZES = [0, 1, 2, 7, 8, 9, 63, 64, 65, 1023, 1024, 1025, 3000]


def column(dtype: pa.DataType, rows: int, draw: random.Random, *, wild: bool, nulls: float) -> pa.Array:
    mask = [draw.random() < nulls for _ in range(rows)]
    if pa.types.is_integer(dtype):
        low, high = (0, 5) if pa.types.is_unsigned_integer(dtype) else (-4, 5)
        bits = dtype.bit_width - (not pa.types.is_unsigned_integer(dtype))
        extremes = [0, 1, 2**bits - 1, 2**bits - 2] + ([] if low == 0 else [-(2**bits), -1])
        values: list[object] = [draw.choice(extremes) if wild else draw.randint(low, high) for _ in range(rows)]
    elif pa.types.is_floating(dtype):
        extremes_f = [
            0.0,
            -0.0,
            float("nan"),
            float("inf"),
            -float("inf"),
            0.5,
            -1.5,
            1e30,
            2.0**63,
            -(2.0**63),
            2.0**24 + 1,
        ]
        mild = [0.0, -0.0, 0.5, -1.5, 2.0, 3.7, -0.25]
        values = [draw.choice(extremes_f if wild and dtype != pa.float16() else mild) for _ in range(rows)]
    elif pa.types.is_boolean(dtype):
        values = [draw.random() < 0.5 for _ in range(rows)]
    elif pa.types.is_dictionary(dtype):
        indices = pa.array([draw.randrange(3) for _ in range(rows)], pa.int32(), mask=np.array(mask, bool))
        return pa.DictionaryArray.from_arrays(indices, pa.array(["x", "y", None]))
    elif pa.types.is_string(dtype):
        values = [draw.choice(["", "a", "long enough to matter"]) for _ in range(rows)]
    elif pa.types.is_list(dtype):
        values = [[1] * draw.randrange(3) for _ in range(rows)]
    elif pa.types.is_decimal(dtype):
        values = [Decimal(draw.randint(-9, 9)) for _ in range(rows)]
    else:
        width = pa.int32() if dtype.bit_width == 32 else pa.int64()
        low = 0 if pa.types.is_time(dtype) else -5
        return pa.array([draw.randint(low, 5) for _ in range(rows)], width, mask=np.array(mask, bool)).cast(dtype)
    return pa.array([None if null else value for null, value in zip(mask, values, strict=True)], dtype)


def batch(schema: pa.Schema, seed: int, *, wild: bool, rows: int | None = None) -> pa.RecordBatch:
    """Columns with and without nulls, as a slice that begins and ends anywhere."""
    draw = random.Random(seed)
    rows = draw.choice(SIZES) if rows is None else rows
    before, behind = draw.randrange(12), draw.randrange(3)
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
    """Two filters around a projection of many random trees, and every column carried along."""
    trees = Trees(seed)
    numbers = [e for e in (trees.number(1 + i % 3) for i in range(60)) if sound(e)][:7]
    truths = [e for e in (trees.truth(1 + i % 3) for i in range(60)) if sound(e)][:6]
    assert len(numbers) == 7, "few trees have loops"
    assert len(truths) == 6, "few trees have loops"
    made = [e.alias(f"x{i}") for i, e in enumerate(numbers)] + [e.alias(f"p{i}") for i, e in enumerate(truths[2:])]
    steps: tuple[Step, ...] = (
        Filter(truths[0] | col("b")),
        Project((*map(col, SCHEMA.names), *made)),
        Filter(col("p0") | (col("x0") < 3) | truths[1]),
        Project(
            tuple(col(name) for name in [*SCHEMA.names, *(f"x{i}" for i in range(7)), *(f"p{i}" for i in range(4))])
        ),
    )
    return Looped(steps, SCHEMA)


def check(loop: Looped, given_: pa.RecordBatch) -> None:
    plain = outcome(lambda: loop.plain(given_))
    assert outcome(lambda: loop(given_).batches) == plain
    if loop.emitted.counts:
        assert list(loop.emitted.counts[0]) == loop.plain.rows


@pytest.mark.parametrize("tree", range(2))
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_random_trees_over_mild_data_are_the_same(tree: int, seed: int) -> None:
    check(looped(tree), batch(SCHEMA, seed, wild=False))


@pytest.mark.parametrize("tree", range(2))
@given(seed=st.integers(0, 2**32))
def test_random_trees_over_extremes_are_the_same_or_raise_the_same(tree: int, seed: int) -> None:
    check(looped(tree), batch(SCHEMA, seed, wild=True, rows=seed % 4))


def test_mild_batches_do_go_through_the_loop() -> None:
    went = 0
    for seed in range(60):
        check(looped(seed % 2), batch(SCHEMA, seed, wild=False))
        went += not looped(seed % 2).fell_back
    assert went > 40


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


@pytest.mark.parametrize("number", range(len(RISKY)), ids=map(str, RISKY))
def test_one_row_raises_in_both_or_is_the_same_in_both(number: int) -> None:
    loop, looked = risky(number), 0
    for seed in range(300):
        check(loop, batch(X, seed, wild=True, rows=1))
        looked += not loop.fell_back
    assert looked > 30, "hardly a row went through the loop"


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
