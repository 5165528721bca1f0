"""The results of windows: which come out at a watermark, and which come out again because late rows changed them.

With signed changes, a result that late rows change is taken back first. What was shown of a window follows from the
watermark: nothing until the window is complete, and from then on the result of its records. So the results that a batch
will change are computed before it is folded (``keep``), and again after that (``changes``). To keep the rows that were
shown instead (``ShownRows``), from each emission on, took 1.10 to 1.14 times as long: hopping windows with 500 keys, of
whose rows none, 1 % or half were late (nine pairs of runs in turns, CPU time).

``slot_results.SlotResults`` is for state by window, where each record is a result. ``MergedResults`` is for state by
slice, where results are merged from records of several slices (``slides``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.windows import Sliced
from dataflow.state.arrays import Mask, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed import KeyIndex, index_kernels
from operators.aggregation.records import Records, SumOverflow
from operators.stateful.changes import changes
from operators.stateful.chunks import CHUNK
from operators.stateful.complete_windows import CompleteWindows
from operators.stateful.window_numbers import Numbering
from operators.windows.few_slices import FEW, FewSlices
from operators.windows.panes import LivePanes, Pane
from operators.windows.slice_range import SliceRange
from operators.windows.slides import Slides
from operators.windows.sparse_results import SparseResults, pays

__all__ = ["MergedResults", "Part", "Results", "joined"]

_JOINED = 64
"""The most parts that are joined, because the engine waits for all of them."""


@dataclass(frozen=True, slots=True)
class Part:
    """Results: the key columns of the state, the starts and the ends of the windows, and the aggregates.

    ``weights`` are +1 and -1; None: all results are added.
    """

    keys: list[pa.Array]
    starts: Numbers
    ends: Numbers
    values: list[pa.Array]
    weights: npt.NDArray[np.int8] | None = None


def joined(parts: Iterator[Part]) -> Iterator[Part]:
    """Yield the rows of ``parts`` in fewer parts of at most ``CHUNK`` rows, because each batch has a fixed cost."""
    waiting: list[Part] = []
    rows = 0
    for part in parts:
        if waiting and rows + len(part.ends) > CHUNK:
            yield _concatenated(waiting)
            waiting, rows = [], 0
        waiting.append(part)
        rows += len(part.ends)
        if rows >= CHUNK // 2 or len(waiting) == _JOINED:
            yield _concatenated(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _concatenated(waiting)


def _concatenated(parts: Sequence[Part]) -> Part:
    """Return the rows of ``parts``, at least one, all with weights or all without."""
    if len(parts) == 1:
        return parts[0]
    weights = [part.weights for part in parts if part.weights is not None]
    return Part(
        [pa.concat_arrays(columns) for columns in zip(*[part.keys for part in parts], strict=True)],
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        [pa.concat_arrays(columns) for columns in zip(*[part.values for part in parts], strict=True)],
        np.concatenate(weights) if weights else None,
    )


class Results(ABC):
    """The results of the windows in ``panes``. Batches of them have at most ``CHUNK`` rows.

    Watermarks given here are those of the operator; each call completes before the next one.
    """

    kernels: Sequence[str] = ()

    def __init__(self, panes: LivePanes, numbering: Numbering) -> None:
        self._panes = panes
        self._numbering = numbering

    @abstractmethod
    def fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        """Yield the results of the windows that are complete at ``watermark``, and were not at ``before``."""

    def changing(self, pane: Pane, slots: Slots, known: int, numbers: Numbers) -> None:
        """Take note that rows of ``numbers`` are about to be folded into ``slots`` of a pane, which had ``known``."""

    def changed(self, pane: Pane, slots: Slots, numbers: Numbers) -> None:
        """Take note that records of ``slots`` in a pane changed, which are of ``numbers``."""

    @abstractmethod
    def again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        """Yield the results that the touched slots of ``panes`` change: of windows that are complete at ``watermark``.

        Windows that were complete at the watermark ``closed``, before it, take no more rows.
        """

    @abstractmethod
    def keep(self, keys: Sequence[pa.Array], numbers: Numbers, closed: int, watermark: int) -> None:
        """Begin to keep the results that rows of ``keys`` and ``numbers`` will change, which are shown: see ``again``.

        Call it before ``changing`` and the fold of any of the rows.
        """

    @abstractmethod
    def changes(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        """Yield what ``again`` does as signed changes, after the rows that ``keep`` got were folded."""


class MergedResults(Results):
    """Results of state by slice: ``window`` has slices; ``keys`` are the key columns of the state."""

    def __init__(
        self,
        panes: LivePanes,
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
        self._new_records = new_records
        self._overflow = overflow
        self._make = panes, keys, new_records, overflow
        self._range = self._new_range()
        self._late: _LateRows | None = None
        self._kept: list[tuple[Mask, list[pa.Array]]] = []  # by changed window: which keys are shown, their results
        self.kernels = (*index_kernels(keys), "operators.kernels.merging")

    def _new_range(self, only: list[pa.Array] | None = None) -> SliceRange:
        """Return merged records for windows one after the other; ``only`` as in ``SliceRange``."""
        first, stop = self._window.covered(self._window.containing(0)[1])
        return (FewSlices if stop - first <= FEW else Slides)(*self._make, only)

    def fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        return joined(self._fire(before, watermark))

    def _fire(self, before: int | None, watermark: int) -> Iterator[Part]:
        window = self._window
        last, done = window.last_complete(watermark), None if before is None else window.last_complete(before)
        if last == done:
            return
        stop = window.covered(last)[1]
        first = self._first_slice(stop) if done is None else window.covered(done + 1)[0]
        windows = CompleteWindows(window, np.array(self._panes.present(first, stop - 1), np.int64), done, last)
        panes = list(self._panes.between(first, stop - 1))
        if len(windows) and pays(panes, windows):
            self._range.reset()
            yield from self._merged_at_once(panes, windows, first, stop)
        else:
            for number in windows:
                slots = self._range.move(*window.covered(number))
                yield from self._parts(self._range, slots, number)
        for pane in panes:
            pane.forget_touched()
        if not self._panes.holds_after(self._numbering.over(watermark)):
            self._range.reset()

    def changed(self, pane: Pane, slots: Slots, numbers: Numbers) -> None:
        stop = self._range.stop
        if stop is not None and pane.first < stop and len(before := slots[numbers < stop]):
            self._range.note_changed(pane.keys(np.unique(before))[0])

    def again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        return joined(self._again(panes, closed, watermark))

    def _again(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        touched = KeyIndex(self._keys)
        keys, numbers = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for pane in panes:
            slots = pane.records.touched.copy()
            pane.forget_touched()
            columns, of = pane.keys(slots)
            keys.append(touched.slots(columns).copy())
            numbers.append(of)
        late = _LateRows(touched, np.concatenate(keys), np.concatenate(numbers))
        for merged, changed, _, each in self._changed(late, closed, watermark):
            yield from self._parts(merged, changed, each)

    def keep(self, keys: Sequence[pa.Array], numbers: Numbers, closed: int, watermark: int) -> None:
        shown = numbers <= self._numbering.begun(watermark)
        touched, own = KeyIndex(self._keys), to_array(shown)
        slots = touched.slots([column.filter(own) for column in keys]).copy()
        self._late = _LateRows(touched, slots, numbers[shown])
        changed = self._changed(self._late, closed, watermark)
        self._kept = [(gone, merged.read(slots[gone])) for merged, slots, gone, _ in changed]

    def changes(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        return joined(self._changes(panes, closed, watermark))

    def _changes(self, panes: Sequence[Pane], closed: int, watermark: int) -> Iterator[Part]:
        for pane in panes:
            pane.forget_touched()
        late, kept, self._late, self._kept = self._late, self._kept, None, []
        assert late is not None, "keep comes before changes"
        changed = self._changed(late, closed, watermark)
        for (merged, slots, _, each), (shown, old) in zip(changed, kept, strict=True):
            for rows, values, weights in changes(slots, shown, old, merged.read):
                yield Part(*self._labels(merged, rows, each), values, weights)

    def _changed(self, late: _LateRows, closed: int, watermark: int) -> Iterator[tuple[SliceRange, Slots, Mask, int]]:
        """Yield each complete window that takes some of the rows, with their keys in it: see ``again``.

        Returns: merged records over the window, the slots there of its keys, whether each has rows, and the window.
        """
        window, number = self._window, late.numbers
        merged = self._new_range(late.index.keys(range(len(late.index))))
        over, last = window.last_complete(closed), window.last_complete(watermark)
        for each in CompleteWindows(window, np.unique(number), over, last):
            first, stop = window.covered(each)
            changed = np.unique(late.keys[(first <= number) & (number < stop)])
            yield merged, changed, np.isin(changed, merged.move(first, stop)), each

    def _first_slice(self, stop: int) -> int:
        """Return the first slice that has a pane, or ``stop``."""
        return min([pane.first for pane in self._panes][:1], default=stop)

    def _merged_at_once(self, panes: Sequence[Pane], windows: CompleteWindows, first: int, stop: int) -> Iterator[Part]:
        """Yield the results of ``windows``, whose slices are ``first`` to ``stop`` - 1, some windows at a time."""
        sparse = SparseResults(panes, first, stop, self._keys, self._new_records(), self._overflow)
        for slots, numbers, values in sparse.results(self._window, windows):
            for at in range(0, len(slots), CHUNK):
                chosen = numbers[at : at + CHUNK]
                yield Part(
                    sparse.keys(slots[at : at + CHUNK]),
                    self._window.start(chosen),
                    self._window.end(chosen),
                    [column.slice(at, CHUNK) for column in values],
                )

    def _parts(self, merged: SliceRange, slots: Slots, number: int) -> Iterator[Part]:
        for at in range(0, len(slots), CHUNK):
            chosen = slots[at : at + CHUNK]
            yield Part(*self._labels(merged, chosen, number), merged.read(chosen))

    def _labels(self, merged: SliceRange, slots: Slots, number: int) -> tuple[list[pa.Array], Numbers, Numbers]:
        """Return the keys of ``slots``, and the edges of the window ``number`` for each."""
        start, end = self._window.start(number), self._window.end(number)
        return merged.keys(slots), np.full(len(slots), start, np.int64), np.full(len(slots), end, np.int64)


@dataclass(frozen=True, slots=True)
class _LateRows:
    """Rows for complete windows: row i has the key ``keys[i]`` of ``index``, and the slice ``numbers[i]``."""

    index: KeyIndex
    keys: Slots
    numbers: Numbers
