"""A cache of values computed from the dictionaries of the last batches, so that each dictionary is processed once.

Slices of one batch share a dictionary: the same rows of the same buffers. Batches of one row group have equal ones,
because readers make a copy for each batch; comparing the texts is much less work than looking each of them up. A task
that reads several channels receives a few dictionaries in turn.

>>> remembered = Remembered[str]()
>>> dictionary = pa.array(["x", "y"])
>>> remembered.of(dictionary, lambda: "computed"), remembered.of(dictionary, lambda: "computed again")
('computed', 'computed')
>>> remembered.of(pa.array(["x", "y"]), lambda: "computed again")
'computed'
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import pyarrow as pa

from dataflow.state.arrays import is_bytes

__all__ = ["Remembered"]

_T = TypeVar("_T")

KEPT = 8
"""Maximum number of cached dictionaries. The cache keeps them alive, and they may be large."""


class Remembered(Generic[_T]):
    """A cache with one value for each of the last dictionaries, which all have one type.

    A cached dictionary stays alive, so its addresses are not reused: equal addresses mean equal contents.
    """

    def __init__(self) -> None:
        self._entries: dict[tuple[int | None, ...], tuple[pa.Array, _T]] = {}  # least recently used first

    def of(self, dictionary: pa.Array, make: Callable[[], _T]) -> _T:
        """Return the cached value of this dictionary, or of an equal one; call ``make`` if there is none."""
        addresses = [None if buffer is None else buffer.address for buffer in dictionary.buffers()]
        identity = (dictionary.offset, len(dictionary), *addresses)
        entry = self._entries.pop(identity, None)
        if entry is None:
            equal = self._equal(dictionary)
            entry = (dictionary, make() if equal is None else equal[1])
            if len(self._entries) >= KEPT:
                del self._entries[next(iter(self._entries))]
        self._entries[identity] = entry
        return entry[1]

    def _equal(self, dictionary: pa.Array) -> tuple[pa.Array, _T] | None:
        """Return the newest entry with the same bytes. (Equal floats may differ in bytes: 0.0 and -0.0 are equal.)"""
        if not is_bytes(dictionary.type):
            return None
        entries = reversed(self._entries.values())
        return next((e for e in entries if len(e[0]) == len(dictionary) and e[0].equals(dictionary)), None)
