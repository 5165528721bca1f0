"""Windows of event time: how it is cut into pieces, each with a number. Pure arithmetic on integer microseconds.

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
"""So that a window fits into the nanoseconds of 64 bits, too."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """``column`` says when a row happened. ``exclusive``: right before that, for it is the end of a window.

    So a row for a whole window falls into the windows of whatever size that its last moment falls into, and is never
    late there, for it comes before the watermark that brought it out.
    """

    column: str
    exclusive: bool = False

    @property
    def back(self) -> int:
        """How many units of the column the event lies before its value."""
        return 1 if self.exclusive else 0


class Window:
    """A kind of window of event time."""


@dataclass(frozen=True, slots=True)
class Tumbling(Window):
    """Windows of one size, side by side; ``offset`` moves their edges away from the epoch. Microseconds."""

    size: int
    offset: int = 0

    def __str__(self) -> str:
        return f"tumbling({self.size}us, offset={self.offset}us)"

    def number(self, time: int) -> int:
        """The window that ``time`` falls into."""
        return (time - self.offset) // self.size

    def start(self, number: int) -> int:
        """The first time of a window."""
        return self.offset + number * self.size

    def end(self, number: int) -> int:
        """The first time behind a window."""
        return self.start(number + 1)

    def complete(self, watermark: int) -> int:
        """The last window that ends at or before ``watermark``."""
        return self.number(watermark) - 1


def tumbling(every: Duration, *, offset: Duration = "0s") -> Tumbling:
    """Windows of event time side by side, each ``every`` long: ``stream.key_by("k").window(op.tumbling("10s"))``.

    Edges lie at whole multiples of ``every`` since 1970-01-01 (UTC, or the clock on the wall where the column has no
    zone), moved by ``offset``.

    >>> tumbling("1h", offset="15min").start(0) == 15 * 60 * 1_000_000
    True
    """
    size = microseconds(every, "tumbling(every)")
    if not 0 < size <= LONGEST:
        raise ConfigurationError(f"tumbling(every): a window is longer than 0 and at most 100,000 days, got {every!r}")
    return Tumbling(size, microseconds(offset, "tumbling(offset=)") % size)
