"""Find the operators and pieces that ``renamed=`` and ``allow_dropped=`` name, in a checkpoint and in a plan. Pure.

A name may be of a change that an earlier restore has made, so that a script can keep it: a new name must be one of the
pipeline; an old one must be in the checkpoint, unless a later name of it is. A name in ``allow_dropped=`` of which
nothing is left has no effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dataflow.contracts.evolution import Changes, PieceChanges, parse_changes
from dataflow.contracts.execution import Execution
from dataflow.errors import ConfigurationError, did_you_mean
from dataflow.planning.graph import Graph

__all__ = ["Resolved", "checked_changes", "of_pieces", "resolve"]


@dataclass(frozen=True, slots=True)
class Resolved:
    """The changes that a user allows, for one checkpoint and one pipeline.

    Attributes:
        operators: new names of operators, by their names in the checkpoint.
        dropped: operators to drop, by their names in the checkpoint.
        pieces: what is allowed for pieces, by the operator's name now.
        unknown: names in ``allow_dropped=`` that neither the checkpoint nor the pipeline has.
    """

    operators: Mapping[str, str] = field(default_factory=dict)
    dropped: Sequence[str] = ()
    pieces: Mapping[str, PieceChanges] = field(default_factory=dict)
    unknown: Sequence[str] = ()


def checked_changes(renamed: object, allow_dropped: object, graph: Graph, execution: Execution) -> Changes:
    """Return the arguments ``renamed=`` and ``allow_dropped=`` of a run, checked as far as no checkpoint is needed.

    Raises: ConfigurationError for other types, circles, names that the pipeline should have, or in a batch.
    """
    changes = parse_changes(renamed, allow_dropped)
    if changes and execution is Execution.BATCH:
        raise ConfigurationError(
            "renamed= and allow_dropped= are for streams: a batch keeps no state of operators, so there is nothing to "
            "rename or to drop; leave them out"
        )
    if changes:
        _Names((), graph, changes).check()
    return changes


def resolve(nodes: Sequence[Mapping[str, Any]], graph: Graph, changes: Changes) -> Resolved:
    """Return the changes by operator; ``nodes`` are the operators of the checkpoint.

    Raises: ConfigurationError for names that cannot be.
    """
    return _Names(nodes, graph, changes).resolved() if changes else Resolved()


def of_pieces(operator: str, resolved: Resolved, stored: Collection[str], now: Collection[str]) -> PieceChanges:
    """Return the changes of pieces of ``operator`` that are still to be made.

    Args:
        operator: its name now.
        resolved: all changes.
        stored: the names of its pieces in the checkpoint.
        now: those in the pipeline.

    Raises: ConfigurationError for a new name that the pipeline does not have, and an old one that it still has or that
        the checkpoint does not have.
    """
    allowed = resolved.pieces.get(operator, PieceChanges())
    renamed: dict[str, str] = {}
    for old, new in allowed.renamed.items():
        where = f'renamed= gives "{operator}.{old}" the name "{operator}.{new}"'
        if new not in now:
            raise ConfigurationError(
                f"{where}, but the pipeline has no such piece of {operator!r}{did_you_mean(new, now)}; it has "
                f"{[*now] or 'none that can be renamed'}"
            )
        if old in now:
            raise ConfigurationError(f"{where}, but the pipeline still has {old!r}: only what is gone can have another")
        if old in stored and new in stored:
            raise ConfigurationError(f"{where}, but the checkpoint has both: drop one of them with allow_dropped=")
        if old not in stored and new not in stored:
            raise ConfigurationError(
                f"{where}, but the checkpoint has neither{did_you_mean(old, stored)}; it has {[*stored]}"
            )
        if old in stored:
            renamed[old] = new
    return PieceChanges(renamed, frozenset(name for name in allowed.dropped if name in stored))


class _Names:
    """The names of operators in a checkpoint and in a pipeline."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], graph: Graph, changes: Changes) -> None:
        self._stored = {str(node["name"]): bool(node["stateful"]) for node in nodes}
        self._now = {node.name: node.stateful for node in graph}
        self._changes = changes
        self._last = {old: [*_path(old, changes.renamed)][-1] for old in changes.renamed}

    def check(self) -> dict[str, dict[str, str]]:
        """Check the names that the pipeline should have or not have; return the new names of pieces, by operator.

        Raises: ConfigurationError.
        """
        pieces: dict[str, dict[str, str]] = {}
        for old, new in self._last.items():
            if new not in self._now:
                operator, before, after = self._piece(old, new)
                pieces.setdefault(operator, {})[before] = after
            elif old in self._now:
                raise ConfigurationError(
                    f"renamed= gives {old!r} the name {new!r}, but the pipeline still has an operator {old!r}: only an "
                    "operator that is gone can have another name"
                )
        return pieces

    def resolved(self) -> Resolved:
        """Return the changes. Raises: ConfigurationError."""
        renamed = self.check()
        operators = self._operators()
        dropped: list[str] = []
        pieces: dict[str, set[str]] = {}
        unknown = []
        for name in dict.fromkeys(self._changes.allow_dropped):
            operator, piece = _split(name, {*self._stored, *self._now, *self._last})
            if name in self._stored or name in self._now:
                if self._stored.get(name) and not self._now.get(name):
                    dropped.append(name)
            elif operator:
                pieces.setdefault(self._last.get(operator, operator), set()).add(piece)
            else:
                unknown.append(name)
        own = {
            name: PieceChanges(renamed.get(name, {}), frozenset(pieces.get(name, ()))) for name in {**renamed, **pieces}
        }
        return Resolved(operators, dropped, own, unknown)

    def _operators(self) -> dict[str, str]:
        """Return the new names of operators in the checkpoint, by their old ones."""
        operators: dict[str, str] = {}
        for old, new in self._last.items():
            if new not in self._now:
                continue
            if old in self._stored:
                operators[old] = new
            elif not any([name in self._stored for name in _path(old, self._changes.renamed)]):
                raise ConfigurationError(
                    f"renamed= has {old!r}, but the checkpoint has neither {old!r} nor {new!r}"
                    f"{did_you_mean(old, self._stored)}; it has {sorted(self._stored)}"
                )
        for old, new in operators.items():
            if new in self._stored or [*operators.values()].count(new) > 1:
                raise ConfigurationError(
                    f"renamed= gives {old!r} the name {new!r}, but the checkpoint has another operator with that name: "
                    "only one can keep its state; list the other one in allow_dropped= and restore once without this"
                )
        return operators

    def _piece(self, old: str, new: str) -> tuple[str, str, str]:
        """Return the operator of two names of a piece, and the names of the piece."""
        operator, after = _split(new, self._now)
        if not operator:
            raise ConfigurationError(
                f"renamed= has the new name {new!r}, which is no operator of this pipeline"
                f"{did_you_mean(new, self._now)}; it has {sorted(self._now)}"
            )
        owner, before = _split(old, {*self._stored, *self._now, *self._last})
        if self._last.get(owner, owner) != operator:
            raise ConfigurationError(
                f"renamed= has {old!r} and {new!r}, which are not of one operator: write {operator + '.old'!r} for "
                f"the old name of {new!r}"
            )
        return operator, before, after


def _path(name: str, renamed: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that ``name`` had later, in order: a script may rename more than once."""
    while name in renamed:
        name = renamed[name]
        yield name


def _split(name: str, operators: Collection[str]) -> tuple[str, str]:
    """Return the operator and the piece of "operator.piece", where both may have dots; ("", ""): there is none.

    >>> _split("a.b.c", {"a", "a.b"}), _split("x.y", {"a"})
    (('a.b', 'c'), ('', ''))
    """
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if (operator := ".".join(parts[:length])) in operators:
            return operator, ".".join(parts[length:])
    return "", ""
