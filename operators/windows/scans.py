"""Scans over records: the merge of all earlier, or of all later, records of a segment, for each record of it.

A window of length p that ends in block k, [k * p, (k + 1) * p), is the end of block k - 1 and the beginning of block k.
So its result is one merge of two: of the records of block k - 1 from the window's first row on (``later``), and of
those of block k up to its last row (``earlier``). Each record is merged three times in all, whatever the number of rows
in a window (M. van Herk 1992, "A fast algorithm for local minimum and maximum filters"; J. Gil, M. Werman 1993).

Both scans depend on the rows of the window alone, in the order of time and arrival. So a result is equal bit by bit
whenever and wherever it is computed again, also if it has sums of floats.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import Mask
from dataflow.state.copy_on_write import Rows
from dataflow.state.index import Slots
from operators.aggregation.records import Records, SumOverflow

__all__ = ["earlier", "joined", "later"]

Places = npt.NDArray[np.int64]


def earlier(records: Records, leaves: Rows, starts: Mask, seeds: Rows, seeded: Places) -> Rows:
    """Return for each record the merge of its segment up to it.

    Args:
        records: what they are records of.
        leaves: the records in order.
        starts: whether each record begins a segment.
        seeds: what segments begin with, instead of nothing.
        seeded: the first record of the segment of each seed.

    Raises: SumOverflow with the number of the record.
    """
    count = len(leaves)
    segment, ends = np.cumsum(starts) - 1, np.append(starts[1:], True)
    inner = 2 * count - int(starts.sum())
    # In memory, each leaf is followed by its result, into which it is merged, as is the result before it. Results that
    # end a segment are merged into nothing, so they come last.
    leaf_at = 2 * np.arange(count) - segment
    result_at = np.where(ends, inner + segment, leaf_at + 1)
    memory = np.empty((2 * count, leaves.shape[1]), np.int64)
    memory[leaf_at] = leaves
    memory[result_at] = records.template
    memory[result_at[seeded]] = seeds
    places, owners = np.empty(inner, np.int32), np.empty(inner, np.int64)
    places[leaf_at], owners[leaf_at] = result_at, np.arange(count)
    open_ = np.flatnonzero(~ends)
    places[result_at[open_]], owners[result_at[open_]] = result_at[open_ + 1], open_ + 1
    _merge(records, memory, places, owners)
    return memory[result_at]


def later(records: Records, leaves: Rows, starts: Mask) -> Rows:
    """Return for each record the merge of its segment from it on; the arguments are those of ``earlier``."""
    count = len(leaves)
    firsts = starts[::-1]  # in reverse, a segment ends with its first record
    segment = np.cumsum(np.append(True, firsts[:-1])) - 1
    inner = count - int(starts.sum())
    at = np.where(firsts, inner + segment, np.arange(count) - segment)
    memory = np.empty((count, leaves.shape[1]), np.int64)
    memory[at] = leaves[::-1]
    places, owners = np.empty(inner, np.int32), np.empty(inner, np.int64)
    open_ = np.flatnonzero(~firsts)
    places[at[open_]], owners[at[open_]] = at[open_ + 1], count - 2 - open_
    _merge(records, memory, places, owners)
    return memory[at][::-1]


def joined(records: Records, ends: Rows, has_end: Mask, beginnings: Rows) -> Rows:
    """Return the merge of ``ends[i]``, if there is one, and ``beginnings[i]``, for each i."""
    results = np.where(has_end[:, None], ends, records.template)
    places = np.arange(len(results), dtype=np.int32)
    records.merge_rows(results, places, beginnings)
    return results


def _merge(records: Records, memory: Rows, places: Slots, owners: Places) -> None:
    try:
        records.merge_rows(memory, places, memory[: len(places)])
    except SumOverflow as error:
        raise SumOverflow(int(owners[error.row]), error.column, error.room) from error
