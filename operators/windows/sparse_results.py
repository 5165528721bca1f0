"""Results of many windows with few records each, merged for all of the windows together.

With two stacks for each key (``slides``) a result costs two merges, however much windows overlap, but each window costs
a number of calls. If windows have few keys, the calls cost much more than the merges. So ``SparseResults`` merges each
record into each of its windows, and makes many windows in one pass. A window then costs as many merges as its slices
have records, which ``pays`` limits, so a window costs at most what the calls would.

Records of a key are merged in the order of time, whatever the order in which their rows came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.contracts.windows import Sliced
from dataflow.state.arrays import Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from operators.aggregation.records import Records, SumOverflow
from operators.stateful.complete_windows import CompleteWindows
from operators.windows.panes import Pane

__all__ = ["SparseResults", "pays"]

_MOST = 2_048
"""The most merges for each window, on average, for which one pass costs less than the calls of each window."""
_PANE = 256
"""The merges that cost as much as to read one pane."""
_MERGES = 65_536
"""The most merges of a pass over several windows, so it has at most as many results."""
_WINDOWS = 8_192
"""The most windows of a pass."""

Places = npt.NDArray[np.int64]


def pays(panes: Sequence[Pane], windows: CompleteWindows) -> bool:
    """Return whether to merge each record of ``panes``, which hold ``windows``, into each of its windows."""
    merges = sum([len(pane) for pane in panes]) * windows.overlap
    return merges + _PANE * len(panes) <= _MOST * len(windows)


class SparseResults:
    """The records of the slices ``first`` to ``stop`` - 1 of ``panes``, to make results of.

    Args:
        panes: panes in order of time.
        first: the first slice.
        stop: the slice after the last.
        keys: the key columns of the state.
        records: empty records, which can be merged.
        overflow: makes the error for a sum that overflows, from it and its key.
    """

    def __init__(
        self,
        panes: Sequence[Pane],
        first: int,
        stop: int,
        keys: pa.Schema,
        records: Records,
        overflow: Callable[[SumOverflow, list[pa.Array]], OverflowError],
    ) -> None:
        self._index = KeyIndex(keys)
        self._records = records
        self._overflow = overflow
        slices, owners, rows = [np.empty(0, np.int64)], [np.empty(0, np.int32)], []
        for pane in panes:
            columns, numbers, slots = pane.sorted_within(first, stop - 1)
            slices.append(numbers)
            owners.append(self._index.slots(columns).copy())
            rows.append(pane.records.copied(slots))
        self._slices, self._owners = np.concatenate(slices), np.concatenate(owners)
        self._rows = np.concatenate(rows) if rows else np.empty((0, len(records.template)), np.int64)

    def keys(self, slots: Slots) -> list[pa.Array]:
        """Return the key columns of ``slots``."""
        return self._index.keys(slots)

    def results(self, window: Sliced, windows: CompleteWindows) -> Iterator[tuple[Slots, Numbers, list[pa.Array]]]:
        """Yield the results of ``windows``, by window: the slots of keys, the numbers of windows, the aggregates."""
        for start in range(0, len(windows), _WINDOWS):
            numbers = windows.part(start, start + _WINDOWS)
            firsts, stops = window.covered(numbers)
            begins = np.searchsorted(self._slices, firsts)
            counts = np.searchsorted(self._slices, stops) - begins
            totals = np.cumsum(counts)
            at = 0
            while at < len(numbers):
                most = int(totals[at] - counts[at]) + _MERGES
                until = max(at + 1, int(np.searchsorted(totals, most, side="right")))
                yield self._merged(numbers[at:until], begins[at:until], counts[at:until])
                at = until

    def _merged(self, numbers: Numbers, begins: Places, counts: Places) -> tuple[Slots, Numbers, list[pa.Array]]:
        """Return the results of windows; the records of window i are ``counts[i]`` from ``begins[i]`` on."""
        of = np.repeat(np.arange(len(numbers)), counts)
        merged = np.arange(len(of)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        known = len(self._index)
        groups, places = np.unique(of * known + self._owners[merged], return_inverse=True)
        results = np.tile(self._records.template, (len(groups), 1))
        try:
            self._records.merge_rows(results, places.astype(np.int32), self._rows[merged])
        except SumOverflow as error:
            owner = self._owners[merged[error.row : error.row + 1]]
            raise self._overflow(error, self._index.keys(owner)) from error
        return (groups % known).astype(np.int32), numbers[groups // known], self._records.read_rows(results)
