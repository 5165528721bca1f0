"""The rows of sessions: as they come out, and as signed changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.state.arrays import Numbers
from operators.aggregation.shown import differ
from operators.stateful.time_units import TimeUnit
from operators.windows.session_cells import Cells, Overflow
from operators.windows.session_chains import Sessions

__all__ = ["session_columns", "signed_columns"]


def session_columns(
    cells: Cells, sessions: Sessions, keys: int, unit: TimeUnit, kind: pa.DataType, overflow: Overflow
) -> list[pa.Array]:
    """Return the columns of a row for each session: the first ``keys`` key columns, the edges, the aggregates.

    ``unit`` is that of the times of cells, ``kind`` the type of the edges.
    """
    starts, ends = cells.edges(sessions)
    bounds = [unit.edges(starts, kind), unit.edges(ends, kind)]
    return [*cells.keys(sessions)[:keys], *bounds, *cells.read(sessions, overflow)]


def signed_columns(
    old: Sequence[pa.Array] | None, groups: Numbers, new: Sequence[pa.Array] | None, keys: int
) -> tuple[list[pa.Array], npt.NDArray[np.int8]]:
    """Return rows that are taken back and added, and their weights; rows taken back come before what replaces them.

    Args:
        old: the columns of rows to take back; None: there are none.
        groups: the row of ``new`` that replaces each of them; -1: none does.
        new: the columns of rows to add; None: there are none. If one equals the only row that it replaces, neither is
            returned.
        keys: the number of columns, the first ones, that are equal in both.

    >>> a, b = pa.array([1, 2, 3]), pa.array([2, 9])
    >>> columns, weights = signed_columns([a], np.array([-1, 0, 1]), [b], 0)
    >>> columns[0].to_pylist(), weights.tolist()
    ([3, 9, 1], [-1, 1, -1])
    """
    columns = old or new
    assert columns, "there are no rows"
    empty = [column[:0] for column in columns]
    old, new = old or empty, new or empty
    taken, added = len(groups), len(new[-1])
    same = np.zeros(taken + added, np.bool_)
    single = np.flatnonzero(groups >= 0)
    single = single[np.bincount(groups[single], minlength=added)[groups[single]] == 1]
    if len(single):
        before = [column.take(to_array(single)) for column in old[keys:]]
        after = [column.take(to_array(groups[single])) for column in new[keys:]]
        equal = single[~differ(before, after)]
        same[equal] = same[taken + groups[equal]] = True
    weights = np.repeat(np.array([-1, 1], np.int8), [taken, added])
    places = np.concatenate([np.where(groups < 0, added, groups), np.arange(added)])
    order = np.argsort(2 * places + (weights > 0), kind="stable")
    order = order[~same[order]]
    rows = to_array(order)
    return [pa.concat_arrays([a, b]).take(rows) for a, b in zip(old, new, strict=True)], weights[order]
