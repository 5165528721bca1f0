"""The specs of process functions. The package ``operators.process`` implements them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from dataflow.contracts.evolution import Adaptation, OperatorDescription, PieceChange, PieceChanges
from dataflow.contracts.execution import RowOrder
from dataflow.contracts.operator import Snapshot
from dataflow.contracts.process import ProcessFactory
from dataflow.contracts.process_state import StateDeclaration
from dataflow.contracts.row_errors import OnError
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.stored_pieces import keys_of, with_owner, without_empty, without_owner, without_pieces
from dataflow.contracts.updates import Meaning, Signed, meaning_error
from dataflow.contracts.windows import EventTime
from dataflow.untrusted import parsed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "MAIN_STATE",
    "OneOrder",
    "Process",
    "ProcessBatches",
    "ProcessBatchesInOrder",
    "ProcessKeys",
    "ProcessKeysInOrder",
]


MAIN_STATE: Final = "state"
"""The piece with the values of all declared states that are plain columns, and with the timers."""


class Process(Spec):
    """Calls a user's function with state for each key and timers. Input 1, if there is one, is broadcast.

    Attributes:
        factory: returns a function for each subtask.
        label: names it in descriptions.
        keys: the key columns.
        time: the event time of the rows.
        states: the declared states by name.
        sides: the schemas of the declared side outputs.
        on_error: what happens to the rows of a call that raises.
    """

    declared_in = "process(...)"

    factory: ProcessFactory
    label: str
    keys: tuple[str, ...]
    time: EventTime | None
    states: tuple[tuple[str, StateDeclaration], ...]
    sides: tuple[tuple[str, pa.Schema], ...]
    on_error: OnError

    def arguments(self) -> tuple[Any, ...]:
        return (self,)

    def described(self) -> dict[str, Json]:
        """Return the declared states as JSON, by name."""
        return {name: state.described() for name, state in self.states}

    def detail(self) -> dict[str, Json]:
        return {"function": self.label, "states": self.described()}

    def pieces(self, described: OperatorDescription) -> Collection[str]:
        return _states_of(described)

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        """Let declared states be added, empty, and removed."""
        before, after = _states_of(stored), self.described()
        added = [name for name in after if name not in before]
        dropped = [name for name in before if name not in after and name in changes.dropped]
        kept = {name: text for name, text in before.items() if name not in dropped}
        new = {name: after[name] for name in added}
        done = [PieceChange(name, "added, empty", partial(_with_state, name)) for name in added]
        done += [PieceChange(name, "dropped", partial(_without_state, name)) for name in dropped]
        detail = {**stored.detail, "states": {**kept, **new}}
        return Adaptation(replace(stored, detail=detail), done)

    def wants_order(self, time: EventTime | None) -> bool:
        return True

    @property
    def settings(self) -> dict[str, Any]:
        """The fields of the dataclass, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]

    def side_advice(self, tag: str) -> str:
        return f"declare it: process(..., sides={{{tag!r}: schema}}), None for the columns of the main one"

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        for meaning in inputs:
            if meaning is not None:
                problem = "are taken back" if isinstance(meaning, Signed) else "a later row replaces"
                raise meaning_error(word, meaning, f"a function would be called with rows that {problem}")
        return None


def _states_of(described: OperatorDescription) -> Mapping[str, Json]:
    """Return the declared states as text, by name."""
    return parsed(dict[str, str], described.detail.get("states", {}), "the declared states")


def _with_state(name: str, stored: Snapshot) -> tuple[Snapshot, None]:
    return with_owner(stored, name), None


def _without_state(name: str, stored: Snapshot) -> tuple[Snapshot, int]:
    """Return the state of a subtask without a declared one, and how many keys had it."""
    own = [piece for piece, rule in stored.rules.items() if piece != MAIN_STATE and [*rule.owners] == [name]]
    if MAIN_STATE in stored.rules and (columns := stored.rules[MAIN_STATE].owners.get(name)):
        return without_empty(without_owner(stored, name), MAIN_STATE), keys_of(stored, MAIN_STATE, columns)
    keys = [keys_of(stored, piece) for piece in own if stored.rules[piece].keys]
    return without_pieces(stored, own), max(keys, default=0)


@dataclass(frozen=True, slots=True)
class ProcessKeys(Process):
    """Calls a `KeyedProcess` with the rows of one key at a time."""

    factory: ProcessFactory
    label: str
    keys: tuple[str, ...]
    time: EventTime | None
    states: tuple[tuple[str, StateDeclaration], ...]
    sides: tuple[tuple[str, pa.Schema], ...]
    on_error: OnError

    def ordered_by(self, order: RowOrder) -> Process:
        return ProcessKeysInOrder(**self.settings, order=order)


@dataclass(frozen=True, slots=True)
class ProcessBatches(Process):
    """Calls a `BatchProcess` with the rows of many keys."""

    factory: ProcessFactory
    label: str
    keys: tuple[str, ...]
    time: EventTime | None
    states: tuple[tuple[str, StateDeclaration], ...]
    sides: tuple[tuple[str, pa.Schema], ...]
    on_error: OnError

    def ordered_by(self, order: RowOrder) -> Process:
        return ProcessBatchesInOrder(**self.settings, order=order)


@dataclass(frozen=True, slots=True)
class OneOrder(Spec):
    """Passes rows on, in one subtask: so all subtasks after it get them in one order."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return used

    def origin_of(self, column: str) -> str:
        return column

    def carrying(self, column: str) -> Spec:
        return self


@dataclass(frozen=True, slots=True)
class ProcessKeysInOrder(ProcessKeys):
    """Calls a `KeyedProcess` in a batch: with the rows of one key after the other, in ``order``."""

    times_broadcasts = True  # all broadcast rows come before the first call with a key

    order: RowOrder = field(kw_only=True)

    @property
    def row_order(self) -> RowOrder:  # type: ignore[override]
        return self.order

    @property
    def kind(self) -> str:
        return "processkeys"


@dataclass(frozen=True, slots=True)
class ProcessBatchesInOrder(ProcessBatches):
    """Calls a `BatchProcess` in a batch: with the rows of one time after the other, in ``order``."""

    times_broadcasts = True

    order: RowOrder = field(kw_only=True)

    @property
    def row_order(self) -> RowOrder:  # type: ignore[override]
        return self.order

    @property
    def kind(self) -> str:
        return "processbatches"
