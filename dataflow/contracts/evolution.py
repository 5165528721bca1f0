"""Changes of a pipeline between a checkpoint and its restore: what users allow, and what an operator makes of it.

A restore compares what the checkpoint says of each stateful operator with the pipeline. Before that it *evolves* what
the checkpoint says: it carries out the changes that are allowed, so that a comparison finds only the others, and
refuses them as ever. Pieces of an operator, such as an aggregate or a declared state, are its own: `Spec.evolve` says
what becomes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.contracts.source import Json
from dataflow.errors import ConfigurationError

if TYPE_CHECKING:
    from dataflow.contracts.operator import Snapshot

__all__ = [
    "NO_CHANGES",
    "Adaptation",
    "Changes",
    "Columns",
    "Evolved",
    "OperatorDescription",
    "PieceChange",
    "PieceChanges",
    "parse_changes",
]

Columns = Sequence[tuple[str, str]]
"""Names and types of columns, types as text."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The arguments ``renamed=`` and ``allow_dropped=`` of a run: operators, and pieces as "operator.piece".

    ``renamed`` maps old names to new ones, without circles. Names may be of changes that were made in an earlier run.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    allow_dropped: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.renamed or self.allow_dropped)


NO_CHANGES = Changes()


def parse_changes(renamed: object = None, allow_dropped: object = ()) -> Changes:
    """Return the checked arguments of a user.

    Raises: ConfigurationError for other types, an empty name, a circle, or two names that become one.

    >>> parse_changes({"old": "new"}, ["counts.total"])
    Changes(renamed={'old': 'new'}, allow_dropped=('counts.total',))
    >>> parse_changes({"a": "b", "b": "a"})
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: renamed= goes in a circle: 'a' -> 'b' -> 'a'; name each operator as it is now
    """
    pairs = {} if renamed is None else renamed
    if not isinstance(pairs, Mapping) or not all(
        [isinstance(name, str) and name for pair in pairs.items() for name in pair]
    ):
        raise ConfigurationError(
            f'renamed= takes a mapping of old to new names, such as {{"old": "new"}}, got {renamed!r}'
        )
    names = () if allow_dropped is None else allow_dropped
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Iterable):
        raise ConfigurationError(f'allow_dropped= takes a list of names, such as ["old"], got {allow_dropped!r}')
    dropped = tuple(names)
    if not all([isinstance(name, str) and name for name in dropped]):
        raise ConfigurationError(f'allow_dropped= takes a list of names, such as ["old"], got {allow_dropped!r}')
    _refuse_circles(pairs)
    if both := [name for name in dropped if name in pairs]:
        raise ConfigurationError(f"{both[0]!r} is in renamed= and in allow_dropped=: what is renamed is kept")
    return Changes(dict(pairs), dropped)


def _refuse_circles(renamed: Mapping[str, str]) -> None:
    for first in renamed:
        path = [first]
        while path[-1] in renamed:
            path.append(renamed[path[-1]])
            if path[-1] in path[:-1]:
                circle = " -> ".join(map(repr, path[path.index(path[-1]) :]))
                raise ConfigurationError(f"renamed= goes in a circle: {circle}; name each operator as it is now")
    targets: dict[str, str] = {}
    for old, new in renamed.items():
        if new in targets:
            raise ConfigurationError(
                f"renamed= gives {targets[new]!r} and {old!r} one name, {new!r}: only one can keep its state"
            )
        targets[new] = old


@dataclass(frozen=True, slots=True)
class PieceChanges:
    """What the user allows for the pieces of one operator: new names by old ones, and pieces that may be dropped."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    dropped: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class OperatorDescription:
    """An operator, as a checkpoint or a pipeline describes it.

    Attributes:
        name: the operator's name in the pipeline that restores.
        kind: ``Spec.kind``.
        keys: the keys of each input that has some.
        schema: the columns of the main output.
        inputs: the columns of each input; None: the checkpoint does not say, because the input is a side output.
        detail: ``Spec.detail()``. In a checkpoint it is JSON that others may have written.
    """

    name: str
    kind: str
    keys: Sequence[Sequence[str]]
    schema: Columns
    inputs: Sequence[Columns | None]
    detail: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class Evolved:
    """A change that a restore carried out: an entry of ``RestoreReport.evolved``.

    Attributes:
        operator: the operator's name now; of a dropped operator, its name in the checkpoint.
        piece: the aggregate, the declared state or the column; None: the operator itself.
        what: what was done, such as "dropped" or "int32 became int64".
        keys: how many keys the change concerns; None: it is not a matter of keys.

    >>> print(Evolved("counts", "total", "dropped", 12_000))
    counts.total: dropped (12,000 keys)
    """

    operator: str
    piece: str | None
    what: str
    keys: int | None = None

    def __str__(self) -> str:
        name = self.operator if self.piece is None else f"{self.operator}.{self.piece}"
        keys = "" if self.keys is None else f" ({self.keys:,} {'key' if self.keys == 1 else 'keys'})"
        return f"{name}: {self.what}{keys}"

    def to_json(self) -> dict[str, Any]:
        """Return the change as JSON values.

        >>> Evolved("counts", None, "renamed from 'sums'").to_json()
        {'operator': 'counts', 'piece': None, 'what': "renamed from 'sums'", 'keys': None}
        """
        return {"operator": self.operator, "piece": self.piece, "what": self.what, "keys": self.keys}


@dataclass(frozen=True, slots=True)
class PieceChange:
    """A change of one piece of an operator.

    Attributes:
        piece: its name, for the report.
        what: what is done, for the report.
        apply: returns the state of one subtask with the change, and how many keys of it are concerned. It gets what the
            checkpoint stores: of a log its base and its deltas, each of which has to change. None: only names change,
            so that state and folded records stay as they are.
    """

    piece: str
    what: str
    apply: Callable[[Snapshot], tuple[Snapshot, int | None]] | None = None


@dataclass(frozen=True, slots=True)
class Adaptation:
    """What an operator makes of a checkpoint of earlier settings.

    Attributes:
        stored: the operator of the checkpoint *as if* its settings had had the changes that are allowed. It is compared
            with the pipeline; what still differs is refused.
        changes: these changes, in the order in which they are applied.
        folds_alike: whether records of rows that were folded for the operator of the checkpoint are as this one reads
            them. If not, the restore is refused while a channel holds some.
    """

    stored: OperatorDescription
    changes: Sequence[PieceChange] = ()
    folds_alike: bool = True
