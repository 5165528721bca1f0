"""Results of state by window, where each record is a result.

Panes may be many and small, if rows come late and in any order. So the results of many panes are read and emitted
together: what is done for each pane is to copy its records, or to read them if they cannot be copied. To read the
results of each pane by themselves, those that are taken back as well, took 1.17 times as long with 10 panes of 2,000
keys, and 1.30 times with 18 panes of 200 (nine pairs of runs in turns, CPU time).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array, to_numbers
from dataflow.state.arrays import Numbers
from dataflow.state.copy_on_write import Rows
from dataflow.state.index import Slots
from operators.aggregation.records import Records
from operators.stateful.changes import among, changes
from operators.stateful.chunks import CHUNK
from operators.stateful.window_numbers import Numbering
from operators.windows.emission import Part, Results
from operators.windows.panes import LivePanes, Pane

__all__ = ["SlotResults"]

_PANES = 32
"""The most panes of a part, because the engine waits for all of them."""
_NO_SLOTS: Slots = np.empty(0, np.int32)

_Copy = Rows | list[pa.Array]
"""Results: copied records if these can be merged, else columns."""


_Piece = tuple[Pane, Slots]
"""Slots of a pane."""


class SlotResults(Results):
    """Results of state by window: slots are results. ``records`` are like those of the panes, and empty."""

    def __init__(self, panes: LivePanes, numbering: Numbering, records: Records) -> None:
        super().__init__(panes, numbering)
        self._records = records
        self._last: int | None = None  # the last window that is shown, while a batch is folded that takes some back
        self._kept: dict[int, tuple[Slots, _Copy]] = {}  # by pane: slots in ascending order, their results

    def fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        last = self._numbering.over(watermark)
        done = None if before is None else self._numbering.over(before)
        for pieces in _grouped(self._completed(done, last), CHUNK):
            yield self._part(pieces)

    def again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        for pieces in _grouped(_touched(panes, self._numbering.over(watermark)), CHUNK):
            yield self._part(pieces)

    def keep(self, keys: Sequence[pa.Array], numbers: Numbers, closed: int, watermark: int) -> None:
        self._last = self._numbering.over(watermark)

    def changing(self, pane: Pane, slots: Slots, known: int, numbers: Numbers) -> None:
        if self._last is not None and known:
            held = np.unique(slots[(slots < known) & (numbers <= self._last)])
            if len(held):
                self._kept[pane.first] = held, self._copied(pane, held)

    def changes(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        kept, self._kept, self._last = self._kept, {}, None
        for pieces in _grouped(_touched(panes, self._numbering.over(watermark)), CHUNK // 2):
            yield from self._signed_parts(pieces, kept)

    def _completed(self, done: int | None, last: int) -> Iterator[_Piece]:
        """Yield the slots of the windows after ``done`` up to ``last``, and begin new lists of touched ones."""
        for pane in list(self._panes):
            if pane.first > last:
                break
            first = pane.first if done is None else max(pane.first, done + 1)
            if first < pane.stop:
                yield pane, _as_slots(pane.within(first, last))
                pane.forget_touched()

    def _part(self, pieces: Sequence[_Piece]) -> Part:
        return Part(*self._labels(pieces), self._read([self._copied(pane, slots) for pane, slots in pieces]))

    def _signed_parts(self, pieces: Sequence[_Piece], kept: dict[int, tuple[Slots, _Copy]]) -> Iterator[Part]:
        """Yield the changes of slots that had the results ``kept``."""
        shown, old = [], []
        for pane, slots in pieces:
            held, copy = kept.get(pane.first, (_NO_SLOTS, []))
            places = np.searchsorted(held, slots)
            is_held = np.append(held, -1)[places] == slots
            shown.append(is_held)
            if len(held):
                old.append(_taken(copy, places[is_held]))
        now = self._part(pieces)
        every: Slots = np.arange(len(now.ends), dtype=np.int32)
        for rows, values, weights in changes(every, np.concatenate(shown), self._read(old), among(now.values)):
            keys = [key.take(to_array(rows)) for key in now.keys]
            yield Part(keys, now.starts[rows], now.ends[rows], values, weights)

    def _labels(self, pieces: Sequence[_Piece]) -> tuple[list[pa.Array], Numbers, Numbers]:
        """Return the keys of pieces, and the edges of their windows."""
        keys, numbers = zip(*[pane.keys(slots) for pane, slots in pieces], strict=True)
        columns = [pa.concat_arrays(column) for column in zip(*keys, strict=True)]
        begins = to_numbers(columns.pop()) if self._numbering.key_fields else None
        return columns, *self._numbering.edges(np.concatenate(numbers), begins)

    def _copied(self, pane: Pane, slots: Slots) -> _Copy:
        return pane.records.copied(slots) if self._records.mergeable else pane.records.read(slots)

    def _read(self, copies: Sequence[_Copy]) -> list[pa.Array]:
        """Return the results of copies together."""
        if not copies:
            return self._records.read(_NO_SLOTS)
        if self._records.mergeable:
            return self._records.read_rows(np.concatenate([copy for copy in copies if isinstance(copy, np.ndarray)]))
        return [pa.concat_arrays(column) for column in zip(*copies, strict=True)]


def _touched(panes: Sequence[Pane], last: int) -> Iterator[_Piece]:
    """Yield the touched slots of windows up to ``last``, and begin new lists of touched ones."""
    for pane in panes:
        slots = pane.records.touched.copy()
        pane.forget_touched()
        yield pane, slots if pane.stop - 1 <= last else slots[pane.keys(slots)[1] <= last]


def _grouped(pieces: Iterable[_Piece], most: int) -> Iterator[list[_Piece]]:
    """Yield pieces, none of them empty, in groups of at most ``most`` rows, divided if they have more."""
    group: list[_Piece] = []
    rows = 0
    for pane, slots in pieces:
        for at in range(0, len(slots), most):
            part = slots[at : at + most]
            if group and (rows + len(part) > most or len(group) == _PANES):
                yield group
                group, rows = [], 0
            group.append((pane, part))
            rows += len(part)
    if group:
        yield group


def _taken(copy: _Copy, places: Numbers) -> _Copy:
    return copy[places] if isinstance(copy, np.ndarray) else [column.take(to_array(places)) for column in copy]


def _as_slots(slots: Slots | range) -> Slots:
    """Return ``slots`` as an array; ``np.arange`` is faster than numpy's conversion, which iterates over the range."""
    return np.arange(slots.start, slots.stop, dtype=np.int32) if isinstance(slots, range) else slots
