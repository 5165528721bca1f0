"""Merged records over ranges of few slices: the records of all slices are merged for each range.

A result costs a merge for each slice of its window in which its key has rows. The records of a slice are mostly
adjacent, and are merged in one pass without a copy. So up to ``FEW`` slices this costs less than to keep merged records
of parts of the range, which is what ``slides`` does.

A key is looked up once for each slice in which it has rows. Keys that have no rows any more are forgotten when they are
more than half of all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from dataflow.state.index import Slots
from operators.windows.panes import Pane
from operators.windows.slice_range import SliceRange

__all__ = ["FEW", "FewSlices"]

FEW = 8
"""The most slices of a window for which this is used."""
_SPARE = 1_024
"""Keys without rows that are always kept."""


class FewSlices(SliceRange):
    """The merged records of the keys of panes in a range of few slices; see ``SliceRange``."""

    @property
    def stop(self) -> int | None:
        return self._stop

    def reset(self) -> None:
        self._stop: int | None = None
        self._merged = self._new_records()
        self._begin()

    def _begin(self) -> None:
        self._begin_index()
        self._present: Slots = np.empty(0, np.int32)
        self._of_slice: dict[int, tuple[Slots | range, Slots]] = {}  # the slots in the pane, and those of their keys

    def note_changed(self, keys: list[pa.Array]) -> None:
        """Do nothing: records are read anew for each range, and keys that are new in a pane are looked up then."""

    def move(self, first: int, stop: int) -> Slots:
        if self._only is None and len(self._index) > 2 * len(self._present) + _SPARE:
            self._begin()
        self._of_slice = {number: slots for number, slots in self._of_slice.items() if number >= first}
        parts = [self._slice(number) for number in self._panes.present(first, stop - 1)]
        self._merged.clear()
        known = len(self._index)
        for pane, slots, keys in parts:
            self._merge(self._merged, keys, known, pane.records, slots, keys)
        self._merged.sort_touched()
        self._present, self._stop = self._merged.touched.copy(), stop
        return self._present

    def read(self, slots: Slots) -> list[pa.Array]:
        return self._merged.read(slots)

    def _slice(self, number: int) -> tuple[Pane, Slots | range, Slots]:
        """Return the pane of a slice, the slots of its keys there, and their slots here."""
        pane = self._panes.holding(number)
        assert pane is not None, f"slice {number} has no pane"
        known = self._of_slice.get(number)
        if self._only is not None:
            slots, keys = self._found(pane, self._only, number) if known is None else known
        else:
            slots = pane.of(number)
            keys = self._entered(pane, slots, known)
        self._of_slice[number] = slots, keys
        return pane, slots, keys

    def _found(self, pane: Pane, columns: list[pa.Array], number: int) -> tuple[Slots, Slots]:
        slots = pane.find(columns, number)
        keys = np.flatnonzero(slots >= 0).astype(np.int32)
        return slots[keys], keys

    def _entered(self, pane: Pane, slots: Slots | range, known: tuple[Slots | range, Slots] | None) -> Slots:
        """Return the slots here of the keys of ``slots``, the first of which are ``known``: slots are only added."""
        before = np.empty(0, np.int32) if known is None else known[1]
        if len(before) == len(slots):
            return before
        return np.concatenate([before, self._index.slots(pane.keys(slots[len(before) :])[0])])
