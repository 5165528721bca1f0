"""Numbered windows of event time. Pure arithmetic on integer microseconds.

Window k of size s and offset o covers the times t with ``o + k * s <= t < o + (k + 1) * s``. Numbers may be negative.

>>> windows = Tumbling(10_000_000)
>>> windows.number(-1), windows.start(-1), windows.end(-1)
(-1, -10000000, 0)
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.clock import Duration, microseconds
from dataflow.errors import ConfigurationError

__all__ = ["EventTime", "Tumbling", "Window", "tumbling"]

LONGEST = 100_000 * 86_400_000_000
"""Microseconds; a window of this size still fits into 64 bits of nanoseconds."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """The column that holds the time at which a row happened. ``exclusive``: right before it, because it ends a window.

    A row that is the result of a window thus belongs to the later window, of any size, that contains its last moment.
    It is never late there, because it is emitted before the watermark that completed it.

    >>> EventTime("at").back, EventTime("window_end", exclusive=True).back
    (0, 1)
    """

    column: str
    exclusive: bool = False

    @property
    def back(self) -> int:
        """How many units of the column the event lies before its value: 1 or 0."""
        return 1 if self.exclusive else 0


class Window:
    """The base class of kinds of windows of event time.

    >>> isinstance(tumbling("1h"), Window)
    True
    """


@dataclass(frozen=True, slots=True)
class Tumbling(Window):
    """Adjacent windows of one size; ``offset`` moves their edges away from the epoch. Microseconds.

    >>> hours = Tumbling(3_600_000_000)
    >>> number = hours.number(4_000_000_000)
    >>> number, hours.start(number), hours.end(number)
    (1, 3600000000, 7200000000)
    """

    size: int
    offset: int = 0

    def __str__(self) -> str:
        return f"tumbling({self.size}us, offset={self.offset}us)"

    def number(self, time: int) -> int:
        """Return the number of the window that contains ``time``."""
        return (time - self.offset) // self.size

    def start(self, number: int) -> int:
        """Return the first time of a window."""
        return self.offset + number * self.size

    def end(self, number: int) -> int:
        """Return the first time after a window."""
        return self.start(number + 1)

    def complete(self, watermark: int) -> int:
        """Return the number of the last window that ends at or before ``watermark``."""
        return self.number(watermark) - 1


def tumbling(every: Duration, *, offset: Duration = "0s") -> Tumbling:
    """Return adjacent windows of event time, each ``every`` long: ``stream.key_by("k").window(op.tumbling("10s"))``.

    Edges are whole multiples of ``every`` since 1970-01-01 (UTC, or local time if the column has no time zone), moved
    by ``offset``.

    Args:
        every: the length of a window, above 0 and at most 100,000 days.
        offset: how far the edges are moved, modulo ``every``.

    Raises: ConfigurationError for a length out of range, or text that is no duration.

    >>> tumbling("1h", offset="15min").start(0) == 15 * 60 * 1_000_000
    True
    """
    size = microseconds(every, "tumbling(every)")
    if not 0 < size <= LONGEST:
        raise ConfigurationError(f"tumbling(every) must be above 0 and at most 100,000 days, got {every!r}")
    return Tumbling(size, microseconds(offset, "tumbling(offset=)") % size)
