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
from dataflow.state.arrays import Numbers
from dataflow.state.dictionaries import decoded
from dataflow.state.index import Slots
from dataflow.state.order_words import order_columns
from dataflow.state.partition import order_by_target

__all__ = ["KERNELS", "Ranked", "order_words", "rank_rows"]

KERNELS = ("operators.kernels.ranks", "dataflow.state.kernels.partition")
"""The modules with the kernels that ``rank_rows`` calls."""
_SELECTED = 64
"""The most rows that are selected from a large group by insertion, and not by sorting it."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Chosen rows, group by group, by rank: the number of each, and its rank from 1 on."""

    rows: Slots
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
    from operators.kernels.ranks import rank_groups

    count = len(groups)
    order, offsets = order_by_target(groups.astype(np.int32, copy=False), int(groups.max()) + 1 if count else 0)
    columns = np.stack(words, axis=1) if len(words) else np.empty((count, 0), np.int64)
    most = int(np.diff(offsets).max()) if count else 0
    rows, scratch = np.empty(most, np.int32), np.empty(most, np.int32)
    chosen, ranks = np.empty(count, np.int32), np.empty(count, np.int64)
    total = rank_groups(
        order, offsets, np.ascontiguousarray(columns), n, _SELECTED, int(ties == "all"), rows, scratch, chosen, ranks
    )
    return Ranked(chosen[:total], ranks[:total])


def _text_ranks(column: pa.Array) -> Numbers:
    """Return the rank of each text among those of the column, by its bytes; of nulls 0."""
    encoded = column.dictionary_encode()
    texts = encoded.dictionary
    ranks = np.empty(len(texts), np.int64)
    ranks[to_numbers(pc.sort_indices(texts)).astype(np.int64)] = np.arange(len(texts))
    if not len(texts):
        return np.zeros(len(column), np.int64)
    return ranks[to_numbers(encoded.indices.fill_null(0))]
