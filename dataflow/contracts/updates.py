"""Rows, updates or signed changes: the meaning of the rows of a stream. Pure. Each spec decides what it emits for
them (``changes``).

In a stream of *rows* each row counts.

In a stream of *updates* (a changelog) only the last row of each update key counts, and how many earlier ones there are
depends on how the input was cut into batches. So an operator may take updates only if earlier updates do not affect the
last row of each key: it treats all rows of a key alike and keeps the key.

In a stream of *signed* changes the column ``change`` says whether a row is added (+1) or an equal row is taken back
(-1). The *net* is what is left: each row as often as its changes add up to. An operator takes signed changes if the net
of its output depends on the net of its input alone. It keeps ``change``.

Invariant: all updates of a key take the same path, so they never overtake each other. They are hashed on the update
keys (or some of them) wherever they move between subtasks; see ``dataflow.planning.physical_plan``. Signed changes may
overtake each other, so for a while a row may be taken back more often than it was added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from dataflow.errors import GraphError

__all__ = ["CHANGE", "Changes", "Meaning", "Signed", "Updates", "meaning_error", "quoted_names", "word_of"]

Changes = Literal["rows", "updates", "signed"]
"""Whether each row of a stream counts, only the last one of each update key, or each as its column ``change`` says."""

CHANGE: Final = "change"
"""The last column of a signed stream: +1, the row is added; -1, an equal row is taken back. Its type is int8."""


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


@dataclass(frozen=True, slots=True)
class Signed:
    """Each row is added or taken back. ``aggregate`` is the operator that emits the changes, ``because`` as above."""

    aggregate: str
    because: str = ""


Meaning = Updates | Signed
"""The meaning of rows of which not each one counts."""


def word_of(meaning: Meaning | None) -> Changes:
    """Return the word for a meaning; None: each row counts.

    >>> word_of(None), word_of(Signed("totals"))
    ('rows', 'signed')
    """
    match meaning:
        case None:
            return "rows"
        case Updates():
            return "updates"
        case Signed():
            return "signed"


def quoted_names(names: Iterable[str]) -> str:
    """Return the names in quotes, separated by commas.

    >>> quoted_names(["k", "window_start"])
    "'k', 'window_start'"
    """
    return ", ".join(map(repr, names))


def meaning_error(method: str, meaning: Meaning, problem: str) -> GraphError:
    """Return the error for ``method``, which cannot take rows of this ``meaning`` because of ``problem``."""
    emitter = repr(meaning.aggregate)
    because = f" That is its default because {meaning.because}." if meaning.because else ""
    match meaning:
        case Updates():
            what = f"emits updates: of the rows with equal {quoted_names(meaning.keys)} only the last one counts"
            each = "every update"
        case Signed():
            what = f"emits signed changes: a row counts as its column {CHANGE!r} says, +1 or -1"
            each = "every change"
    return GraphError(
        f"{method}: {problem}. {emitter} {what}.{because} For one row per key, write "
        f'.agg(..., emit="final") at {emitter}; to count {each} as a row, put .as_rows() before .{method}(...)'
    )
