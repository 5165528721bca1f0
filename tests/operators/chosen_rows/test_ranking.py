"""Ranks of rows in groups, against a sort of all rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dataflow.planning.chosen_row_specs import Ties
from operators.chosen_rows.ranking import order_words, rank_rows
from tests.seeds import seeds


@pytest.mark.parametrize("ties", ["arrival", "all"])
@pytest.mark.parametrize("seed", seeds(8, 1000))
def test_ranks_are_those_of_a_sort(seed: int, ties: Ties) -> None:
    rng = np.random.default_rng(seed)
    rows, n = int(rng.integers(0, 400)), int(rng.choice([1, 2, 5, 63, 64, 65, 1000]))
    groups = rng.integers(0, rng.integers(1, 9), rows)
    words = [rng.integers(-3, 4, rows) for _ in range(rng.integers(0, 3))]
    ranked = rank_rows(groups, words, n, ties)
    expected = []
    for group in np.unique(groups):
        own = [(*(int(word[row]) for word in words), row) for row in np.flatnonzero(groups == group).tolist()]
        own.sort()
        for at, row in enumerate(own):
            rank = at + 1 if ties == "arrival" else 1 + sum(other[:-1] < row[:-1] for other in own)
            if rank <= n:
                expected.append((row[-1], rank))
    assert list(zip(ranked.rows.tolist(), ranked.ranks.tolist(), strict=True)) == expected


def test_rows_that_come_in_the_worst_order_are_ranked() -> None:
    words = [np.arange(5000)[::-1].copy()]
    ranked = rank_rows(np.zeros(5000, np.int64), words, 50, "arrival")
    assert ranked.rows.tolist() == list(range(4999, 4949, -1))


def test_text_is_ordered_by_its_bytes_and_nulls_are_last_in_both_directions() -> None:
    column = pa.array(["ü", None, "ab", "a", ""])
    for descending, expected in ((False, [4, 3, 2, 0, 1]), (True, [0, 2, 3, 4, 1])):
        words = order_words([column], [descending])
        assert rank_rows(np.zeros(5, np.int64), words, 5, "arrival").rows.tolist() == expected
    numbers = order_words([pa.array([0, -(2**63), None, 2**63 - 1])], [True])
    assert rank_rows(np.zeros(4, np.int64), numbers, 4, "arrival").rows.tolist() == [3, 0, 1, 2]
    nulls = order_words([pa.nulls(2, pa.string())], [True])
    assert rank_rows(np.zeros(2, np.int64), nulls, 2, "arrival").rows.tolist() == [0, 1]
