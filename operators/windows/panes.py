"""Panes: the state of windowed aggregates, a few windows each, created as rows come and dropped as a whole.

Windows are numbered here by whatever ``operators.stateful.window_numbers`` numbers: slices, or ends of windows.

A pane covers a range of windows. If rows are dense, it covers one, and its index holds keys alone. If a batch spreads
over many windows, near or far apart, or many panes are live, one pane covers many, and the window's number is part of
the key. In both cases nothing is ever deleted from a hash table, and a batch's cost depends on its rows, not on its
windows.

Invariant: the ranges of panes do not overlap; a row's window is in the range of the pane that holds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sortedcontainers import SortedDict

from dataflow.arrow_values import to_array, to_numbers
from dataflow.expressions import Aggregation
from dataflow.state.arrays import GREATEST, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState
from dataflow.state.partition import gather_rows, order_by_target
from dataflow.state.parts import marked, number_field
from operators.aggregation.partials import merge_column
from operators.aggregation.records import Records
from operators.stateful.columns import WINDOW
from operators.stateful.window_numbers import Numbering

__all__ = ["Pane", "LivePanes"]

_SPREAD = 16
"""The approximate limit for the panes of one batch."""
_CROWD = 64
"""The number of live panes above which new ones cover more windows."""
_GAP = 64
"""The most typical gaps between two windows of a pane: a window far away must not keep a pane alive for long."""
_NOTHING = np.empty(0, np.int64)


class Pane:
    """The keys and records of the windows ``first`` .. ``stop`` - 1."""

    def __init__(
        self,
        first: int,
        stop: int,
        keys: pa.Schema,
        records: Records,
        expected: int,
    ) -> None:
        self.first = first
        self.stop = stop
        self.single = stop - first == 1
        self.records = records
        keys = keys if self.single else keys.append(pa.field(WINDOW, pa.int64()))
        self.state = KeyedState(keys, self.records, expected=expected)
        self._by_number = _NOTHING, _NOTHING  # the numbers of all slots in ascending order, and their slots

    def __len__(self) -> int:
        return self.state.live

    def slots(self, keys: Sequence[pa.Array], numbers: Numbers) -> Slots:
        """Return the slot of each row; valid until the next call."""
        return self.state.insert(list(keys) if self.single else [*keys, to_array(numbers)])[0]

    def keys(self, slots: Slots | range) -> tuple[list[pa.Array], Numbers]:
        """Return the key columns of ``slots``, and their windows."""
        columns = self.state.keys(slots)
        if self.single:
            return columns, np.full(len(slots), self.first, np.int64)
        return columns[:-1], to_numbers(columns[-1])

    def numbers(self) -> Numbers:
        """Return the windows that have rows, in ascending order."""
        if self.single:
            return np.array([self.first] if len(self) else [], np.int64)
        return np.unique(self._sorted()[0])

    def of(self, number: int) -> Slots | range:
        """Return the slots of one window."""
        if self.single:
            return range(len(self) if number == self.first else 0)
        numbers, slots = self._sorted()
        start, stop = np.searchsorted(numbers, [number, number + 1]).tolist()
        return slots[start:stop].astype(np.int32)

    def find(self, keys: Sequence[pa.Array], number: int | Numbers) -> Slots:
        """Return the slot of each of ``keys`` in its window, or in one for all; -1: it has none."""
        if self.single:
            return self.state.find(list(keys))
        return self.state.find([*keys, to_array(np.full(len(keys[0]), number, np.int64))])

    def _sorted(self) -> tuple[Numbers, Numbers]:
        """Return the windows of all slots in ascending order, and the slots. Slots are only ever added."""
        if len(self._by_number[0]) != len(self):
            numbers = self.keys(range(len(self)))[1]
            order = np.argsort(numbers, kind="stable")
            self._by_number = numbers[order], order
        return self._by_number

    def next_arrival(self) -> int:
        """Return a number that is greater than the arrival of all rows in the records."""
        return self.records.next_arrival(self.state.slots)

    def forget_touched(self) -> None:
        """Begin a new list of touched slots."""
        self.state.change(self.records.touched)
        self.records.forget_touched()

    def within(self, first: int, last: int) -> Slots | range:
        """Return the slots of the windows ``first`` .. ``last``."""
        everything = range(len(self))
        if first <= self.first and self.stop - 1 <= last:
            return everything
        if self.single:
            return range(0)
        numbers = self.keys(everything)[1]
        return np.flatnonzero((numbers >= first) & (numbers <= last)).astype(np.int32)

    def sorted_within(self, first: int, last: int) -> tuple[list[pa.Array], Numbers, Slots]:
        """Return the keys, the windows and the slots of the windows ``first`` .. ``last``, by window."""
        numbers, slots = self._sorted() if not self.single else (self.keys(range(len(self)))[1], np.arange(len(self)))
        start, stop = np.searchsorted(numbers, first), np.searchsorted(numbers, min(last, GREATEST), "right")
        chosen = slots[start:stop].astype(np.int32)
        return self.keys(chosen)[0], numbers[start:stop], chosen


class LivePanes:
    """The live panes, in order of time. ``keys`` has the key columns, ``schema`` the rows' columns.

    ``numbering`` says how windows are numbered, and whether records of several panes are merged.
    """

    def __init__(
        self,
        keys: pa.Schema,
        numbering: Numbering,
        aggregations: Sequence[Aggregation],
        schema: pa.Schema,
        where: str,
    ) -> None:
        self._keys = keys
        self._numbering = numbering
        self._records = Records(aggregations, schema, where, merged_by=merge_column(numbering))
        stored = KeyedState(keys.append(pa.field(WINDOW, pa.int64())), self._records).stored["keys"]
        self.owners = self._records.owners
        self._stored = stored.set(len(keys), number_field(WINDOW))
        for field in numbering.key_fields:  # numbers of windows, never null as a user's key may be
            self._stored = self._stored.set(keys.get_field_index(field.name), number_field(field.name))
        self._panes: SortedDict[int, Pane] = SortedDict()
        self._full = 0
        self._apart: deque[int] = deque(maxlen=15)  # distances of recent panes from the pane before, in windows

    @property
    def initial(self) -> Mapping[str, object]:
        """The values of stored columns of a window without rows, as far as they are not null."""
        return self._records.initial

    def __iter__(self) -> Iterator[Pane]:
        return iter(self._panes.values())

    def __len__(self) -> int:
        return len(self._panes)

    @property
    def entries(self) -> int:
        """The number of records, one for each key and window."""
        return sum([len(pane) for pane in self])

    def holding(self, number: int) -> Pane | None:
        """Return the pane whose range has the window ``number``; None: there is none."""
        place = self._panes.bisect_right(number) - 1
        if place < 0:
            return None
        pane: Pane = self._panes.peekitem(place)[1]
        return pane if number < pane.stop else None

    def between(self, first: int, last: int) -> Iterator[Pane]:
        """Yield the panes whose range has a window of ``first`` .. ``last``, in order of time."""
        pane = self.holding(first)
        if pane is not None and pane.first < first:
            yield pane
        for key in list(self._panes.irange(first, last)):
            yield self._panes[key]

    def present(self, first: int, last: int) -> list[int]:
        """Return those of the windows ``first`` .. ``last`` that have rows, in ascending order."""
        present: list[int] = []
        last = min(last, GREATEST)
        for pane in self.between(first, last):
            numbers = pane.numbers()
            present += numbers[np.searchsorted(numbers, first) : np.searchsorted(numbers, last, "right")].tolist()
        return present

    def holds_after(self, number: int) -> bool:
        """Return whether a pane's range has a window after ``number``."""
        return bool(self._panes) and self._panes.peekitem(-1)[1].stop - 1 > number

    def drop(self, complete: int) -> None:
        """Drop the panes whose windows are all at or below ``complete``."""
        while self._panes and self._panes.peekitem(0)[1].stop - 1 <= complete:
            self._panes.popitem(0)

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return a reader of what changed since checkpoint ``since`` (None: all), as ``KeyedState.freeze`` does.

        No key is ever deleted: the windows that a watermark completed are left out by the restore.
        """
        schema = marked(self._stored, base=since is None, keys=len(self._keys) + 1)
        readers = [(pane, pane.state.freeze(checkpoint, since)["keys"]) for pane in self]
        batches = (self._numbered(pane, batch, schema) for pane, reader in readers for batch in reader)
        return {"keys": pa.RecordBatchReader.from_batches(schema, batches)}

    def durable(self, checkpoint: int) -> None:
        """Take note that ``checkpoint`` exists."""
        for pane in self:
            pane.state.durable(checkpoint)

    @property
    def stored(self) -> Mapping[str, pa.Schema]:
        """The columns of a checkpoint: the key's, the window's number, those of the records, and ``/live``."""
        return {"keys": self._stored}

    def restore(self, parts: Sequence[Mapping[str, pa.Table]]) -> None:
        """Restore what ``freeze`` returned: a base, and the parts after it in order. There must be no pane yet.

        Raises: CheckpointDamaged for numbers that no window has.
        """
        assert not self._panes, f"restore needs an empty state; there are {len(self._panes)} panes"
        tables = [part["keys"] for part in parts]
        for table in tables:
            self._numbering.check(table.column(len(self._keys)))
        sorted_parts = [table.take(to_array(np.argsort(self._windows(table), kind="stable"))) for table in tables]
        numbers = [self._windows(part) for part in sorted_parts]
        panes = self._all_of(np.unique(np.concatenate([*numbers, np.empty(0, np.int64)])))
        for pane in panes:
            mine: list[Mapping[str, pa.Table]] = []
            for part, windows in zip(sorted_parts, numbers, strict=True):
                start, stop = np.searchsorted(windows, [pane.first, pane.stop]).tolist()
                rows = part.slice(start, stop - start)
                rows = rows.remove_column(len(self._keys)) if pane.single else rows
                mine.append({"keys": rows.cast(marked(rows.schema, base=not mine))})
            pane.state.restore(mine)

    def _windows(self, part: pa.Table) -> Numbers:
        return to_numbers(part.column(len(self._keys)))

    def _numbered(self, pane: Pane, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Return stored rows of a pane with their windows, whether or not its keys have them."""
        columns = batch.columns
        if pane.single:
            columns.insert(len(self._keys), to_array(np.full(batch.num_rows, pane.first, np.int64)))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def deal(
        self, rows: pa.RecordBatch, numbers: Numbers, low: int, high: int
    ) -> Iterator[tuple[Pane, pa.RecordBatch, Numbers]]:
        """Split ``rows``, at least one, by pane: yield each pane with its rows, in their order, and their windows.

        No window is below ``low`` or above ``high``.
        """
        pane = self.holding(low)
        if low == high and pane is None:
            (pane,) = self._all_of(np.array([low]))
        if pane is not None and high < pane.stop:
            yield pane, rows, numbers
            return
        # Panes before rows: _ordered creates all missing panes at once, while it sees how far apart their windows are.
        # One after the other, rows that come out of order would make a pane of one window each. The order is stable,
        # because first, last and to_list of a pane go by the order in which its rows arrived.
        order, panes, stops = self._ordered(numbers, low, high)
        rows, numbers = gather_rows(rows, order), numbers[order]
        start = 0
        for pane, stop in zip(panes, stops.tolist(), strict=True):
            yield pane, rows.slice(start, stop - start), numbers[start:stop]
            start = stop

    def _ordered(self, numbers: Numbers, low: int, high: int) -> tuple[Slots, list[Pane], Numbers]:
        """Return the places of ``numbers`` by pane, in their order, the panes, and where the places of each end."""
        from operators.kernels.windows import count_numbers, scatter_numbers

        if high - low > len(numbers):
            panes = self._all_of(np.unique(numbers))
            order, offsets = order_by_target(_places(panes, numbers), len(panes))
            return order, panes, offsets[1:]
        counts = np.zeros(high - low + 1, np.int64)
        count_numbers(numbers, low, counts)
        panes = self._all_of(np.flatnonzero(counts) + low)
        targets = _places(panes, np.arange(low, high + 1))
        stops = np.cumsum(np.bincount(np.maximum(targets, 0), counts, len(panes)).astype(np.int64))
        order = np.empty(len(numbers), np.int32)
        scatter_numbers(numbers, low, targets, np.append(0, stops[:-1]), order)
        return order, panes, stops

    def _all_of(self, present: Numbers) -> list[Pane]:
        """Return the panes of the windows ``present``, which are in ascending order; create missing panes."""
        live = list(self._panes.values())
        places = _places(live, present)  # -1: before all of them
        stops = np.array([pane.stop for pane in live] + [-GREATEST])
        is_held = present < stops[places]
        groups = self._groups(present[~is_held], len(present))
        new = [self._make(group) for group in reversed(groups)]  # reversed: each is limited by the next pane
        held = [live[place] for place in np.unique(places[is_held]).tolist()]
        return sorted([*held, *new], key=lambda pane: pane.first)

    def _groups(self, missing: Numbers, spread: int) -> list[Numbers]:
        """Split ``missing`` windows into groups, one for each new pane: not across a pane, nor over a wide gap."""
        if not len(missing):
            return []
        # A pane covers a range of windows, and ranges never overlap: a group spans no pane that exists. Nor may it
        # span a wide gap: a pane is dropped when its last window is complete, and one row from far in the future would
        # keep all windows of its group until then. Open: which gap is wide (_GAP) is a guess.
        between = np.searchsorted(list(self._panes.keys()), missing)
        gaps = np.diff(missing)
        cuts = np.flatnonzero((np.diff(between) != 0) | (gaps > _GAP * _usual(gaps))) + 1
        size = max(1, spread // _SPREAD)
        return [part[at : at + size] for part in np.split(missing, cuts) for at in range(0, len(part), size)]

    def _expected(self, *, single: bool) -> int:
        """Return the expected number of keys of the next pane, that of the fullest recent pane: it then grows less."""
        if not single:
            return 0
        self._full = max([len(pane) for pane in self._panes.values()[-3:] if pane.single], default=self._full)
        return self._full

    def _make(self, group: Numbers) -> Pane:
        """Create a pane for ``group``. If many panes are live, it covers more windows, by their typical distance."""
        first, stop = int(group[0]), int(group[-1]) + 1
        crowd = (len(self._panes) // _CROWD) ** 2
        if crowd > 1:
            stop = max(stop, first + crowd * _usual(np.array(self._apart, np.int64)))
        place = self._panes.bisect_right(first)
        if place > 0:
            self._apart.append(first - self._panes.peekitem(place - 1)[1].stop + 1)
        if place < len(self._panes):
            stop = min(stop, self._panes.peekitem(place)[0])
        before = self._panes.peekitem(place - 1)[1].stop if place > 0 else first
        assert before <= first < stop, (
            f"a pane of windows {first} to {stop - 1} would overlap the pane up to {before - 1}"
        )
        expected = self._expected(single=stop - first == 1)
        pane = Pane(first, stop, self._keys, self._records.another(), expected)
        self._panes[first] = pane
        return pane


def _usual(gaps: Numbers) -> int:
    """Return the median of ``gaps``, at least 1: a few windows far away do not count."""
    return max(1, int(np.median(gaps))) if len(gaps) else 1


def _places(panes: Sequence[Pane], numbers: Numbers) -> npt.NDArray[np.int32]:
    """Return the index of the pane that holds each of ``numbers``; arbitrary if none does. ``panes``: by time."""
    return (np.searchsorted([pane.first for pane in panes], numbers, side="right") - 1).astype(np.int32)
