"""Rows or updates: the meaning of the rows of a stream. Pure. Each spec decides what it emits for updates
(``changes``).

In a stream of rows each row counts. In a stream of updates (a changelog) only the last row of each update key counts,
and how many earlier ones there are depends on how the input was cut into batches. So an operator may take updates only
if earlier updates do not affect the last row of each key: it treats all rows of a key alike and keeps the key.

Invariant: all updates of a key take the same path, so they never overtake each other. They are hashed on the update
keys (or some of them) wherever they move between subtasks; see ``dataflow.planning.physical_plan``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from dataflow.errors import GraphError

__all__ = ["Changes", "Updates", "quoted_names", "updates_error"]

Changes = Literal["rows", "updates"]
"""Whether each row of a stream counts, or only the last one of each update key."""


@dataclass(frozen=True, slots=True)
class Updates:
    """The keys by which rows of a changelog replace each other.

    ``names`` has the columns of the stream that hold each update key: more than one if there are copies. The keys are
    in the order of ``aggregate``, the operator that emits the updates. ``because`` is the reason why it emits updates
    by default; it is empty if the pipeline asks for them.
    """

    names: tuple[tuple[str, ...], ...]
    aggregate: str
    because: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """One column for each update key: the one that was not renamed, if the stream still has it."""
        return tuple(names[0] for names in self.names)

    @staticmethod
    def by(keys: Iterable[str], aggregate: str, because: str = "") -> Updates:
        """Return the updates of ``aggregate`` with these keys."""
        return Updates(tuple((key,) for key in keys), aggregate, because)

    def others(self, columns: Iterable[str]) -> list[str]:
        """Return the columns among ``columns`` that hold no update key."""
        keys = {name for names in self.names for name in names}
        return [column for column in columns if column not in keys]


def quoted_names(names: Iterable[str]) -> str:
    """Return the names in quotes, separated by commas.

    >>> quoted_names(["k", "window_start"])
    "'k', 'window_start'"
    """
    return ", ".join(map(repr, names))


def updates_error(method: str, updates: Updates, problem: str) -> GraphError:
    """Return the error for ``method``, which cannot take ``updates`` because of ``problem``."""
    because = f" That is its default because {updates.because}." if updates.because else ""
    return GraphError(
        f"{method}: {problem}. {updates.aggregate!r} emits updates: of the rows with equal "
        f"{quoted_names(updates.keys)} only the last one counts.{because} For one row per key, write "
        f'.agg(..., emit="final") at {updates.aggregate!r}; '
        f"to count every update as a row, put .as_rows() before .{method}(...)"
    )
