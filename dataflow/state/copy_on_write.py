"""Rows that are updated in place, and can be frozen at a barrier without being copied there.

Freezing notes how many rows there are, and nothing else. Afterwards whoever writes first saves the old rows to the log
of each frozen view, once a row; a background thread meanwhile reads the view chunk by chunk: it copies the live rows
and puts back what the log has of them. So a barrier costs the same at any size, a fold pays only for rows that it is
the first to change, and never more than all rows are saved. (Copying a whole *chunk* before its first write would move
the stall to the next fold: a batch of random keys touches every chunk.)

Invariant: each row of a view is in the copy already handed out, or in the log, or still in the array as it was.

>>> live = CopyOnWriteRows(np.array([[1], [2], [3], [0]]))
>>> frozen = live.freeze(3)
>>> slots = np.array([1], np.int32)
>>> with live.writing(slots):
...     live.rows[slots] = 20
>>> [chunk.tolist() for chunk in frozen.chunks(2)]
[[[1], [2]], [[3]]]
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from weakref import ref

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import fresh_words
from dataflow.state.index import Slots

__all__ = ["CHUNK", "CopyOnWriteRows", "FrozenRows"]

Rows = npt.NDArray[np.int64]

CHUNK = 131_072
"""Rows of a batch of a snapshot, which are copied at a time: a fold may have to wait for one or two milliseconds."""

BLOCK = 65_536
"""Rows of a block of the log. Memory comes block by block, for new pages are the dear part of saving a row."""

_NOBODY_READS = nullcontext()


class CopyOnWriteRows:
    """A table of int64 words, ``rows``, with one writer: the thread of the task.

    Whoever writes to ``rows`` does it inside ``writing``, or has just made them. A view that was dropped, read or not,
    costs nothing any more.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._lock = threading.Lock()  # guards the rows, and log and progress of their views, while a view is unread
        self._views: list[ref[FrozenRows]] = []  # of the present rows only; the writer's own

    def replace(self, rows: Rows) -> None:
        """Go on with other ``rows``: views keep the old ones, which nobody writes to any more."""
        self.rows = rows
        self._views.clear()

    def freeze(self, known: int) -> FrozenRows:
        """The first ``known`` rows as they are now, to be read later on any one thread."""
        assert known <= len(self.rows), f"{known} rows to freeze, there are {len(self.rows)}"
        view = FrozenRows(self.rows, known, self._lock)
        self._views.append(ref(view))
        return view

    def writing(self, slots: Slots) -> AbstractContextManager[None]:
        """Enter this to change the rows of ``slots``, and no others."""
        if not self._views:
            return _NOBODY_READS
        self._views = [entry for entry in self._views if (view := entry()) is not None and not view.copied]
        return self._saved(slots) if self._views else _NOBODY_READS

    @contextmanager
    def _saved(self, slots: Slots) -> Iterator[None]:
        with self._lock:
            for entry in self._views:
                view = entry()
                if view is not None:
                    view.save(slots)
            yield


class FrozenRows:
    """The first ``known`` rows of a ``CopyOnWriteRows`` as they were when it was frozen."""

    def __init__(self, rows: Rows, known: int, lock: threading.Lock) -> None:
        self._rows = rows
        self._known = known
        self._lock = lock
        self._progress = 0  # rows below it are copied
        self._saved = np.zeros(-(-known // 8), np.uint8)  # a bit a row
        self._log: list[_Block] = []

    @property
    def copied(self) -> bool:
        """Whether every row has been copied, so that nothing needs saving."""
        return self._progress >= self._known

    def save(self, slots: Slots) -> None:
        """Save the rows of ``slots`` that are neither copied nor saved. The caller holds the lock."""
        from dataflow.state.kernels.copy_on_write import save_rows

        start = 0
        while True:
            if not self._log:
                self._log.append(_Block(self._rows.shape[1]))
            block = self._log[-1]
            start = save_rows(
                self._rows, slots, start, self._progress, self._known, self._saved, block.slots, block.rows, block.used
            )
            if start == len(slots):
                return
            self._log.append(_Block(self._rows.shape[1]))

    def chunks(self, size: int) -> Iterator[Rows]:
        """The rows, at most ``size`` at a time; each answer is memory that the next one overwrites. To be read once."""
        from dataflow.state.kernels.copy_on_write import put_back

        memory = np.empty((min(size, self._known), self._rows.shape[1]), np.int64)
        memory.fill(0)  # has the pages made here, and not while a fold waits for the lock
        for start in range(0, self._known, size):
            stop = min(start + size, self._known)
            chunk = memory[: stop - start]
            with self._lock:
                chunk[:] = self._rows[start:stop]
                self._progress = stop
                log = [(block, int(block.used[0])) for block in self._log]
            for block, used in log:  # entries that are there stay as they are: no lock
                put_back(block.slots[:used], block.rows, start, chunk)
            if stop == self._known:
                self._log.clear()
            yield chunk


class _Block:
    """A piece of the log: the rows ``rows[:used]`` of ``slots[:used]``. Entries are added, never changed."""

    def __init__(self, width: int) -> None:
        self.slots: Slots = fresh_words(BLOCK // 2).view(np.int32)
        self.rows: Rows = fresh_words(BLOCK * width).reshape(BLOCK, width)
        self.used = np.zeros(1, np.int64)
