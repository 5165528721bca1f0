"""The results of windows: which come out at a watermark, and which come out again because late rows changed them.

``SlotResults`` is for state by window, where each record is a result. ``MergedResults`` is for state by slice, where
results are merged from records of several slices (``slides``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.contracts.windows import Sliced
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.aggregation.records import Records, SumOverflow
from operators.aggregation.window_numbers import Numbering
from operators.aggregation.window_times import Numbers
from operators.windows.panes import Pane, Panes
from operators.windows.slides import Slides

__all__ = ["MergedResults", "Part", "Results", "SlotResults"]

CHUNK = 65_536
"""The largest batch, in rows, of an emission."""

Part = tuple[list[pa.Array], Numbers, Numbers, list[pa.Array]]
"""Results: the key columns of the state, the starts and the ends of the windows, and the aggregates."""


class Results(ABC):
    """The results of the windows in ``panes``. Batches of them have at most ``CHUNK`` rows.

    Watermarks given here are those of the operator; each call completes before the next one.
    """

    kernels: Sequence[str] = ()

    def __init__(self, panes: Panes, numbering: Numbering) -> None:
        self._panes = panes
        self._numbering = numbering

    @abstractmethod
    def fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        """Yield the results of the windows that are complete at ``watermark``, and were not at ``before``."""

    @abstractmethod
    def changed(self, pane: Pane, slots: Slots, numbers: Numbers) -> None:
        """Take note that records of ``slots`` in a pane changed, which are of ``numbers``."""

    @abstractmethod
    def again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        """Yield the results that the touched slots of ``panes`` change: of windows that are complete at ``watermark``.

        Windows that were complete at the watermark ``closed``, before it, take no more rows.
        """


class SlotResults(Results):
    """Results of state by window: slots are results."""

    def fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        last = self._numbering.over(watermark)
        done = None if before is None else self._numbering.over(before)
        for pane in list(self._panes):
            if pane.first > last:
                break
            first = pane.first if done is None else max(pane.first, done + 1)
            if first < pane.stop:
                yield from self._parts(pane, pane.within(first, last))
                pane.forget_touched()

    def changed(self, pane: Pane, slots: Slots, numbers: Numbers) -> None:
        pass  # nothing is derived from the records

    def again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        last = self._numbering.over(watermark)
        for pane in panes:
            touched = pane.records.touched.copy()
            pane.forget_touched()
            _, numbers = pane.keys(touched)
            yield from self._parts(pane, touched[numbers <= last])

    def _parts(self, pane: Pane, slots: Slots | range) -> Iterator[Part]:
        for start in range(0, len(slots), CHUNK):
            chosen = slots[start : start + CHUNK]
            columns, numbers = pane.keys(chosen)
            begins = None
            if self._numbering.key_fields:
                *columns, begin = columns
                begins = to_numbers(begin)
            yield columns, *self._numbering.edges(numbers, begins), pane.records.read(_as_slots(chosen))


class MergedResults(Results):
    """Results of state by slice: ``window`` has slices; ``keys`` are the key columns of the state."""

    def __init__(
        self,
        panes: Panes,
        numbering: Numbering,
        keys: pa.Schema,
        new_records: Callable[[], Records],
        overflow: Callable[[SumOverflow, list[pa.Array]], OverflowError],
    ) -> None:
        super().__init__(panes, numbering)
        window = numbering.window
        assert isinstance(window, Sliced), f"{window} has no slices"
        self._window = window
        self._keys = keys
        self._make = panes, keys, new_records, overflow
        self._slides = Slides(*self._make)
        self.kernels = (*index_kernels(keys), "operators.kernels.merging")

    def fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        window = self._window
        last, done = window.last_complete(watermark), None if before is None else window.last_complete(before)
        if last == done:
            return
        stop = window.covered(last)[1]
        first = self._first_slice(stop) if done is None else window.covered(done + 1)[0]
        for number in self._windows(self._panes.present(first, stop - 1), done, last):
            slots = self._slides.move(*window.covered(number))
            yield from self._parts(self._slides, slots, number)
        for pane in self._panes.between(first, stop - 1):
            pane.forget_touched()
        if not self._panes.holds_after(self._numbering.over(watermark)):
            self._slides.reset()

    def changed(self, pane: Pane, slots: Slots, numbers: Numbers) -> None:
        stop = self._slides.stop
        if stop is not None and pane.first < stop and len(before := slots[numbers < stop]):
            self._slides.note_changed(pane.keys(np.unique(before))[0])

    def again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        window = self._window
        touched = KeyIndex(self._keys)
        keys, numbers = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for pane in panes:
            slots = pane.records.touched.copy()
            pane.forget_touched()
            columns, of = pane.keys(slots)
            keys.append(touched.slots(columns).copy())
            numbers.append(of)
        key, number = np.concatenate(keys), np.concatenate(numbers)
        slides = Slides(*self._make, touched.keys(range(len(touched))))
        over, last = window.last_complete(closed), window.last_complete(watermark)
        for each in self._windows(np.unique(number).tolist(), over, last):
            first, stop = window.covered(each)
            changed = np.unique(key[(first <= number) & (number < stop)])
            slides.move(first, stop)
            yield from self._parts(slides, changed, each)

    def _first_slice(self, stop: int) -> int:
        """Return the first slice that has a pane, or ``stop``."""
        return min([pane.first for pane in self._panes][:1], default=stop)

    def _windows(self, slices: Sequence[int], done: int | None, last: int) -> Iterator[int]:
        """Yield the windows after ``done``, up to ``last``, that contain one of ``slices``, in ascending order."""
        following = done
        for number in slices:
            first, until = self._window.containing(number)
            begin = first if following is None else max(first, following + 1)
            for each in range(begin, min(until, last) + 1):
                yield each
                following = each

    def _parts(self, slides: Slides, slots: Slots, number: int) -> Iterator[Part]:
        start, end = self._window.start(number), self._window.end(number)
        for at in range(0, len(slots), CHUNK):
            chosen = slots[at : at + CHUNK]
            starts, ends = np.full(len(chosen), start, np.int64), np.full(len(chosen), end, np.int64)
            yield slides.keys(chosen), starts, ends, slides.read(chosen)


def _as_slots(slots: Slots | range) -> Slots:
    """Return ``slots`` as an array; ``np.arange`` is faster than numpy's conversion, which iterates over the range."""
    return np.arange(slots.start, slots.stop, dtype=np.int32) if isinstance(slots, range) else slots
