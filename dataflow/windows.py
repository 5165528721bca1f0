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

__all__ = ["Tumbling", "tumbling"]


@dataclass(frozen=True, slots=True)
class Tumbling:
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
    if size == 0:
        raise ConfigurationError("tumbling(every): a window is longer than 0")
    return Tumbling(size, microseconds(offset, "tumbling(offset=)") % size)
