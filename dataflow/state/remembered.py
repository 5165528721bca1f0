"""What was found out about the dictionaries of the last batches, so that each is looked at once.

Slices of one batch share a dictionary: the same rows of the same buffers. Batches of one row group have equal ones, for
readers make a copy for each batch; to compare texts is much less work than to look each of them up. A task that reads
several channels sees a few dictionaries in turn.

>>> remembered = Remembered[str]()
>>> dictionary = pa.array(["x", "y"])
>>> remembered.of(dictionary, lambda: "made"), remembered.of(dictionary, lambda: "made again")
('made', 'made')
>>> remembered.of(pa.array(["x", "y"]), lambda: "made again")
'made'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa

from dataflow.state.arrays import is_bytes

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
        """What ``make`` answered for this dictionary, or an equal one, the first time."""
        addresses = [None if buffer is None else buffer.address for buffer in dictionary.buffers()]
        identity = (dictionary.offset, len(dictionary), *addresses)
        entry = self._found.pop(identity, None)
        if entry is None:
            known = self._equal(dictionary)
            entry = (dictionary, make() if known is None else known[1])
            if len(self._found) >= KEPT:
                del self._found[next(iter(self._found))]
        self._found[identity] = entry
        return entry[1]

    def _equal(self, dictionary: pa.Array) -> tuple[pa.Array, _T] | None:
        """The newest entry whose values are the same bytes. (Equal floats need not be: 0.0 and -0.0 are.)"""
        if not is_bytes(dictionary.type):
            return None
        found = reversed(self._found.values())
        return next((e for e in found if len(e[0]) == len(dictionary) and e[0].equals(dictionary)), None)
