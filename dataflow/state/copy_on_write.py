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
from collections.abc import Iterator
from weakref import ref

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import fresh_words
from dataflow.state.index import Slots

__all__ = ["CHUNK", "CopyOnWriteRows", "FrozenRows"]

Rows = npt.NDArray[np.int64]

CHUNK = 131_072
"""Rows of a batch of a snapshot."""

BLOCK = 65_536
"""Rows of a block of the log. Memory is allocated by block, because new pages are the main cost of saving a row."""


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

    def freeze(self, count: int) -> FrozenRows:
        """Return a view of the first ``count`` rows as they are now, to be read later on any one thread."""
        assert count <= len(self.rows), f"{count} rows to freeze, there are {len(self.rows)}"
        view = FrozenRows(self.rows, count)
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


class FrozenRows:
    """The first ``count`` rows of a ``CopyOnWriteRows`` as they were when it was frozen."""

    def __init__(self, rows: Rows, count: int) -> None:
        self._rows = rows
        self._count = count
        self._lock = threading.Lock()  # guards the three attributes below, but not the rows: see chunks
        self._progress = 0  # rows below it are copied
        self._saved = np.zeros(-(-count // 8), np.uint8)  # a bit a row
        self._log: list[_Block] = []

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
            chunk = memory[: stop - start]
            chunk[:] = self._rows[start:stop]
            with self._lock:
                self._progress = stop
                log = [(block, int(block.used[0])) for block in self._log]
            for block, used in log:  # no lock, because existing entries never change
                put_back(block.slots[:used], block.rows, start, chunk)
            yield chunk


class _Block:
    """A piece of the log: the rows ``rows[:used]`` of ``slots[:used]``. Entries are added, never changed."""

    def __init__(self, width: int) -> None:
        self.slots: Slots = fresh_words(BLOCK // 2).view(np.int32)
        self.rows: Rows = fresh_words(BLOCK * width).reshape(BLOCK, width)
        self.used = np.zeros(1, np.int64)

    @property
    def full(self) -> bool:
        return int(self.used[0]) == len(self.slots)
