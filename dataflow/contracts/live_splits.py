"""What operators that compute watermarks ask of the source task that they are part of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

__all__ = ["HeldBySplit", "LiveSplits", "Silence", "TimesSplits"]


class LiveSplits(Protocol):
    """The splits of a source task, as operators that compute watermarks need them."""

    @property
    def current(self) -> str:
        """The split of the rows at hand."""
        ...

    @property
    def current_batch(self) -> int:
        """The number of the source's batch to which the rows at hand belong; a batch that is cut keeps its number."""
        ...

    def next_batch(self, split: str) -> int:
        """Return the number of the batch to which the split's next rows belong: the last one again, if it was cut."""
        ...

    def all(self) -> Sequence[str]:
        """Return every split of this task, ended ones included."""
        ...

    def live(self) -> Sequence[str]:
        """Return the splits that have not ended, including those not begun."""
        ...

    def ended_splits(self) -> Sequence[str]:
        """Return the splits that have ended, in the order in which they did. The list only grows."""
        ...

    def earliest(self, split: str, column: str) -> int | None:
        """Return a time before which the source's ``column`` has no value in ``split``: see ``Source.earliest``."""
        ...

    def quiet(self, split: str) -> int:
        """Return the microseconds since the last row of ``split`` during which it was polled and gave none."""
        ...

    def reached(self, clock: str, time: int | None, drift: int) -> None:
        """Report that this task is at ``time`` by ``clock``.

        The task reads on only while no other task is more than ``drift`` behind it. Microseconds. None: no task has to
        wait for this one.
        """
        ...


@dataclass(frozen=True, slots=True)
class Silence:
    """What a split without rows does to time.

    Attributes:
        idle_after: microseconds after which it no longer holds the watermark back; None: never.
        close_after: microseconds after which its watermark follows the clock; None: never.
    """

    idle_after: int | None = None
    close_after: int | None = None


@runtime_checkable
class TimesSplits(Protocol):
    """An operator that makes watermarks of rows that another engine has read, and is asked for them after the rows."""

    def split_times(self) -> Mapping[str, int]:
        """Return the watermark of each split that had rows, in microseconds."""
        ...


@runtime_checkable
class HeldBySplit(Protocol):
    """An operator that makes watermarks and knows which split holds them back."""

    @property
    def held_by(self) -> str | None:
        """The first split that holds the watermark back; None: there is none."""
        ...
