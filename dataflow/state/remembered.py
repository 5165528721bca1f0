"""What was found out about the dictionaries of the last batches, so that each is looked at once.

Batches of one row group, and slices of one batch, share a dictionary: the same rows of the same buffers. A task that
reads several channels sees a few of them in turn.

>>> remembered = Remembered[str]()
>>> dictionary = pa.array(["x", "y"])
>>> remembered.of(dictionary, lambda: "made"), remembered.of(dictionary, lambda: "made again")
('made', 'made')
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa

__all__ = ["Remembered"]

_T = TypeVar("_T")

KEPT = 8
"""Dictionaries that are remembered: a dictionary may be large, and is kept alive."""


class Remembered(Generic[_T]):
    """One value for each of the last dictionaries, all of one type.

    Holding a dictionary keeps its addresses from being used again, so the same addresses are the same values.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[int | None, ...], tuple[pa.Array, _T]] = {}  # the one used last comes last

    def of(self, dictionary: pa.Array, make: Callable[[], _T]) -> _T:
        """What ``make`` answered for this dictionary the first time."""
        addresses = [None if buffer is None else buffer.address for buffer in dictionary.buffers()]
        identity = (dictionary.offset, len(dictionary), *addresses)
        entry = self._found.pop(identity, None)
        if entry is None:
            entry = (dictionary, make())
            if len(self._found) >= KEPT:
                del self._found[next(iter(self._found))]
        self._found[identity] = entry
        return entry[1]
