"""Rows of a side of a join by key, beside a dictionary."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from operators.joins.arrived_rows import ArrivedRows, KeyNumbers
from operators.joins.result import JoinRows
from tests.seeds import seeds

KEYS, ROWS = pa.schema({"k": pa.int64(), "s": pa.string()}), pa.schema({"x": pa.int64()})


def _keys(numbers: list[int]) -> list[pa.Array]:
    return [pa.array(numbers), pa.array([str(number % 3) for number in numbers])]


def _found(side: ArrivedRows, numbers: list[int]) -> list[list[int]]:
    slots = side.find(_keys(numbers))
    offsets, rows = side.rows(slots)
    values = side.read(rows)["x"].to_pylist()
    assert side.most(slots).tolist() == side.net(slots).tolist() == np.diff(offsets).tolist()
    at = np.concatenate([at for at, _ in side.pairs(slots)])
    rows = np.concatenate([rows for _, rows in side.pairs(slots)])
    assert at.tolist() == np.repeat(np.arange(len(slots)), np.diff(offsets)).tolist()
    assert side.read(rows)["x"].to_pylist() == values
    return [sorted(values[start:stop]) for start, stop in itertools.pairwise(offsets)]


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("seed", seeds(2, 40))
def test_each_key_has_its_rows(seed: int, is_shared: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(seed)
    shared = KeyNumbers(KEYS) if is_shared else None
    sides = [ArrivedRows(KEYS, ROWS, shared) for _ in range(2)]
    expected: list[dict[int, list[int]]] = [defaultdict(list), defaultdict(list)]
    for _ in range(30):
        port = int(rng.integers(2))
        numbers = rng.integers(0, rng.choice([5, 3000]), rng.integers(1, 400)).tolist()
        keys = _keys(numbers)
        if shared is not None:
            shared.add(keys)
        sides[1 - port].find(keys)  # as a join does before it adds them
        values = rng.integers(0, 1000, len(numbers)).tolist()
        sides[port].add(JoinRows(keys, pa.record_batch({"x": values}, ROWS), np.ones(len(values), np.int64)))
        for number, value in zip(numbers, values, strict=True):
            expected[port][number].append(value)
    asked = rng.integers(0, 3100, 500).tolist()
    for side, rows in zip(sides, expected, strict=True):
        assert _found(side, asked) == [sorted(rows.get(number, [])) for number in asked]
        assert sorted(side.keys_of(side.slots)[0].to_pylist()) == sorted(rows)
        restored = ArrivedRows(KEYS, ROWS)
        restored.state.restore([{"rows": side.state.freeze(1, None)["rows"].read_all()}])
        restored.restored()
        assert _found(restored, asked) == _found(side, asked)


def test_a_null_key_has_no_rows() -> None:
    side = ArrivedRows(KEYS, ROWS)
    side.add(JoinRows(_keys([1]), pa.record_batch({"x": [5]}), np.ones(1, np.int64)))
    assert side.find([pa.array([None, 1], pa.int64()), pa.array(["1", "1"])]).tolist() == [-1, 0]
