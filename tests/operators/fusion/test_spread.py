"""Rows that a loop spreads by key: the same parts, in the same order, as ``hash_partition`` makes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.expressions import col
from dataflow.planning.specs import Filter, Project
from dataflow.state.partition import hash_partition
from operators.fusion.operator import Spread
from operators.fusion.runs import Run, RunStep
from operators.fusion.source import fuses
from tests.operators.fusion.chains import Looped, spelt
from tests.operators.fusion.test_equality import CARRIED, SCHEMA, batch


def steps(carried: Sequence[str]) -> tuple[RunStep, ...]:
    return Filter(col("b") | (col("i8") != 0)), Project((*map(col, carried), (col("i32") * 3).alias("m")))


STEPS = steps(SCHEMA.names)
EXTREMES: tuple[RunStep, ...] = (Project((*map(col, ("f64", "f32", "i64", "u64")), (col("f64") * -1.0).alias("n"))),)
KEYS = [("m",), ("i8", "u64", "b"), ("f32", "ts", "day", "took", "at")]


@cache
def spreading(keys: tuple[str, ...], steps: tuple[RunStep, ...] = STEPS) -> Looped:
    return Looped(steps, SCHEMA, keys, Spread(3, 128))


def check(loop: Looped, given_: pa.RecordBatch) -> None:
    plain = loop.plain(given_)
    expected = [hash_partition(each, loop.fused.run.keys, 3, 128) for each in plain]
    assert list(map(spelt, loop(given_).parts)) == list(map(spelt, expected))
    assert not loop.fell_back or not given_.num_rows
    if loop.emitted.counts:
        assert list(loop.emitted.counts[0]) == loop.plain.rows


@given(seed=st.integers(0, 2**32))
def test_parts_are_those_of_hash_partition(seed: int) -> None:
    check(spreading(("m",), steps(CARRIED)), batch(SCHEMA, seed, wild=False))


@pytest.mark.soak  # each takes seconds to compile
@pytest.mark.parametrize("keys", KEYS, ids="-".join)
@given(seed=st.integers(0, 2**32))
def test_parts_with_every_column_are_those_of_hash_partition(keys: tuple[str, ...], seed: int) -> None:
    check(spreading(keys), batch(SCHEMA, seed, wild=False))


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 4))
def test_extreme_keys_are_spread_the_same(seed: int, rows: int) -> None:
    check(spreading(("f64", "i64", "u64", "n", "f32"), EXTREMES), batch(SCHEMA, seed, wild=True, rows=rows))


def test_a_run_is_not_spread_by_what_is_no_word() -> None:
    assert fuses(Run(SCHEMA, STEPS, ("i64",)))
    for key in ("s", "k", "dec"):
        assert not fuses(Run(SCHEMA, STEPS, ("i64", key)))
