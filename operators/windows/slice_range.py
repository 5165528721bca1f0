"""Merged records over a range of slices that moves forwards: the results of windows that are ranges of slices.

There are two ways, with the same results:

- ``few_slices.FewSlices`` merges the records of all slices anew for each range.
- ``slides.Slides`` keeps merged records, so that a result costs two merges, however many slices a range has.

Slices are merged in the order of time, whatever the order in which their rows came. Nothing here is stored: after a
restore the first range is made of the panes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import pyarrow as pa

from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex
from operators.aggregation.records import Records, SumOverflow
from operators.windows.panes import LivePanes

__all__ = ["SliceRange"]


class SliceRange(ABC):
    """The merged records of the keys of ``panes`` in a range of slices.

    Args:
        panes: the panes with the slices.
        keys: the key columns of the state.
        new_records: makes empty records, which can be merged.
        overflow: makes the error for a sum that overflows, from it and its key.
        only: the keys to merge, each once; None: all.
    """

    def __init__(
        self,
        panes: LivePanes,
        keys: pa.Schema,
        new_records: Callable[[], Records],
        overflow: Callable[[SumOverflow, list[pa.Array]], OverflowError],
        only: list[pa.Array] | None = None,
    ) -> None:
        self._panes = panes
        self._key_schema = keys
        self._new_records = new_records
        self._overflow = overflow
        self._only = only
        self._index = KeyIndex(keys)
        self.reset()

    @property
    @abstractmethod
    def stop(self) -> int | None:
        """The slice after the range; None: there is no range yet."""

    @abstractmethod
    def reset(self) -> None:
        """Forget everything: the next range is made of the panes."""

    @abstractmethod
    def note_changed(self, keys: list[pa.Array]) -> None:
        """Take note that the records of ``keys`` changed in slices before ``stop``."""

    @abstractmethod
    def move(self, first: int, stop: int) -> Slots:
        """Move the range to the slices ``first`` .. ``stop`` - 1, neither of which goes back.

        Returns: the slots of the keys with records in the range, in ascending order; valid until the next move.
        """

    @abstractmethod
    def read(self, slots: Slots) -> list[pa.Array]:
        """Return the aggregates of ``slots``, which are among those that ``move`` returned: a column each."""

    def keys(self, slots: Slots) -> list[pa.Array]:
        """Return the key columns of ``slots``."""
        return self._index.keys(slots)

    def _begin_index(self) -> None:
        """Begin to number keys: those of ``only`` first."""
        self._index = KeyIndex(self._key_schema)
        if self._only is not None:
            self._index.slots(self._only)

    def _merge(
        self, into: Records, places: Slots, known: int, records: Records, slots: Slots | range, keys: Slots
    ) -> None:
        """Merge the records of ``slots`` into those of ``places``, all below ``known``, which are of ``keys``."""
        if not len(slots):
            return
        try:
            into.merge_from(records, slots, places, known)
        except SumOverflow as error:
            raise self._overflow(error, self._index.keys(keys[error.row : error.row + 1])) from error
