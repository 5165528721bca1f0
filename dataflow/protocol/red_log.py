"""The rows a restore would deliver twice: red messages accepted by a white machine (Dijkstra, EWD 864a).

A machine is *white* for checkpoint n until it takes snapshot n. A row is *red* for n if its epoch is at least n, that
is if the source sent it after barrier n. A red row taken by a white machine is in the snapshot, and the source will
send it again after a restore.

Invariant: only rows of an epoch at or above ``floor`` are kept; no later snapshot can count the others.
Invariant: with a ``sample``, no more batches of rows are held per key and epoch than it takes to have that many rows;
of the others only the number of rows is kept, as ``Omitted``.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from dataflow.protocol.events import Data

__all__ = ["Omitted", "RedLog"]

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Omitted:
    """A placeholder for rows that were counted but not kept."""

    rows: int

    def __len__(self) -> int:
        return self.rows


class RedLog(Generic[Key]):
    """The rows taken, per key (a channel, an operator), that a later snapshot may have to report.

    ``Data`` objects are kept by reference, rows included, until ``take`` or ``forget`` drops them. With a ``sample``,
    only the first ``sample`` rows of each key and epoch are kept, and ``Omitted`` for the rest.

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
        """The lowest epoch of which rows are kept; it never decreases."""
        return self._floor

    def record(self, key: Key, data: Data) -> None:
        """Record ``data`` under ``key``, in the order in which rows are taken."""
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
        """Return the number of batches under ``key`` that are red for ``checkpoint``."""
        return sum(data.epoch >= checkpoint for data in self._rows.get(key, ()))

    def take(self, checkpoint: int) -> dict[Key, tuple[Data, ...]]:
        """Return the red rows that are in snapshot ``checkpoint``, taken now; per key, in the order taken.

        Keys without rows are absent. Rows of a higher epoch stay, because they are red for later snapshots too.
        """
        red = {key: tuple(data for data in rows if data.epoch >= checkpoint) for key, rows in self._rows.items()}
        self.forget(checkpoint + 1)
        return {key: rows for key, rows in red.items() if rows}

    def forget(self, below: int) -> None:
        """Drop the rows that only snapshots below ``below`` would report, because none will be taken any more."""
        if below <= self._floor:
            return
        self._floor = below
        later = {key: [data for data in rows if data.epoch >= below] for key, rows in self._rows.items()}
        self._rows = {key: rows for key, rows in later.items() if rows}
        self._held = {(key, epoch): held for (key, epoch), held in self._held.items() if epoch >= below}

    def validate(self) -> None:
        """Assert the invariants."""
        for key, rows in self._rows.items():
            assert rows, f"an empty entry for {key!r}"
            low = min(data.epoch for data in rows)
            assert low >= self._floor, f"{key!r} keeps epoch {low}, below the floor {self._floor}"
