"""The queue between one producer and one consumer: rows need credit, control elements never wait.

Guarantees: first in, first out, except for urgent elements. Urgent are a ``Cancel`` and, if the channel is
``overtakable``, an unaligned barrier or one that is promoted while it waits. Urgent elements overtake everything
queued, are taken by ``take_urgent``, and keep their order among themselves. Nothing is lost, but of adjacent watermarks
only the later one stays, and waiting batches may be joined (``join``): of one colour, next to each other.
This code assumes: one thread puts, one thread takes, and nothing is put after an ``EndOfInput``.

Invariant: credit bounds the work a producer may start, not its puts: it checks ``has_credit`` before it starts.
Invariant: the queued bytes are the sum of ``_sizes``, which has an entry for each queued batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Any, Final

from dataflow.contracts.source import Json
from dataflow.protocol.events import Barrier, Cancel, Data, Element, EndOfInput, Watermark
from dataflow.runtime.task.byte_credit import RowBytes
from dataflow.runtime.task.joined_rows import Apart, JoinPolicy, Pile, may_join
from dataflow.runtime.task.whole_changes import end_of_change

__all__ = ["DEFAULT_CREDIT", "SIMULATED_CREDIT", "Channel"]

DEFAULT_CREDIT: Final = 4
"""The number of batches that a channel holds unless the user sets another one. ``Pipeline.run`` shows it, too."""
SIMULATED_CREDIT: Final = 2
"""The same for a simulation: fewer, so that tasks often wait for room."""


class Channel:
    """A first-in-first-out queue with room for ``credit`` batches and ``byte_credit`` bytes. ``name`` is for messages.

    A channel below both limits has room for a batch of any size. ``byte_credit`` None: bytes are not counted.

    ``on_put`` is called after each put; ``on_take`` after rows were taken, if the writer set ``awaited`` before. Both
    run on the thread of the caller, without a lock; the runner sets them to wake a sleeping worker.

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
        "_byte_credit",
        "_credit",
        "_ended",
        "_fixed_width",
        "_is_signed",
        "_lock",
        "_put",
        "_queue",
        "_queued_batches",
        "_queued_bytes",
        "_queued_rows",
        "_row_bytes",
        "_sizes",
        "_taken",
        "_urgent",
        "awaited",
        "back_pressured",
        "batches",
        "encoded",
        "join",
        "joined",
        "larger",
        "name",
        "on_put",
        "on_take",
        "overtakable",
        "rows",
        "schema",
    )

    def __init__(
        self,
        credit: int,
        name: str,
        *,
        overtakable: bool = False,
        schema: Json = None,
        encoded: Sequence[str] = (),
        join: JoinPolicy | None = None,
        fixed_width: bool = False,
        is_signed: bool = False,
        byte_credit: int | None = None,
    ) -> None:
        assert credit > 0, f"channel {name}: credit must be at least one batch, got {credit}"
        assert byte_credit is None or byte_credit > 0, f"channel {name}: got credit for {byte_credit} bytes"
        self.name = name
        self.overtakable = overtakable
        """Whether barriers may overtake the elements queued here, which then become channel state."""
        self.schema = schema
        """The columns of the rows, as JSON: channel state is restored to a channel with the same columns."""
        self.encoded = encoded
        """The columns of text that are dictionaries in this run; channel state has their text."""
        self.rows = 0
        """Rows put so far, for metrics."""
        self.batches = 0
        """Batches put so far, for metrics."""
        self.joined = 0
        """Batches among them that were joined to those before them."""
        self.larger = 0
        """Batches among them that have more bytes than the credit."""
        self.back_pressured = 0
        """Microseconds that its writer waited for room, for metrics; written by the writer's task."""
        self.on_put: Callable[[], None] | None = None
        self.on_take: Callable[[], None] | None = None
        self.awaited = False
        """Set by the writer to be woken by the next rows taken, which unset it. Set it first, then look for room."""
        self._credit = credit
        self._byte_credit = byte_credit
        self._row_bytes = RowBytes()
        self.join = join or Apart()
        """Decides which batches are joined."""
        self._fixed_width = fixed_width
        self._is_signed = is_signed
        self._queue: deque[Element] = deque()
        # Urgent elements, each with the number of elements put before it.
        self._urgent: deque[tuple[Element, int]] = deque()
        # Barriers among the queued elements, in order.
        self._barriers: deque[Barrier] = deque()
        self._put = 0
        self._taken = 0
        self._queued_batches = 0
        self._queued_rows = 0
        self._queued_bytes = 0
        self._sizes: deque[int] = deque()
        self._ended = False
        self._lock = Lock()  # guards the queues and the counters, which both threads write

    def free(self) -> None:
        """Drop what is queued. No thread puts or takes any more."""
        for queue in (self._queue, self._urgent, self._barriers, self._sizes):
            queue.clear()
        self._queued_batches = self._queued_rows = self._queued_bytes = 0

    @property
    def has_credit(self) -> bool:
        """Whether there is room for one more batch."""
        return self._queued_batches < self._credit and self._has_bytes

    @property
    def _has_bytes(self) -> bool:
        return self._byte_credit is None or self._queued_bytes < self._byte_credit

    @property
    def head(self) -> Element | None:
        """The element that ``take`` would return, or None; of rows, only the kind counts. Consumer only.

        A watermark may still be replaced by a later one before it is taken.
        """
        queue = self._queue
        return queue[0] if queue else None

    @property
    def next(self) -> Element | None:
        """The element that a gate takes next: the first urgent one, else the head. Consumer only."""
        return self._urgent[0][0] if self._urgent else self.head

    @property
    def is_urgent(self) -> bool:
        """Whether there is an urgent element."""
        return bool(self._urgent)

    @property
    def barriers(self) -> Sequence[Barrier]:
        """The barriers that keep their place in the queue, in order. Consumer only."""
        if not self._barriers:  # the usual case, without the lock: a barrier that is put now is seen next time
            return ()
        with self._lock:
            return tuple(self._barriers)

    @property
    def queued(self) -> tuple[Element, ...]:
        """The queued elements, without urgent ones. Consumer only."""
        with self._lock:
            return tuple(map(_batched, self._queue))

    @property
    def ended(self) -> bool:
        """Whether the end of input was put."""
        return self._ended

    @property
    def queued_rows(self) -> int:
        """The number of rows put and not yet taken."""
        return self._queued_rows

    @property
    def queued_bytes(self) -> int:
        """The bytes of these rows; 0 if bytes are not counted."""
        return self._queued_bytes

    def __len__(self) -> int:
        """Return the number of queued elements, urgent ones included."""
        return len(self._queue) + len(self._urgent)

    def put(self, element: Element) -> None:
        """Append ``element``; an urgent one overtakes all queued ones. Producer only; never blocks."""
        with self._lock:
            assert not self._ended, f"channel {self.name}: {element} after the end of input"
            if isinstance(element, Cancel) or (self.overtakable and isinstance(element, Barrier) and element.unaligned):
                self._urgent.append((element, self._put))
            else:
                self._append(element)
        if self.on_put is not None:
            self.on_put()

    def take(self, max_rows: int | None = None) -> Element:
        """Remove and return the head. Consumer only, and only if there is one.

        Of a batch of more than ``max_rows`` rows, that many are taken, as a slice; the rest stays at the head, where it
        uses the credit of one batch. Of signed changes more are taken if the cut would part a row that is taken back
        from the one that replaces it.
        """
        with self._lock:
            assert self._queue, f"channel {self.name}: nothing to take"
            element = self._queue[0]
            if isinstance(element, Data) and max_rows is not None and len(element.rows) > max_rows:
                head = _as_batch(element)
                rows = end_of_change(head.rows, max_rows) if self._is_signed else max_rows
            else:
                head, rows = None, 0
            if head is not None and rows < len(head.rows):
                element, freed = self._cut(head, rows)
            else:
                self._remove_head(element)
                freed = isinstance(element, Data)
        if freed and self.awaited:
            self.awaited = False
            if self.on_take is not None:
                self.on_take()
        return _batched(element)

    def _remove_head(self, element: Element) -> None:
        self._queue.popleft()
        self._taken += 1
        if isinstance(element, Data):
            self._queued_batches -= 1
            self._queued_rows -= len(element.rows)
            self._queued_bytes -= self._sizes.popleft()
            assert self._queued_batches or not self._queued_bytes, (
                f"channel {self.name}: {self._queued_bytes} bytes left"
            )
        elif isinstance(element, Barrier):
            self._barriers.popleft()

    def _cut(self, head: Data, rows: int) -> tuple[Data, bool]:
        """Return the first ``rows`` of the head, whose rest stays, and whether that gave credit back."""
        batch: Any = head.rows
        had_bytes, size = self._has_bytes, self._sizes[0] * rows // len(batch)
        self._queue[0] = Data(batch.slice(rows), head.epoch)
        self._queued_rows -= rows
        self._queued_bytes -= size
        self._sizes[0] -= size
        return Data(batch.slice(0, rows), head.epoch), self._has_bytes and not had_bytes

    def take_urgent(self) -> tuple[Element, tuple[Element, ...]]:
        """Remove the first urgent element; return it and the elements it overtook, which stay queued. Consumer only."""
        with self._lock:
            assert self._urgent, f"channel {self.name}: nothing urgent to take"
            element, ahead = self._urgent.popleft()
            passed = zip(self._queue, range(ahead - self._taken), strict=False)
            overtaken = tuple(_batched(queued) for queued, _ in passed)
        return element, overtaken

    def promote(self, barrier: Barrier) -> None:
        """Make a queued barrier urgent: it overtakes all elements queued before it. Consumer only."""
        with self._lock:
            assert self.overtakable, f"channel {self.name}: {barrier} was promoted, but no barrier may overtake here"
            index = next(i for i, element in enumerate(self._queue) if element is barrier)
            del self._queue[index]
            self._barriers = deque(other for other in self._barriers if other is not barrier)
            self._put -= 1
            place = self._taken + index
            before = [(element, ahead) for element, ahead in self._urgent if ahead <= place]
            after = [(element, ahead - 1) for element, ahead in self._urgent if ahead > place]
            self._urgent = deque([*before, (barrier, place), *after])

    def preload(self, elements: Iterable[Element]) -> None:
        """Queue restored channel state, in order, before the first put. It needs no credit, but uses it."""
        with self._lock:
            assert self._put == 0, f"channel {self.name}: preloaded after {self._put} elements were put"
            for element in elements:
                self._append(element)

    def _append(self, element: Element) -> None:
        match element:
            case Data(rows=rows):
                self.batches += 1
                self.rows += len(rows)
                self._queued_rows += len(rows)
                size = self._measured(rows)
                self._queued_bytes += size
                if self._joins(element):
                    self.joined += 1
                    self._sizes[-1] += size
                    return
                self._queued_batches += 1
                self._sizes.append(size)
            case Watermark(time=time) if self._ends_in_watermark():
                tail = self._queue[-1]
                assert isinstance(tail, Watermark), (
                    f"channel {self.name}: expected a watermark at the tail, found {tail}"
                )
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

    def _measured(self, rows: Any) -> int:
        """Return the bytes of ``rows``, and count it if it is larger than the credit."""
        if self._byte_credit is None:
            return 0
        size = self._row_bytes.of(rows)
        self.larger += size > self._byte_credit
        return size

    def _joins(self, element: Data) -> bool:
        """Join ``element`` with the rows at the tail, if the policy allows it; return whether it did."""
        # Not if an urgent element waits: it must not overtake rows that were put after it.
        tail = self._queue[-1] if self._queue and not self._urgent else None
        if not isinstance(tail, Data) or tail.epoch != element.epoch:
            return False
        waiting: Any = tail.rows
        batch: Any = element.rows
        if not may_join(waiting, batch, self.join, fixed_width=self._fixed_width):
            return False
        if isinstance(waiting, Pile):
            waiting.add(batch)
        else:
            self._queue[-1] = Data(Pile([waiting, batch]), tail.epoch)
        return True

    def _ends_in_watermark(self) -> bool:
        # Not if an urgent element waits: a watermark that was put after it must not be taken before it.
        return bool(self._queue) and not self._urgent and isinstance(self._queue[-1], Watermark)


def _batched(element: Element) -> Element:
    """Return ``element``; joined rows as one batch."""
    return _as_batch(element) if isinstance(element, Data) else element


def _as_batch(data: Data) -> Data:
    return Data(data.rows.joined(), data.epoch) if isinstance(data.rows, Pile) else data
