"""A watched directory: its listings, and the files to read among them."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from dataflow.errors import SourceError
from operators.sources.files import Entry, Files, Status
from operators.sources.known_file import UNREADABLE
from operators.sources.name_set import Hashes, NameSet, hashes_of
from operators.sources.paths import advice, has_suffix, left_out

__all__ = ["Listing", "WatchedDirectory", "reading_order"]

_UNFINISHED: Final = (".tmp", ".staged", ".part", "~")


def reading_order(file: Status) -> tuple[int, str]:
    """Return the sort key of a file: its time of modification, then its name."""
    return file.modified or 0, file.name


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries of a directory at one moment, by name, and the hashes of the names.

    ``directory`` is the number that its file system gives it; None if the directory was replaced while it was listed,
    or if the file system has no such numbers.
    """

    directory: int | None
    entries: Mapping[str, Entry]
    hashes: Hashes


@dataclass(frozen=True, slots=True)
class WatchedDirectory:
    """The directory at ``path``, and which of its files one reader reads.

    These are the finished files that fit ``pattern``, or else end in ``suffixes`` (none: all files), and whose hash of
    the name is ``part`` modulo ``parts``. The reader lists the directory at most once in
    ``every`` microseconds and keeps the identities of ``remember`` files.
    """

    path: str
    where: Files
    pattern: str | None
    suffixes: tuple[str, ...]
    every: int
    remember: int
    part: int = 0
    parts: int = 1
    warned: bool = False
    """Whether files that are left out were named when the source was made."""

    def listing(self) -> Listing:
        """Return the entries that the directory has now. Raises: SourceError."""
        try:
            before = self.where.directory(self.path)
            entries = self.where.listed(self.path)
            after = self.where.directory(self.path)
        except UNREADABLE as error:
            raise self._unlisted(error) from error
        return Listing(before if before == after else None, entries, hashes_of(entries))

    def wanted(self, listing: Listing, read: NameSet) -> list[Status]:
        """Return the listed files of this part that are to be read and not in ``read``.

        Raises: SourceError, also for a pipe, a socket or a device.
        """
        names = [name for name in self._new(listing, read) if self._is_wanted(name)]
        found = {name: self.status(listing.entries[name]) for name in names}
        for name in (name for name, file in found.items() if file is None):
            self.where.check_regular(self.path_of(name))
        return [file for file in found.values() if file is not None]

    def left_out(self, listing: Listing, read: NameSet) -> list[str]:
        """Return the finished files of this part, except those in ``read``, whose names have other suffixes.

        Raises: SourceError.
        """
        others = [name for name in self._new(listing, read) if _is_finished(name) and not self._is_wanted(name)]
        return [name for name in others if self.pattern is None and self.status(listing.entries[name]) is not None]

    def _new(self, listing: Listing, read: NameSet) -> list[str]:
        """Return the listed names of this part that are not in ``read``."""
        mine = listing.hashes % np.uint64(self.parts) == np.uint64(self.part)
        new = np.flatnonzero(mine & ~read.contains(listing.hashes))
        names = list(listing.entries) if len(new) else []
        return [names[at] for at in new.tolist()]

    def wants(self, name: str) -> bool:
        """Return whether a file of this name is to be read, and belongs to this part."""
        return self._is_wanted(name) and int(hashes_of([name])[0]) % self.parts == self.part

    def status(self, entry: Entry) -> Status | None:
        """Return the status of a listed file; None if it is gone, or is not a file. Raises: SourceError."""
        try:
            return self.where.status_of(entry)
        except OSError as error:
            raise self._unlisted(error) from error

    def _unlisted(self, error: Exception) -> SourceError:
        return SourceError(f"watch({self.path!r}): cannot be listed: {error}; check the path")

    def _is_wanted(self, name: str) -> bool:
        if self.pattern is not None:
            return _is_finished(name) and fnmatch.fnmatchcase(name, self.pattern)
        return _is_finished(name) and (not self.suffixes or has_suffix(name, self.suffixes))

    def named(self, files: Sequence[str]) -> str:
        """Return the text of a warning that ``files`` are left out."""
        to_read = "pattern={} reads these instead, pattern='*' all files"
        return left_out(f"watch({self.path!r})", self.suffixes, files, advice(files, lambda pattern: pattern, to_read))

    def path_of(self, name: str) -> str:
        """Return the path of the file of this name."""
        return self.where.join(self.path, name)


def _is_finished(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(_UNFINISHED)
