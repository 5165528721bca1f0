"""The specs of aggregates, with windows and without: their settings, and what they emit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dataflow.clock import exact_duration_text
from dataflow.contracts.evolution import Adaptation, OperatorDescription, PieceChanges
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Meaning, Signed, Updates
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime, Sliced, Window
from dataflow.planning.evolved_aggregates import Rows, aggregate_names, evolve_aggregates

if TYPE_CHECKING:
    from dataflow.expressions import Aggregation
    from dataflow.state.ttl import Ttl

__all__ = [
    "Aggregate",
    "Combine",
    "Emit",
    "Grouped",
    "MergingAggregate",
    "SessionAggregate",
    "SlidingAggregate",
    "WindowAggregate",
]

_LATE = MappingProxyType({LATE: 0})


class Emit(Enum):
    """What an aggregate emits: after each batch a row for each changed key, or the old row taken back (-1) and the new
    one added (+1), or one final row for each key.
    """

    UPDATES = "updates"
    CHANGES = "changes"
    FINAL = "final"


class Grouped(Spec, ABC):
    """Computes aggregates per key. Rows may be folded per key before they reach the operator.

    Attributes:
        takes_records: whether rows may be folded per key before they reach the operator.
        has_pane_columns: whether results say which pane they are.
        computed_from_rows: which aggregates are computed from rows that the operator keeps.
    """

    is_users = False
    holds_rows = False
    keeps_batches = False
    has_pane_columns: bool = False
    computed_from_rows: ClassVar[Rows] = "none"

    @property
    def takes_records(self) -> bool:
        return True

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    because: str
    signed: bool
    """Whether the input has signed changes."""

    @property
    @abstractmethod
    def update_keys(self) -> tuple[str, ...]:
        """The columns of the output by which updates replace each other."""

    @property
    @abstractmethod
    def row_keys(self) -> tuple[str, ...]:
        """The columns of the output that identify a row: the update keys on which no other update key depends."""

    @property
    def groups_by(self) -> Sequence[str]:  # type: ignore[override]
        return self.keys

    def folding(self) -> Combine | None:
        return Combine(self) if self.takes_records else None

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        if self.signed != any(isinstance(meaning, Signed) for meaning in inputs) or not self.signed:
            Spec.changes(self, inputs, name=name, word=word)
        match self.emit:
            case Emit.UPDATES:
                return Updates.by(self.update_keys, name, self.because)
            case Emit.CHANGES:
                return Signed(name, self.because)
            case Emit.FINAL:
                return None

    def takes_encoded(self, column: str) -> bool:
        return column not in self._aggregated()

    def wants_order(self, time: EventTime | None) -> bool:
        return time is not None and any(aggregation.goes_by_arrival for aggregation in self.aggregations)

    def pieces(self, described: OperatorDescription) -> Collection[str]:
        return aggregate_names(described)

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        rows = self.computed_from_rows
        return evolve_aggregates(self.aggregations, stored, now, changes, signed=self.signed, rows=rows)

    def _aggregated(self) -> set[str]:
        """Return the columns that the aggregates read."""
        return {name for aggregation in self.aggregations for name in aggregation.columns()}


@dataclass(frozen=True, slots=True)
class Aggregate(Grouped):
    """Computes aggregates per key. ``every`` (microseconds) limits how often updates are emitted; None: after each
    batch.

    ``because`` is the reason why updates are the default, for messages; empty if ``emit`` was given. A group expires
    ``ttl`` after its last row, by the event time in ``time``, or by the clock if it is None.
    """

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    every: int | None
    because: str = field(default="", compare=False)
    ttl: Ttl | None = None
    time: EventTime | None = None
    signed: bool = False

    @property
    def update_keys(self) -> tuple[str, ...]:
        return self.keys

    @property
    def row_keys(self) -> tuple[str, ...]:
        return self.keys

    @property
    def takes_records(self) -> bool:
        return self.ttl is None and not self.signed

    @property
    def emits_at_end(self) -> str:  # type: ignore[override]
        return "its results" if self.emit is Emit.FINAL else ""

    @property
    def emits_sooner(self) -> str:  # type: ignore[override]
        return "give emit='changes'" if self.signed else "give emit='changes', or emit='updates'"

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.emit is not Emit.FINAL and self.every is None and not self.signed

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.aggregations, self.emit, self.every, self.ttl, self.time, CHANGE if self.signed else None

    def in_batch(self) -> Aggregate:
        return replace(self, emit=Emit.FINAL, every=None, ttl=None, time=None, because="")

    def detail(self) -> dict[str, Json]:
        time = self.time.column if self.ttl is not None and self.time is not None else None
        return {
            "keys": list(self.keys),
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
            "ttl": None if self.ttl is None else exact_duration_text(self.ttl.length),
            "ttl by": time,
            "signed": self.signed,
        }

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        time = [self.time.column] if self.time is not None else []
        return {*self.keys, *self._aggregated(), *time, *([CHANGE] if self.signed else [])}


@dataclass(frozen=True, slots=True)
class WindowAggregate(Grouped):
    """Computes aggregates per key and window of the event times in ``time``. ``lateness`` in microseconds.

    Without lateness, ``emit`` is not ``Emit.UPDATES``. ``because`` as in ``Aggregate``. ``merges_slices``: whether
    windows that overlap may be merged from slices.
    """

    windowed = True
    late_outputs = _LATE
    merges_slices: ClassVar[bool] = True
    signed = False
    folds_alone = True  # finding a row's pane is cheaper before the operator

    keys: tuple[str, ...]
    time: EventTime
    window: Window
    lateness: int
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    because: str = field(default="", compare=False)

    @property
    def update_keys(self) -> tuple[str, ...]:
        return *self.keys, "window_start", "window_end"

    @property
    def row_keys(self) -> tuple[str, ...]:
        return (*self.keys, "window_start") if self.window.ends_follow else self.update_keys

    @property
    def takes_records(self) -> bool:
        return not self.window.overlaps or isinstance(self.window, Sliced)

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.emit is not Emit.FINAL

    def arguments(self) -> tuple[Any, ...]:
        """Return the arguments. Final results wait until no row can be late: they lag by the lateness."""
        late, lag = (0, self.lateness) if self.emit is Emit.FINAL else (self.lateness, 0)
        return self.keys, self.time, self.window, late, self.aggregations, lag, self.emit

    def detail(self) -> dict[str, Json]:
        return {
            "keys": list(self.keys),
            "time": self.time.column,
            "exclusive": self.time.exclusive,
            "window": str(self.window),
            "lateness": self.lateness,
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
        }

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*self.keys, self.time.column, *self.window.columns, *self._aggregated()}


@dataclass(frozen=True, slots=True)
class SlidingAggregate(Spec):
    """Computes aggregates for each row, over the rows of its key in the ``period`` (microseconds) that ends with it.

    With ``lateness`` (microseconds) ``emit`` is ``Emit.CHANGES``.
    """

    is_users = False
    keeps_batches = False
    late_outputs = _LATE

    keys: tuple[str, ...]
    time: EventTime
    period: int
    lateness: int
    aggregations: tuple[Aggregation, ...]
    emit: Emit

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.lateness > 0

    def arguments(self) -> tuple[Any, ...]:
        signed = self.emit is Emit.CHANGES
        return self.keys, self.time, self.period, self.lateness, self.aggregations, signed

    def detail(self) -> dict[str, Json]:
        return {
            "keys": list(self.keys),
            "time": self.time.column,
            "exclusive": self.time.exclusive,
            "period": self.period,
            "lateness": self.lateness,
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
        }

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        columns = {name for aggregation in self.aggregations for name in aggregation.columns()}
        return {*self.keys, self.time.column, *columns, *(used - self._made)}

    def takes_encoded(self, column: str) -> bool:
        return column in self.keys and not any(column in a.columns() for a in self.aggregations)

    def origin_of(self, column: str) -> str | None:
        return None if column in self._made else column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        Spec.changes(self, inputs, name=name, word=word)
        return Signed(name) if self.emit is Emit.CHANGES else None

    def wants_order(self, time: EventTime | None) -> bool:
        return any(aggregation.goes_by_arrival for aggregation in self.aggregations)

    def pieces(self, described: OperatorDescription) -> Collection[str]:
        return aggregate_names(described)

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        return evolve_aggregates(self.aggregations, stored, now, changes, rows="all")

    @property
    def _made(self) -> set[str]:
        """The columns of the output that are not of the input."""
        return {*(a.name for a in self.aggregations), *([CHANGE] if self.emit is Emit.CHANGES else [])}


@dataclass(frozen=True, slots=True)
class SessionAggregate(WindowAggregate):
    """Computes aggregates per key and session. ``emit`` is not ``Emit.UPDATES``."""

    computed_from_rows: ClassVar[Rows] = "some"

    window: Session

    @property
    def takes_records(self) -> bool:
        """False: whether a row is late depends on its own time, which a record of several rows does not have."""
        return False

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.emit is Emit.CHANGES

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.time, self.window, self.lateness, self.aggregations, self.emit


@dataclass(frozen=True, slots=True)
class MergingAggregate(WindowAggregate):
    """Computes final aggregates per key and window of a kind whose windows merge."""

    computed_from_rows: ClassVar[Rows] = "all"

    @property
    def takes_records(self) -> bool:
        """False: windows are of rows, and a record has several."""
        return False

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.time, self.window, self.lateness, self.aggregations


@dataclass(frozen=True, slots=True)
class Combine(Spec):
    """Folds the rows of a batch per key, for the aggregate ``target`` after a shuffle; the planner adds it."""

    is_users = False
    is_helper = True
    stateful = False
    sees_batches = False
    folds_rows = True

    target: Grouped

    def detail(self) -> dict[str, Json]:
        return {"target": self.target.detail()}
