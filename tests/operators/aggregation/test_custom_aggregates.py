"""Aggregates of one's own: compiled when made, folded, merged, restored, and refused with a reason."""

from __future__ import annotations

import datetime as dt
import linecache
import math
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import operators as op
from dataflow.errors import ConfigurationError, SchemaMismatch
from dataflow.expressions import Aggregation, col
from dataflow.expressions.custom import AggregateKernel
from operators.aggregation.custom_aggregates import CustomAggregate
from operators.aggregation.records import Records
from operators.steps.custom import compiled
from tests.operators.operating import records_table, restore_records
from tests.seeds import part_of_the_examples

ONE = np.zeros(1, np.int32)


def add_square(state: Any, value: Any) -> None:
    state[0] += value * value
    state[1] += 1


def join(state: Any, other: Any) -> None:
    state[0] += other[0]
    state[1] += other[1]


def root_mean(state: Any) -> Any:
    return math.sqrt(state[0] / state[1])


@cache
def rms() -> Any:
    """Compiled where it is asked for first: collecting tests should not take seconds."""
    return op.aggregate_kernel("rms", init=(0.0, 0.0), step=add_square, merge=join, finish=root_mean)


def remember_parity(state: Any, value: Any) -> None:
    state[0] ^= value & 1


@cache
def parity() -> Any:
    types = {"takes": pa.int64(), "gives": pa.bool_()}
    return op.aggregate_kernel("odd", init=(0,), step=remember_parity, finish=lambda state: state[0] == 1, **types)


def folded(aggregation: Aggregation, values: list[Any], type_: pa.DataType) -> Records:
    batch = pa.record_batch({"x": pa.array(values, type_)})
    found = Records([aggregation], batch.schema, "test")
    found.fold(batch, np.zeros(len(values), np.int32), 1)
    return found


def value_of(found: Records) -> Any:
    return found.read(ONE)[0].to_pylist()[0]


NUMBERS = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=20)


def by_hand(values: list[float | None]) -> Any:
    squares = [value * value for value in values if value is not None]
    return pytest.approx(math.sqrt(math.fsum(squares) / len(squares))) if squares else None


@part_of_the_examples(5)
@given(NUMBERS, NUMBERS)
def test_it_folds_merges_and_restores(some: list[float | None], more: list[float | None]) -> None:
    one, other = (folded(rms()("x"), values, pa.float64()) for values in (some, more))
    assert value_of(one) == by_hand(some)
    restored = Records([rms()("x")], pa.schema({"x": pa.float64()}), "test")
    restore_records(restored, records_table(one, 1))
    restored.merge(other.partials(ONE), ONE, 1)
    assert value_of(restored) == by_hand(some + more)


def test_integers_stay_integers_and_results_have_their_type() -> None:
    assert value_of(folded(parity()("x"), [1, 2, None, 4], pa.int8())) is True
    assert value_of(folded(parity()("x"), [dt.date(1970, 1, 3)], pa.date32())) is False
    assert value_of(folded(parity()("x"), [None], pa.int64())) is None


def test_without_a_merge_records_stay_where_they_are() -> None:
    assert folded(rms()("x"), [], pa.float64()).mergeable
    assert not folded(parity()("x"), [], pa.int64()).mergeable


def test_an_initial_state_other_than_zero_is_that_of_every_key() -> None:
    def keep_least(state: Any, value: Any) -> None:
        state[0] = min(state[0], value)

    least = op.aggregate_kernel("least", init=(math.inf,), step=keep_least, finish=lambda state: state[0])
    assert value_of(folded(least(col("x") * 2), [3, 2], pa.int64())) == 4.0


def test_division_by_zero_is_that_of_floats() -> None:
    inverse = op.aggregate_kernel("inverse", init=(0.0,), step=join_value, finish=lambda state: 1.0 / state[0])
    assert value_of(folded(inverse("x"), [0.0], pa.float64())) == math.inf


def join_value(state: Any, value: Any) -> None:
    state[0] += value


def wrong_step(state: Any, value: Any) -> None:
    state[0] += value.upper()


def root_of_both(state: Any, value: Any) -> Any:
    return state[0] + value


def wrong_finish(state: Any) -> Any:
    return (state[0],)


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        (
            {"step": wrong_step},
            r"step does not compile: Unknown attribute 'upper' of type float64.*state: float64\[:\]",
        ),
        ({"step": lambda state: None}, "step does not compile: .*function takes 1 arguments"),
        ({"step": root_of_both}, "step does not compile: it returns float64, but must change the state in place"),
        ({"finish": wrong_finish}, r"finish does not compile: it returns UniTuple.*, expected float64"),
        ({"merge": wrong_step}, "merge does not compile: Unknown attribute 'upper'"),
        ({"gives": pa.int64()}, "finish does not compile: it returns float64, expected int64"),
        ({"init": ()}, "init must be 1 to 32"),
        ({"init": (True,)}, "init must be 1 to 32"),
        ({"takes": pa.string()}, r"takes must be pa.float64\(\) or pa.int64\(\), got string"),
        ({"gives": pa.string()}, "gives must be float64, int64, bool, a date or a time, got string"),
        ({"name": "two words"}, "'two words'"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else value,
)
def test_mistakes_show_up_when_it_is_made(functions: dict[str, Any], message: str) -> None:
    right = {"name": "mine", "init": (0.0, 0.0), "step": add_square, "finish": root_mean}
    with pytest.raises(ConfigurationError, match=message) as caught:
        op.aggregate_kernel(**{**right, **functions})
    assert len(str(caught.value)) < 500


def test_types_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(SchemaMismatch, match="rms takes values that become double, but col"):
        rms()("x").dtype(pa.schema({"x": pa.string()}))
    with pytest.raises(SchemaMismatch, match="odd takes"):
        parity()("x").dtype(pa.schema({"x": pa.float32()}))


def remade(**changes: Any) -> CustomAggregate:
    """``rms``, or something like it; not compiled, for a fingerprint needs no loop."""
    right = {"name": "rms", "init": (0.0, 0.0), "step": add_square, "merge": join, "finish": root_mean}
    types = {"takes": pa.float64(), "gives": pa.float64()}
    return CustomAggregate(AggregateKernel(**{**right, **types, **changes}))


def test_kernels_that_have_a_function_in_common_have_its_loop_in_common() -> None:
    mine, other = compiled(rms().kernel), compiled(remade(name="other", init=(1.0, 1.0)).kernel)
    assert (mine.fold, mine.merge, mine.finish) == (other.fold, other.merge, other.finish)
    whole = compiled(remade(name="whole", takes=pa.int64()).kernel)
    assert whole.fold is not mine.fold
    assert whole.finish is mine.finish


def test_the_fingerprint_tells_kernels_apart_and_is_the_same_in_another_process() -> None:
    assert remade()("x").equals(rms()("x"))
    for changes in ({"finish": join_value_of}, {"init": (0.0, 1.0)}, {"name": "other"}, {"merge": None}):
        assert not remade(**changes)("x").equals(rms()("x"))
    assert str(rms()("x")) == "col('x').rms:83359a2fb421()"


def join_value_of(state: Any) -> Any:
    return state[0]


@pytest.mark.parametrize("program", [None, "def step(state, value):\n    pass\n"])
def test_functions_without_a_source_have_a_fingerprint_that_stays(
    program: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program is not None:  # as Python 3.13 does for the program of python -c
        lines = program.splitlines(keepends=True)
        monkeypatch.setitem(linecache.cache, "<string>", (len(program), None, lines, "<string>"))

    def made(text: str) -> str:
        functions: dict[str, Any] = {}
        exec(f"def step(state, value):\n    state[0] += {text}\n", functions)
        return remade(step=functions["step"]).kernel.fingerprint

    assert made("value") == made("value")
    assert made("value") != made("value * 2")
    assert made("(lambda v: v * 3)(value)") == made("(lambda v: v * 3)(value)")
