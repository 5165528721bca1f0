"""The order of rows as words, and the rank of each row among those of its group.

A word is an int64, and rows compare word by word. Nulls are last and all NaNs are one number, the greatest, so NaN is
first in descending order. The words of text are codes of a batch: they compare with those of the same batch only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_numbers
from dataflow.planning.chosen_row_specs import Ties
from dataflow.state.dictionaries import decoded
from dataflow.state.order_words import order_columns
from operators.aggregation.window_times import Numbers

__all__ = ["Ranked", "order_words", "rank_rows"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chosen rows, group by group, by rank: the number of each, and its rank from 1 on."""

    rows: Numbers
    ranks: Numbers


def order_words(columns: Sequence[pa.Array], descending: Sequence[bool]) -> list[Numbers]:
    """Return words by which rows are sorted in ascending order, the most important one first.

    >>> words = order_words([pa.array([1, None, 3])], [True])
    >>> np.lexsort(words[::-1]).tolist()
    [2, 0, 1]
    """
    words: list[Numbers] = []
    for column, is_descending in zip(columns, descending, strict=True):
        column = decoded(column)
        (order,) = order_columns([column.type])
        own = [_text_ranks(column)] if order.is_text else order.words(column)
        if is_descending:
            own = [~word for word in own]
        if column.null_count:
            missing = to_numbers(column.is_null())
            own = [missing.astype(np.int64), *[np.where(missing, 0, word) for word in own]]
        words += own
    return words


def rank_rows(groups: npt.NDArray[np.integer], words: Sequence[Numbers], n: int, ties: Ties) -> Ranked:
    """Return the rows with a rank up to ``n`` in their group.

    Args:
        groups: the number of the group of each row.
        words: the order of the rows, from ``order_words``.
        n: the greatest rank.
        ties: ``"arrival"``: rows with equal words have different ranks, in the order in which they are given;
            ``"all"``: they have the same rank, as of SQL's RANK.

    >>> groups, words = np.array([0, 0, 1, 0]), [np.array([5, 3, 9, 3])]
    >>> ranked = rank_rows(groups, words, 2, "arrival")
    >>> ranked.rows.tolist(), ranked.ranks.tolist()
    ([1, 3, 2], [1, 2, 1])
    >>> rank_rows(groups, words, 3, "all").ranks.tolist()
    [1, 1, 3, 1]
    """
    order = np.lexsort([*reversed(words), groups])
    sorted_groups = groups[order]
    places = np.arange(len(order))
    begins = np.ones(len(order), np.bool_)
    begins[1:] = sorted_groups[1:] != sorted_groups[:-1]
    first = np.maximum.accumulate(np.where(begins, places, 0))
    at = places
    if ties == "all":
        for word in words:
            own = word[order]
            begins[1:] |= own[1:] != own[:-1]
        at = np.maximum.accumulate(np.where(begins, places, 0))
    ranks = at - first + 1
    chosen = ranks <= n
    return Ranked(order[chosen], ranks[chosen])


def _text_ranks(column: pa.Array) -> Numbers:
    """Return the rank of each text among those of the column, by its bytes; of nulls 0."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary
    ranks = np.empty(len(texts), np.int64)
    ranks[to_numbers(pc.sort_indices(texts)).astype(np.int64)] = np.arange(len(texts))
    if not len(texts):
        return np.zeros(len(column), np.int64)
    return ranks[to_numbers(encoded.indices.fill_null(0))]
