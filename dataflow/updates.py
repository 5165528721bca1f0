"""Rows or updates: the meaning of the rows of a stream, and which operators may take updates. Pure.

In a stream of rows each row counts. In a stream of updates (a changelog) only the last row of each update key counts,
and how many earlier ones there are depends on how the input was cut into batches. So an operator may take updates only
if earlier updates do not affect the last row of each key: it treats all rows of a key alike and keeps the key.

Invariant: all updates of a key take the same way, so they never overtake each other. They are hashed on the update keys
(or some of them) wherever they move between subtasks; see ``dataflow.plan``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from dataflow.errors import GraphError
from dataflow.expressions import Expr
from dataflow.specs import Aggregate, Emit, Filter, Project, Spec, WindowAggregate, Write

__all__ = ["Changes", "Updates", "check_updates", "refused_updates", "updates_of"]

Changes = Literal["rows", "updates"]
"""Whether each row of a stream counts, or only the last one of each update key."""


@dataclass(frozen=True, slots=True)
class Updates:
    """The keys by which rows of a changelog replace each other.

    ``names`` has the columns of the stream that hold each update key: more than one if there are copies. The keys are
    in the order of ``aggregate``, the operator that emits the updates. ``because`` says why it emits updates by
    default; it is empty if the pipeline asks for them.
    """

    names: tuple[tuple[str, ...], ...]
    aggregate: str
    because: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """One column for each update key: the one that was not renamed, if it is still there."""
        return tuple(names[0] for names in self.names)

    def others(self, columns: Iterable[str]) -> list[str]:
        """Return those of ``columns`` that hold no update key."""
        keys = {name for names in self.names for name in names}
        return [column for column in columns if column not in keys]


def updates_of(spec: Spec, name: str, inputs: Sequence[Updates | None]) -> Updates | None:
    """Return the updates that operator ``name`` has as its main output; None: each row counts."""
    match spec:
        case Aggregate(keys=keys, emit=Emit.UPDATES, because=because):
            return Updates(_once(keys), name, because)
        case WindowAggregate(keys=keys, emit=Emit.UPDATES, because=because):
            return Updates(_once((*keys, "window_start", "window_end")), name, because)
        case Filter() | Write():
            return inputs[0]
        case Project(columns=columns):
            updates = inputs[0]
            if updates is None:
                return None
            names = tuple(_names_of(held, columns) for held in updates.names)
            assert all(names), f"{name}: a key of {updates} was dropped, and nothing refused that"
            return replace(updates, names=names)
        case _:
            return None


def check_updates(word: str, spec: Spec, inputs: Iterable[Updates | None]) -> None:
    """Raise GraphError if an operator takes updates and would count them as rows; ``word`` names it in the message."""
    for updates in inputs:
        if updates is None:
            continue
        match spec:
            case Write():
                pass
            case Filter(predicate=predicate):
                if others := updates.others(predicate.columns()):
                    problem = (
                        f"the condition reads {_listed(others)}, which is not an update key, so it may drop the last "
                        "row of a key and keep one that was replaced"
                    )
                    raise refused_updates(word, updates, problem)
            case Project(columns=columns):
                if lost := [held[0] for held in updates.names if not _names_of(held, columns)]:
                    raise refused_updates(word, updates, f"it drops or changes the update key {_listed(lost)}")
            case _:
                raise refused_updates(word, updates, "it would count rows that a later row replaces")


def refused_updates(word: str, updates: Updates, problem: str) -> GraphError:
    """Return the error for ``word``, which cannot take ``updates`` because of ``problem``."""
    because = f" That is its default because {updates.because}." if updates.because else ""
    return GraphError(
        f"{word}: {problem}. {updates.aggregate!r} emits updates: of the rows with equal {_listed(updates.keys)} only "
        f'the last one counts.{because} For one row per key, write .agg(..., emit="final") at {updates.aggregate!r}; '
        f"to count every update as a row, put .as_rows() before .{word}(...)"
    )


def _once(keys: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((key,) for key in keys)


def _names_of(held: Sequence[str], columns: Iterable[Expr]) -> tuple[str, ...]:
    """Return the names of ``columns`` that are one of the input columns ``held``; one that stays as it was leads."""
    names = [column.name for column in columns if any(column.is_column(name) for name in held)]
    return tuple(sorted(names, key=lambda name: name != held[0]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
