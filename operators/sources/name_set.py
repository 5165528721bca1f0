"""A set of file names, kept as a 64-bit hash of each: 8 bytes a name in memory, 10.7 characters in a checkpoint.

Two of n names have the same hash with a probability of about n²/2⁶⁵: 3e-8 for a million names. The second of two such
names would count as a member.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

__all__ = ["Hashes", "NameSet", "hashes_of"]

Hashes = npt.NDArray[np.uint64]

_STORED: Final = np.dtype("<u8")


def hashes_of(names: Iterable[str]) -> Hashes:
    """Return the hash (xxh3) of each name; names that are not UTF-8 have one, too.

    >>> int(hashes_of(["a.csv"])[0])
    11523868497570499018
    """
    encoded = (name.encode("utf-8", "surrogateescape") for name in names)
    return np.fromiter(map(xxhash.xxh3_64_intdigest, encoded), np.uint64)


class NameSet:
    """A set of names that can be tested for hashes of names, and stored as text.

    >>> names = NameSet()
    >>> names.add("a.csv")
    >>> NameSet(names.stored).contains(hashes_of(["a.csv", "b.csv"])).tolist()
    [True, False]

    Raises: ValueError for text that encodes no set.
    """

    def __init__(self, stored: str = "") -> None:
        try:
            data = base64.b64decode(stored, validate=True)
            self._hashes: Hashes = np.frombuffer(data, _STORED).astype(np.uint64)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"not the base64 of 64-bit hashes: {error}") from error
        if np.any(self._hashes[:-1] >= self._hashes[1:]):
            raise ValueError("not the base64 of ascending 64-bit hashes")
        self._added: list[int] = []  # since _hashes was computed
        self._stored: str | None = stored

    def __len__(self) -> int:
        return len(self._sorted())

    def add(self, name: str) -> None:
        self._added.append(xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape")))
        self._stored = None

    def contains(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Return for each hash whether a name with it is in the set."""
        return _contains(self._sorted(), hashes)

    def retain(self, hashes: Hashes) -> None:
        """Drop the names whose hash is not among ``hashes``."""
        mine = self._sorted()
        rest = mine[_contains(np.sort(hashes), mine)]
        if len(rest) < len(mine):
            self._hashes, self._stored = rest, None

    def any_of(self, hashes: Hashes) -> bool:
        """Return whether one of ``hashes`` belongs to a name in the set."""
        return bool(self.contains(hashes).any())

    @property
    def stored(self) -> str:
        """The set as text: base64 of its ascending little-endian hashes. Encoded again only if the set changed."""
        if self._stored is None:
            self._stored = base64.b64encode(self._sorted().astype(_STORED).tobytes()).decode()
        return self._stored

    def _sorted(self) -> Hashes:
        if self._added:
            self._hashes = np.union1d(self._hashes, np.array(self._added, np.uint64))
            self._added = []
        return self._hashes


def _contains(ascending: Hashes, hashes: Hashes) -> npt.NDArray[np.bool_]:
    if not len(ascending):
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(ascending, hashes), len(ascending) - 1)
    return np.asarray(ascending[places] == hashes)
