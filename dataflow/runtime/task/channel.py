"""The queue between one producer and one consumer: rows need credit, control elements never wait.

Guarantees: first in, first out, except for what is urgent: a ``Cancel``, and on a channel that is ``overtakable`` an
unaligned barrier, or one that is promoted while it waits. These overtake everything queued, are taken by
``take_urgent``, and keep the order they were put in among themselves. Nothing is lost, but adjacent watermarks become
the later one.
This code assumes: one thread puts, one thread takes, and nothing is put behind an ``EndOfInput``.

Invariant: credit bounds what the producer may start, not what it may put: ``has_credit`` is asked before work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any

from dataflow.contracts.source import Json
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Watermark

__all__ = ["Channel"]


class Channel:
    """A first-in-first-out queue with ``credit`` batches of room. ``name`` is for people.

    ``on_put`` and ``on_take`` are called after each put and take, on the thread that did it, with no lock held; the
    runner sets them to ring a sleeping worker.

    >>> channel = Channel(1, "a", overtakable=True)
    >>> channel.put(Data(["x", "y"]))
    >>> channel.has_credit, len(channel), channel.queued_rows
    (False, 1, 2)
    >>> channel.put(Cancel(3))
    >>> channel.take_urgent()
    (Cancel(checkpoint=3), (Data(rows=['x', 'y'], epoch=0),))
    """

    __slots__ = (
        "_barriers",
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
        "overtakable",
        "rows",
        "schema",
    )

    def __init__(self, credit: int, name: str, *, overtakable: bool = False, schema: Json = None) -> None:
        assert credit > 0, f"channel {name}: credit is at least one batch, got {credit}"
        self.name = name
        self.overtakable = overtakable
        """Whether barriers may overtake what is queued here, so that it becomes channel state."""
        self.schema = schema
        """The columns of the rows, as JSON: channel state fits a channel that carries the same."""
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
        # Barriers among the queued elements, in order.
        self._barriers: deque[Barrier] = deque()
        self._put = 0
        self._taken = 0
        self._queued_batches = 0
        self._queued_rows = 0
        self._ended = False
        self._lock = Lock()  # guards the queues and the counters, which both threads write

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
    def next(self) -> Element | None:
        """What a gate takes next: the first urgent element, else the head. Consumer only."""
        return self._urgent[0][0] if self._urgent else self.head

    @property
    def is_urgent(self) -> bool:
        """Whether ``take_urgent`` has something."""
        return bool(self._urgent)

    @property
    def barriers(self) -> Sequence[Barrier]:
        """The barriers that keep their place in the queue, in order. Consumer only."""
        if not self._barriers:  # nearly always, and then without the lock: one that is put just now is seen next time
            return ()
        with self._lock:
            return tuple(self._barriers)

    @property
    def queued(self) -> tuple[Element, ...]:
        """What is queued now, without urgent elements. Consumer only."""
        with self._lock:
            return tuple(self._queue)

    @property
    def ended(self) -> bool:
        """Whether the end of input was put."""
        return self._ended

    @property
    def queued_rows(self) -> int:
        """Rows put and not yet taken."""
        return self._queued_rows

    def __len__(self) -> int:
        """Elements queued, urgent ones included."""
        return len(self._queue) + len(self._urgent)

    def put(self, element: Element) -> None:
        """Append ``element``; what is urgent goes ahead of all that is queued. Producer only; never blocks."""
        with self._lock:
            assert not self._ended, f"channel {self.name}: {element} after the end of input"
            if isinstance(element, Cancel) or (self.overtakable and isinstance(element, Barrier) and element.unaligned):
                self._urgent.append((element, self._put))
            else:
                self._append(element)
        if self.on_put is not None:
            self.on_put()

    def take(self, max_rows: int | None = None) -> Element:
        """Remove and answer the head. Consumer only, and only when there is one.

        Of a batch of more than ``max_rows`` rows only so many are taken, as a slice; the rest stays at the head, where
        it takes up the room of a batch.
        """
        with self._lock:
            assert self._queue, f"channel {self.name}: nothing to take"
            element = self._queue[0]
            if isinstance(element, Data) and max_rows is not None and len(element.rows) > max_rows:
                rows: Any = element.rows
                self._queue[0] = Data(rows.slice(max_rows), element.epoch)
                self._queued_rows -= max_rows
                return Data(rows.slice(0, max_rows), element.epoch)
            self._queue.popleft()
            self._taken += 1
            if isinstance(element, Data):
                self._queued_batches -= 1
                self._queued_rows -= len(element.rows)
            elif isinstance(element, Barrier):
                self._barriers.popleft()
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

    def promote(self, barrier: Barrier) -> None:
        """Make a queued barrier urgent: from its place it overtakes all that is ahead of it. Consumer only."""
        with self._lock:
            assert self.overtakable, f"channel {self.name}: {barrier} is promoted where nothing may be overtaken"
            index = next(i for i, element in enumerate(self._queue) if element is barrier)
            del self._queue[index]
            self._barriers = deque(other for other in self._barriers if other is not barrier)
            self._put -= 1
            place = self._taken + index
            before = [(element, ahead) for element, ahead in self._urgent if ahead <= place]
            behind = [(element, ahead - 1) for element, ahead in self._urgent if ahead > place]
            self._urgent = deque([*before, (barrier, place), *behind])

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
            case Barrier():
                self._barriers.append(element)
            case _:
                pass
        self._queue.append(element)
        self._put += 1

    def _ends_in_watermark(self) -> bool:
        # Not under an urgent element: what was put behind it must not end up ahead of it.
        return bool(self._queue) and not self._urgent and isinstance(self._queue[-1], Watermark)
