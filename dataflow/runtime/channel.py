"""The queue between one producer and one consumer: rows need credit, control elements never wait.

Guarantees: first in, first out, except that a ``Cancel`` overtakes everything queued and is taken by ``take_urgent``;
cancels among themselves keep their order. Nothing is lost, but adjacent watermarks become the later one.
This code assumes: one thread puts, one thread takes, and nothing is put behind an ``EndOfInput``.

Invariant: credit bounds what the producer may start, not what it may put: ``has_credit`` is asked before work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from threading import Lock

from dataflow.events import Cancel, Data, Element, EndOfInput, Watermark

__all__ = ["Channel"]


class Channel:
    """A first-in-first-out queue with ``credit`` batches of room. ``name`` is for people.

    ``on_put`` and ``on_take`` are called after each put and take, on the thread that did it, with no lock held; the
    runner sets them to ring a sleeping worker.

    >>> channel = Channel(credit=1, name="a")
    >>> channel.put(Data(["x", "y"]))
    >>> channel.has_credit, len(channel), channel.queued_rows
    (False, 1, 2)
    >>> channel.put(Cancel(3))
    >>> channel.take_urgent()
    (Cancel(checkpoint=3), (Data(rows=['x', 'y'], epoch=0),))
    """

    __slots__ = (
        "_credit",
        "_ended",
        "_lock",
        "_put",
        "_queue",
        "_queued_batches",
        "_queued_rows",
        "_taken",
        "_urgent",
        "back_pressured",
        "batches",
        "name",
        "on_put",
        "on_take",
        "rows",
    )

    def __init__(self, credit: int, name: str) -> None:
        assert credit > 0, f"channel {name}: credit is at least one batch, got {credit}"
        self.name = name
        self.rows = 0
        """Rows put so far, for metrics."""
        self.batches = 0
        """Batches put so far, for metrics."""
        self.back_pressured = 0
        """Microseconds its writer had to wait for room here, for metrics; written by the writer's task."""
        self.on_put: Callable[[], None] | None = None
        self.on_take: Callable[[], None] | None = None
        self._credit = credit
        self._queue: deque[Element] = deque()
        # An urgent element with the number of elements that had been put ahead of it.
        self._urgent: deque[tuple[Element, int]] = deque()
        self._put = 0
        self._taken = 0
        self._queued_batches = 0
        self._queued_rows = 0
        self._ended = False
        self._lock = Lock()  # guards the two queues and the counters, which both threads write

    @property
    def has_credit(self) -> bool:
        """Whether fewer batches are queued than there is room for."""
        return self._queued_batches < self._credit

    @property
    def head(self) -> Element | None:
        """What ``take`` would answer, or None where nothing is queued. Consumer only.

        A watermark may still be replaced by a later one before it is taken.
        """
        queue = self._queue
        return queue[0] if queue else None

    @property
    def is_urgent(self) -> bool:
        """Whether ``take_urgent`` has something."""
        return bool(self._urgent)

    @property
    def queued_rows(self) -> int:
        """Rows put and not yet taken."""
        return self._queued_rows

    def __len__(self) -> int:
        """Elements queued, urgent ones included."""
        return len(self._queue) + len(self._urgent)

    def put(self, element: Element) -> None:
        """Append ``element``; a ``Cancel`` goes ahead of all that is queued. Producer only; never blocks."""
        with self._lock:
            assert not self._ended, f"channel {self.name}: {element} after the end of input"
            if isinstance(element, Cancel):
                self._urgent.append((element, self._put))
            else:
                self._append(element)
        if self.on_put is not None:
            self.on_put()

    def take(self) -> Element:
        """Remove and answer the head. Consumer only, and only when there is one."""
        with self._lock:
            assert self._queue, f"channel {self.name}: nothing to take"
            element = self._queue.popleft()
            self._taken += 1
            if isinstance(element, Data):
                self._queued_batches -= 1
                self._queued_rows -= len(element.rows)
        if self.on_take is not None:
            self.on_take()
        return element

    def take_urgent(self) -> tuple[Element, tuple[Element, ...]]:
        """Remove the first urgent element; answers it with what it overtook, which stays queued. Consumer only."""
        with self._lock:
            assert self._urgent, f"channel {self.name}: nothing urgent to take"
            element, ahead = self._urgent.popleft()
            overtaken = tuple(queued for queued, _ in zip(self._queue, range(ahead - self._taken), strict=False))
        if self.on_take is not None:
            self.on_take()
        return element, overtaken

    def preload(self, elements: Iterable[Element]) -> None:
        """Queue restored channel state, in order. Called before the first put; needs no credit, but uses it up."""
        with self._lock:
            assert self._put == 0, f"channel {self.name}: preloaded after {self._put} elements were put"
            for element in elements:
                self._append(element)

    def _append(self, element: Element) -> None:
        match element:
            case Data(rows=rows):
                self.batches += 1
                self.rows += len(rows)
                self._queued_batches += 1
                self._queued_rows += len(rows)
            case Watermark(time=time) if self._ends_in_watermark():
                tail = self._queue[-1]
                assert isinstance(tail, Watermark), f"channel {self.name}: {tail} is no watermark"
                if time > tail.time:
                    self._queue[-1] = element
                return
            case EndOfInput():
                self._ended = True
            case _:
                pass
        self._queue.append(element)
        self._put += 1

    def _ends_in_watermark(self) -> bool:
        # Not under an urgent element: what was put behind it must not end up ahead of it.
        return bool(self._queue) and not self._urgent and isinstance(self._queue[-1], Watermark)
