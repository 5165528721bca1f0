"""Which rows a restore would deliver twice: red messages accepted by a white machine (Dijkstra, EWD 864a).

A machine is *white* for checkpoint n until it takes snapshot n; a row is *red* for n when its epoch is at least n, that
is when the source sent it behind barrier n. A red row taken by a white machine is in the snapshot, and the source will
send it again after a restore.

Invariant: only rows of an epoch at or above ``floor`` are kept; no later snapshot can count the others.
Invariant: with a ``sample``, no more batches of rows are held per key and epoch than it takes to have that many rows;
of the others only the number of rows is kept, as ``Omitted``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dataflow.events import Data

__all__ = ["Omitted", "RedLog"]

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Omitted:
    """Stands for rows that were counted and not kept."""

    rows: int

    def __len__(self) -> int:
        return self.rows


class RedLog(Generic[Key]):
    """Remembers the rows taken, per key (a channel, an operator), that some coming snapshot may have to report.

    The ``Data`` objects are kept by reference, rows included, until a ``take`` or ``forget`` lets them go; with a
    ``sample``, only the first so many rows of each key and epoch, and ``Omitted`` for the rest.

    >>> log = RedLog()
    >>> log.record("a", Data(["white"], epoch=0))
    >>> log.record("a", Data(["red"], epoch=1))
    >>> log.take(1)
    {'a': (Data(rows=['red'], epoch=1),)}
    >>> log.take(2)
    {}
    """

    __slots__ = ("_floor", "_held", "_rows", "_sample")

    def __init__(self, sample: int | None = None) -> None:
        self._floor = 1
        self._rows: dict[Key, list[Data]] = {}
        self._sample = sample
        self._held: dict[tuple[Key, int], int] = {}

    @property
    def floor(self) -> int:
        """The lowest epoch that may still matter; it never falls."""
        return self._floor

    def record(self, key: Key, data: Data) -> None:
        """``data`` was taken under ``key``, after everything recorded before."""
        if data.epoch < self._floor:
            return
        if self._sample is not None:
            held = self._held.get((key, data.epoch), 0)
            if held >= self._sample:
                data = Data(Omitted(len(data.rows)), data.epoch)
            else:
                self._held[key, data.epoch] = held + len(data.rows)
        self._rows.setdefault(key, []).append(data)

    def red(self, key: Key, checkpoint: int) -> int:
        """How many rows (batches) under ``key`` are red for ``checkpoint``."""
        return sum(data.epoch >= checkpoint for data in self._rows.get(key, ()))

    def take(self, checkpoint: int) -> dict[Key, tuple[Data, ...]]:
        """The rows that snapshot ``checkpoint``, taken now, holds too much; per key, in order taken.

        Keys with none are absent. Rows of a higher epoch stay, for they are red for later snapshots too.
        """
        red = {key: tuple(data for data in rows if data.epoch >= checkpoint) for key, rows in self._rows.items()}
        self.forget(checkpoint + 1)
        return {key: rows for key, rows in red.items() if rows}

    def forget(self, below: int) -> None:
        """No snapshot below ``below`` will be taken any more: let the rows go that only mattered to those."""
        if below <= self._floor:
            return
        self._floor = below
        kept = {key: [data for data in rows if data.epoch >= below] for key, rows in self._rows.items()}
        self._rows = {key: rows for key, rows in kept.items() if rows}
        self._held = {(key, epoch): held for (key, epoch), held in self._held.items() if epoch >= below}

    def validate(self) -> None:
        """Walk the invariant."""
        for key, rows in self._rows.items():
            assert rows, f"an empty entry for {key!r}"
            low = min(data.epoch for data in rows)
            assert low >= self._floor, f"{key!r} keeps epoch {low}, below the floor {self._floor}"
