"""Rows that are updated in place, and can be frozen at a barrier without a copy at the barrier.

Freezing only records the number of rows. Afterwards the first write to a row saves the old row to the log of each
frozen view. Meanwhile a background thread reads the view chunk by chunk: it copies the live rows, changed or not, and
then puts back the rows in the log. So a barrier costs the same at any size, a fold pays only for the rows it is the
first to change, and a row is never saved twice. (Copying a whole *chunk* before its first write would move the stall to
the next fold, because a batch of random keys touches every chunk.)

Invariant: each row of a view is in the copy already handed out, or in the log, or still in the array as it was.

>>> live = CopyOnWriteRows(np.array([[1], [2], [3], [0]]))
>>> frozen = live.freeze(3)
>>> slots = np.array([1], np.int32)
>>> live.save(slots)
>>> live.rows[slots] = 20
>>> [chunk.tolist() for chunk in frozen.chunks(2)]
[[[1], [2]], [[3]]]
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from mmap import mmap
from weakref import ref

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import fresh_words
from dataflow.state.index import Slots

__all__ = [
    "CHUNK",
    "Bitmap",
    "CopyOnWriteRows",
    "FrozenRows",
    "Readers",
    "Reading",
    "RecordRows",
    "Rows",
    "empty_bitmap",
]

Rows = npt.NDArray[np.int64]

Bitmap = npt.NDArray[np.uint8]
"""A bit for each slot, the least significant of a byte first."""
_ALL: Bitmap = np.empty(0, np.uint8)
_LITTLE = 1 << 16

_FIRST = 512

CHUNK = 131_072
"""Rows of a batch of a snapshot."""

BLOCK = 65_536
"""Rows of a block of the log. Memory is allocated by block, because new pages are the main cost of saving a row."""


def empty_bitmap(slots: int) -> Bitmap:
    """Return a bitmap without any bits; the memory of a large one is not touched before bits are set.

    A barrier makes some of them, and must not wait for megabytes of zeros.

    >>> empty_bitmap(20).tolist()
    [0, 0, 0]
    """
    size = -(-slots // 8)
    return np.zeros(size, np.uint8) if size < _LITTLE else np.frombuffer(mmap(-1, size), np.uint8)


class CopyOnWriteRows:
    """A table of int64 words, ``rows``, with one writer: the thread of the task.

    Call ``save`` before writing to ``rows``. A view that was dropped, read or not, costs nothing.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._views: list[ref[FrozenRows]] = []  # views of the present rows only; used by the writer alone

    def replace(self, rows: Rows) -> None:
        """Continue with other ``rows``; views keep the old ones, which are not written to any more."""
        self.rows = rows
        self._views.clear()

    def freeze(self, count: int, chosen: Bitmap | None = None) -> FrozenRows:
        """Return a view of the first ``count`` rows as they are now, to be read later on any one thread.

        ``chosen`` has a bit for each row that will be read, at least ``count`` bits; None: all will.
        """
        assert count <= len(self.rows), f"{count} rows to freeze, there are {len(self.rows)}"
        view = FrozenRows(self.rows, count, chosen)
        self._views.append(ref(view))
        return view

    def save(self, slots: Slots) -> None:
        """Save the rows of ``slots``, which are about to change, for the views that still need them."""
        if not self._views:
            return
        views = [view for entry in self._views if (view := entry()) is not None and not view.copied]
        self._views = [ref(view) for view in views]
        for view in views:
            view.save(slots)


class RecordRows(CopyOnWriteRows):
    """Rows that begin as copies of ``template``, aligned to a cache line; they double when there are more slots.

    There is always one row more than slots, the last one: kernels write into it what belongs to no slot.
    """

    def __init__(self, template: npt.NDArray[np.int64], expected: int = 0) -> None:
        self.template = template
        super().__init__(self._allocate(max(_FIRST, expected + 1)))

    def grow(self, slots: int) -> None:
        """Make room for ``slots`` rows."""
        held = len(self.rows)
        if slots >= held:
            grown = self._allocate(max(slots + 1, 2 * held))
            grown[: held - 1] = self.rows[:-1]
            self.replace(grown)

    def shrink(self, slots: int) -> None:
        """Keep only the first ``slots`` rows; the others are not in use."""
        shrunk = self._allocate(max(_FIRST, slots + 1))
        shrunk[:slots] = self.rows[:slots]
        self.replace(shrunk)

    def _allocate(self, capacity: int) -> Rows:
        width = len(self.template)
        memory = fresh_words(capacity * width + 8)
        skip = -memory.ctypes.data % 64 // 8
        records = memory[skip : skip + capacity * width].reshape(capacity, width)
        filled = min(64, capacity)
        records[:filled] = self.template
        while filled < capacity:  # double the filled part: numpy broadcasts one short row slowly
            more = min(filled, capacity - filled)
            records[filled : filled + more] = records[:more]
            filled += more
        return records


class Reading:
    """Held by whoever reads a snapshot, until it is read to its end or dropped."""

    __slots__ = ("__weakref__",)


class Readers:
    """The snapshots that are still being read, and what must wait for them: the reuse of what they refer to.

    >>> readers = Readers()
    >>> reading = readers.begin()
    >>> readers.defer(lambda: print("reused"))
    >>> del reading
    >>> readers.settle()
    reused
    """

    def __init__(self) -> None:
        self._reading: list[ref[Reading]] = []
        self._deferred: deque[tuple[list[ref[Reading]], Callable[[], None]]] = deque()

    @property
    def has_any(self) -> bool:
        """Whether a snapshot is still being read."""
        return bool(self._unread())

    def begin(self) -> Reading:
        """Return an object that the readers of one snapshot hold."""
        reading = Reading()
        self._reading = [*self._unread(), ref(reading)]
        return reading

    def defer(self, call: Callable[[], None]) -> None:
        """Call ``call`` once every snapshot of this moment is read or dropped: at once, or in a later ``settle``."""
        unread = self._unread()
        if unread or self._deferred:
            self._deferred.append((unread, call))
        else:
            call()

    def settle(self) -> None:
        """Make the deferred calls whose snapshots are read by now, in order."""
        while self._deferred and not any([reading() is not None for reading in self._deferred[0][0]]):
            self._deferred.popleft()[1]()

    def _unread(self) -> list[ref[Reading]]:
        return [reading for reading in self._reading if reading() is not None]


class FrozenRows:
    """The first ``count`` rows of a ``CopyOnWriteRows`` as they were when it was frozen, or only ``chosen`` ones."""

    def __init__(self, rows: Rows, count: int, chosen: Bitmap | None = None) -> None:
        self._rows = rows
        self._count = count
        self._lock = threading.Lock()  # guards the three attributes below, but not the rows: see chunks
        self._progress = 0  # rows below it are copied
        self._saved = empty_bitmap(count)
        self._chosen = _ALL if chosen is None else chosen
        self._log: list[_Block] = []

    @property
    def words(self) -> int:
        """The number of words of a row."""
        return self._rows.shape[1]

    @property
    def copied(self) -> bool:
        """Whether every row has been copied, so that nothing needs saving."""
        return self._progress >= self._count

    def save(self, slots: Slots) -> None:
        """Add the rows of ``slots`` that are neither copied nor saved to the log."""
        from dataflow.state.kernels.copy_on_write import save_rows

        done = 0
        with self._lock:
            while done < len(slots):
                if not self._log or self._log[-1].full:
                    self._log.append(_Block(self._rows.shape[1]))
                block = self._log[-1]
                done = save_rows(
                    self._rows,
                    slots,
                    done,
                    self._progress,
                    self._count,
                    self._chosen,
                    self._saved,
                    block.slots,
                    block.rows,
                    block.used,
                )

    def chunks(self, size: int) -> Iterator[Rows]:
        """Yield the rows, at most ``size`` at a time; the next chunk overwrites the memory of the last. Read it once.

        Rows are copied without the lock, so that no fold waits for a copy. Torn rows do no harm: a row that changes
        during the copy was saved before, and the log is read after the copy, under the lock. A row saved after that
        read changes even later.
        """
        from dataflow.state.kernels.copy_on_write import put_back

        memory = np.empty((min(size, self._count), self._rows.shape[1]), np.int64)
        for start in range(0, self._count, size):
            stop = min(start + size, self._count)
            # The copy first, then the log, never the other way round: a row that changes between the two was saved in
            # the log before it changed, and the log puts it back. Read before the copy, the log could lack a row whose
            # change the copy has seen, and the checkpoint would hold a value from after the barrier.
            chunk = memory[: stop - start]
            chunk[:] = self._rows[start:stop]
            for block, used in self._copied_to(stop):  # no lock, because existing entries never change
                put_back(block.slots[:used], block.rows, start, chunk)
            yield chunk

    def rows_of(self, slots: Slots) -> Rows:
        """Return a copy of the rows of ``slots``, which ascend from one call to the next, as ``chunks`` does."""
        from dataflow.state.kernels.copy_on_write import copy_rows, put_back, put_back_found

        chosen = np.empty((len(slots), self._rows.shape[1]), np.int64)
        copy_rows(self._rows, slots, chosen)
        if not len(slots):
            return chosen
        first, last = int(slots[0]), int(slots[-1])
        for block, used in self._copied_to(last + 1):
            if last - first == len(slots) - 1:  # no slot is left out: there is nothing to search
                put_back(block.slots[:used], block.rows, first, chosen)
            else:
                put_back_found(block.slots[:used], block.rows, slots, chosen)
        return chosen

    def unchanged_rows(self, slots: Slots) -> Rows:
        """Return a copy of rows that do not change while the view is read, in any order: those of removed slots."""
        from dataflow.state.kernels.copy_on_write import copy_rows

        rows = np.empty((len(slots), self._rows.shape[1]), np.int64)
        copy_rows(self._rows, slots, rows)
        return rows

    def _copied_to(self, stop: int) -> list[tuple[_Block, int]]:
        """Record that the rows below ``stop`` are copied, and return the log with its length."""
        with self._lock:
            self._progress = max(stop, self._progress)
            return [(block, int(block.used[0])) for block in self._log]


class _Block:
    """A piece of the log: the rows ``rows[:used]`` of ``slots[:used]``. Entries are added, never changed."""

    def __init__(self, width: int) -> None:
        self.slots: Slots = fresh_words(BLOCK // 2).view(np.int32)
        self.rows: Rows = fresh_words(BLOCK * width).reshape(BLOCK, width)
        self.used = np.zeros(1, np.int64)

    @property
    def full(self) -> bool:
        return int(self.used[0]) == len(self.slots)
