"""Hashes are part of the checkpoint format: they depend on values only, and never change."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.errors import SchemaMismatch
from dataflow.state.hashing import hash_rows, key_group_range, key_groups, subtask_of

NAN = float("nan")


def test_hashes_are_the_same_in_every_release() -> None:
    columns = [pa.array([0, -1, None], pa.int64()), pa.array(["", "barrier", "a barrier flows"])]
    assert hash_rows(columns[:1]).tolist() == [16294208416658607535, 16490336266968443936, 7959387129361299745]
    assert hash_rows(columns[1:]).tolist() == FROZEN_STRINGS
    assert hash_rows(columns).tolist() == FROZEN_PAIRS


FROZEN_STRINGS = [16294208416658607535, 7638416308188060531, 2215856811609890131]
FROZEN_PAIRS = [7815802643411119495, 13307125310852923641, 8884165422923455727]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, -2, None], pa.int8()), pa.array([1, -2, None], pa.int64())),
        (pa.array([1.5, NAN, -0.0], pa.float32()), pa.array([1.5, -NAN, 0.0], pa.float64())),
        (pa.array(["a", None, ""]), pa.array(["a", None, ""], pa.large_string())),
        (pa.array(["a", None, ""]), pa.array([b"a", None, b""], pa.binary())),
        (pa.array(["a", None, "a"]), pa.array(["a", None, "a"]).dictionary_encode()),
        (pa.array(["a", "a", "b"]).dictionary_encode(), pa.array(["b", "a", "a", "b"]).dictionary_encode().slice(1)),
        (pa.array([True, None, False]), pa.array([9, 1, None, 0]).slice(1)),
        (pa.array([None, None, None]), pa.array([None, None, None], pa.string())),
        (pa.array([Decimal("1.5"), None]), pa.array([Decimal("9.9"), Decimal("1.5"), None]).slice(1)),
        (pa.array([5, None], pa.timestamp("us", "UTC")), pa.array([5, None])),
        (pa.array(["long enough"] * 2), pa.array(["x", "long enough", "long enough"]).slice(1)),
    ],
)
def test_equal_values_have_equal_hashes_in_every_layout(one: pa.Array, other: pa.Array) -> None:
    assert hash_rows([one]).tolist() == hash_rows([other]).tolist()


def test_a_null_inside_a_dictionary_hashes_like_a_null_row() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    hashes = hash_rows([array])
    assert hashes[1] == hashes[2] == hash_rows([pa.nulls(1)])[0]


@given(st.lists(st.binary(max_size=40), max_size=20), st.integers(0, 5))
def test_the_hash_of_bytes_does_not_depend_on_what_surrounds_them(values: list[bytes], cut: int) -> None:
    whole = hash_rows([pa.array(values, pa.binary())])
    alone = [hash_rows([pa.array([value], pa.binary())])[0] for value in values]
    assert whole.tolist() == alone
    assert hash_rows([pa.array(values, pa.binary()).slice(cut)]).tolist() == alone[cut:]
    assert len(set(alone)) == len(set(values))


def test_every_column_counts() -> None:
    hashes = hash_rows([pa.array([1, 1]), pa.array(["a", "a"]), pa.array([2, 3])])
    assert hashes[0] != hashes[1]


def test_the_order_of_columns_counts() -> None:
    one, other = pa.array([1]), pa.array([2])
    assert hash_rows([one, other])[0] != hash_rows([other, one])[0]


def test_a_nested_column_cannot_be_hashed() -> None:
    with pytest.raises(SchemaMismatch, match="list"):
        hash_rows([pa.array([[1]])])


@given(st.integers(1, 300), st.integers(0, 300))
def test_key_group_ranges_cover_every_group_once(parallelism: int, more: int) -> None:
    groups = parallelism + more
    owners = [s for s in range(parallelism) for _ in key_group_range(s, parallelism, groups)]
    assert owners == [subtask_of(group, parallelism, groups) for group in range(groups)]


def test_key_groups_are_spread_evenly() -> None:
    groups = key_groups(hash_rows([pa.array(np.arange(128_000))]), 128)
    counts = np.bincount(groups, minlength=128)
    assert len(counts) == 128
    assert counts.min() > 850
    assert counts.max() < 1150


@pytest.mark.parametrize("arguments", [(0, 129, 128), (2, 2, 128), (-1, 2, 128)])
def test_impossible_ranges_are_refused(arguments: Any) -> None:
    with pytest.raises(ValueError, match="parallelism"):
        key_group_range(*arguments)
