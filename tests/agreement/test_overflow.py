"""A sum that leaves its room raises, naming key and column, wherever it happens: in a fold, before the shuffle, where
records merge, in windows, and behind a restore. What comes out instead is exact; nothing ever wraps."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.faults import Faults
from tests.agreement.data import cells, typed
from tests.seeds import each_once, each_once_with_seeds

_LEAST, _GREATEST = -(2**63), 2**63 - 1
_DIGITS = 10**38 - 1
OVER = {
    "up": (pa.int64(), [_GREATEST, 1]),
    "down": (pa.int64(), [_LEAST, -1]),
    "twice the least": (pa.int64(), [_LEAST, _LEAST]),
    "far": (pa.int64(), [_GREATEST] * 5),
    "back to where it began": (pa.int64(), [2**62] * 4),
    "unsigned": (pa.uint64(), [2**64 - 1, 1]),
    "unsigned, back to zero": (pa.uint64(), [2**63, 2**63]),
    "duration": (pa.duration("us"), [_GREATEST, 1]),
    "decimal": (pa.decimal128(38, 0), [_DIGITS, 1]),
    "decimals": (pa.decimal128(38, 2), [Decimal(f"-{'9' * 36}.99")] * 4),
}
JUST = {
    "greatest": (pa.int64(), [_GREATEST - 3, 1, 2]),
    "least": (pa.int64(), [_LEAST + 3, -1, -2]),
    "all of it": (pa.int64(), [_LEAST, _GREATEST]),
    "unsigned": (pa.uint64(), [2**64 - 4, 1, 2]),
    "decimal": (pa.decimal128(38, 0), [_DIGITS - 3, 1, 2]),
}
CUTS = ["per key", "per window"]
RUNNERS: dict[str, Any] = {
    "in one task": {"parallelism": 1},
    "behind a shuffle": {"parallelism": 2},
    "through crashes": {"parallelism": 2, "crashes": 2},
}


def rows(values: list[Any], type_: pa.DataType) -> pa.Table:
    """The values as those of the key ``big``, spread over rows of other keys."""
    spread = [
        (key, value) for value in values for key, value in [("big", value), ("small", 1), ("big", None), (None, 0)]
    ]
    keys, numbers = zip(*spread, strict=True)
    values = [Decimal(n) if pa.types.is_decimal(type_) and n is not None else n for n in numbers]
    times = pa.array(range(-len(keys), 0), pa.int64()).cast(pa.timestamp("ms"))
    return pa.table({"k": pa.array(keys, pa.string()), "v": typed(values, type_), "at": times})


def pipeline(table: pa.Table, cut: str) -> flow.Pipeline:
    with flow.Pipeline("sums") as p:
        source = op.from_arrow(table, splits=3, batch_rows=2)
        keyed = p.source(source, name="rows").with_watermark("at", delay="1h").key_by("k")
        groups = keyed.window(op.tumbling("1h")) if cut == "per window" else keyed
        groups.agg(col("v").sum().alias("total"), name="sums").sink(op.collect(), name="out")
    return p


def summed(table: pa.Table, cut: str, crashes: int = 0, parallelism: int = 1) -> Counter[Any]:
    """The sums that come out."""
    p = pipeline(table, cut)
    if crashes:
        runner = flow.SimulatedRunner(seed=parallelism, faults=Faults(crashes=crashes))
        checkpoint = flow.Checkpointing(flow.MemoryStore(), every="1ms")
        out = p.run(runner, parallelism=parallelism, checkpoint=checkpoint).table("out")
    else:
        out = p.run(parallelism=parallelism, timeout="60s").table("out")
    return Counter(zip(out["k"].to_pylist(), cells(out["total"]), strict=True))


def fold(runner: str, cut: str, request: pytest.FixtureRequest) -> None:
    """Fold each batch, if the plan folds any: a key's rows that move nowhere are not."""
    if (runner, cut) != ("in one task", "per key"):
        request.getfixturevalue("folded")


@pytest.mark.parametrize(("case", "runner", "cut"), each_once(list(OVER), list(RUNNERS), CUTS))
def test_a_sum_that_does_not_fit_raises_and_says_which(
    case: str, runner: str, cut: str, request: pytest.FixtureRequest
) -> None:
    fold(runner, cut, request)
    type_, values = OVER[case]
    with pytest.raises(OverflowError, match=r"sums.*: the sum 'total' of key \{'k': 'big'\} does not fit into"):
        summed(rows(values, type_), cut, **RUNNERS[runner])


@pytest.mark.parametrize(("case", "runner", "cut"), each_once(list(JUST), list(RUNNERS), CUTS))
def test_a_sum_that_just_fits_is_exact(case: str, runner: str, cut: str, request: pytest.FixtureRequest) -> None:
    fold(runner, cut, request)
    type_, values = JUST[case]
    expected = Counter({("big", sum(values)): 1, ("small", len(values)): 1, (None, 0): 1})
    assert summed(rows(values, type_), cut, **RUNNERS[runner]) == expected


@pytest.mark.parametrize(("seed", "type_"), each_once_with_seeds(12, [pa.int64(), pa.uint64()]))
def test_a_sum_near_the_edge_is_exact_or_raises(seed: int, type_: pa.DataType, request: pytest.FixtureRequest) -> None:
    draw = random.Random(seed)
    low, high = (_LEAST, _GREATEST) if type_ == pa.int64() else (0, 2**64 - 1)
    pool = [low, high, high // 2, high // 3, low // 2, low // 3, 1, 0]
    values = [draw.choice(pool) for _ in range(draw.randrange(2, 6))]
    exact, cut, parallelism = sum(values), draw.choice(CUTS), 1 + seed % 3
    fold("in one task" if parallelism == 1 else "behind a shuffle", cut, request)
    try:
        found = summed(rows(values, type_), cut, parallelism=parallelism)
    except OverflowError:
        assert sum(v for v in values if v > 0) > high or sum(v for v in values if v < 0) < low, values
    else:
        assert found["big", exact] == 1, values
