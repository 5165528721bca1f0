"""The specs of the library's operators: the settings of each kind. The package ``operators`` implements them."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dataflow.clock import exact_duration_text
from dataflow.contracts.operator import OperatorFactory
from dataflow.contracts.row_errors import LATE, OnError
from dataflow.contracts.sink import Sink
from dataflow.contracts.source import Json, Source
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Meaning, Signed, Updates, meaning_error, quoted_names, word_of
from dataflow.contracts.window_kinds import Session
from dataflow.contracts.windows import EventTime, Sliced, Window

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.expressions import Aggregation, Expr
    from dataflow.state.ttl import Ttl

__all__ = [
    "AddRows",
    "Aggregate",
    "Apply",
    "Combine",
    "Emit",
    "Filter",
    "FlatMapRows",
    "Grouped",
    "MapBatches",
    "MapRows",
    "ProcessingTime",
    "Project",
    "Read",
    "SlidingAggregate",
    "SessionAggregate",
    "Union",
    "Watermarks",
    "WindowAggregate",
    "Write",
]


_LATE = MappingProxyType({LATE: 0})


class Emit(Enum):
    """What an aggregate emits: after each batch a row for each changed key, or the old row taken back (-1) and the new
    one added (+1), or one final row for each key.
    """

    UPDATES = "updates"
    CHANGES = "changes"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Read(Spec):
    """Reads rows from a source."""

    is_users = False
    row_wise = True
    sees_batches = False

    source: Source

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.source.blocking

    def arguments(self) -> tuple[Any, ...]:
        return ()

    def detail(self) -> dict[str, Json]:
        return {"source": type(self.source).__name__}


@dataclass(frozen=True, slots=True)
class Filter(Spec):
    """Keeps the rows for which ``predicate`` is true."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False

    predicate: Expr

    def detail(self) -> dict[str, Json]:
        return {"predicate": str(self.predicate)}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*used, *self.predicate.columns()}

    def takes_encoded(self, column: str) -> bool:
        return column not in self.predicate.columns()

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return inputs[0]

    def origin_of(self, column: str) -> str:
        return column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        meaning = inputs[0]
        read = self.predicate.columns()
        if isinstance(meaning, Updates) and (others := meaning.others(read)):
            problem = (
                f"the condition reads {quoted_names(others)}, which is not an update key, so it may drop the last row "
                "of a key and keep one that was replaced"
            )
            raise meaning_error(word, meaning, problem)
        if isinstance(meaning, Signed) and CHANGE in read:
            raise meaning_error(
                word, meaning, f"the condition reads {CHANGE!r}, so it may keep a row and not its removal"
            )
        return meaning


@dataclass(frozen=True, slots=True)
class Project(Spec):
    """Computes one column per expression, in order; for ``select`` and ``with_columns``."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False

    columns: tuple[Expr, ...]

    def detail(self) -> dict[str, Json]:
        return {"columns": [str(c) for c in self.columns]}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return [name for column in self.columns for name in column.columns()]

    def takes_encoded(self, column: str) -> bool:
        return all(expr.is_column(column) for expr in self.columns if column in expr.columns())

    def origin_of(self, column: str) -> str | None:
        (expression,) = [c for c in self.columns if c.name == column]
        return next((name for name in expression.columns() if expression.is_column(name)), None)

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        meaning = inputs[0]
        if isinstance(meaning, Signed):
            self._check_signed(meaning, word)
        if not isinstance(meaning, Updates):
            return meaning
        names = tuple(self._names_of(columns) for columns in meaning.names)
        if lost := [columns[0] for columns, left in zip(meaning.names, names, strict=True) if not left]:
            raise meaning_error(word, meaning, f"it drops or changes the update key {quoted_names(lost)}")
        return replace(meaning, names=names)

    def _check_signed(self, meaning: Signed, word: str) -> None:
        """Raise GraphError unless ``change`` is kept as it is, and no other column reads it."""
        *others, last = self.columns
        if any(other.name == CHANGE or CHANGE in other.columns() for other in others) or not last.is_column(CHANGE):
            raise meaning_error(
                word, meaning, f"{CHANGE!r} is kept without being named, and no column may have its name or read it"
            )

    def _names_of(self, key: Sequence[str]) -> tuple[str, ...]:
        """Return the columns that hold one of the input columns ``key``; one that keeps its name comes first."""
        names = [column.name for column in self.columns if any(column.is_column(name) for name in key)]
        return tuple(sorted(names, key=lambda name: name != key[0]))


@dataclass(frozen=True, slots=True)
class AddRows(Project):
    """Makes rows signed changes, each of which is added; its last column is ``change``."""

    @property
    def kind(self) -> str:
        return "project"

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        Spec.changes(self, inputs, name=name, word=word)
        return Signed(name)


@dataclass(frozen=True, slots=True)
class _FunctionSpec(Spec):
    """A function of the user; ``time`` is the event time that the stream keeps after it."""

    is_users = False  # its operator is the library's, and checks what the function returns
    stateful = False
    row_wise = True
    blocking = True  # the function may wait for anything

    function: Callable[..., Any]
    on_error: OnError = OnError.FAIL
    time: EventTime | None = None

    def detail(self) -> dict[str, Json]:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return (
            {"function": name} if self.on_error is OnError.FAIL else {"function": name, "on_error": self.on_error.value}
        )

    def side_advice(self, tag: str) -> str:
        return "" if self.on_error is OnError.SIDE else "on_error='side' gives it one, 'errors'"


@dataclass(frozen=True, slots=True)
class MapBatches(_FunctionSpec):
    """Calls a function from batch to batches."""


@dataclass(frozen=True, slots=True)
class _RowFunctionSpec(_FunctionSpec):
    """A function of single rows, which does not see the columns ``hidden``: rows of its output keep those of their row.

    So the output of a row that is taken back is taken back.
    """

    sees_batches = False

    hidden: tuple[str, ...] = ()

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        if isinstance(meaning, Signed):
            assert self.hidden == (CHANGE,), f"{name} hides {self.hidden}"
            return meaning
        return Spec.changes(self, inputs, name=name, word=word)


@dataclass(frozen=True, slots=True)
class MapRows(_RowFunctionSpec):
    """Calls a function from row to row."""


@dataclass(frozen=True, slots=True)
class FlatMapRows(_RowFunctionSpec):
    """Calls a function from row to rows."""


@dataclass(frozen=True, slots=True)
class Watermarks(Spec):
    """Computes watermarks from the event times in ``column``, per split: the latest time, less ``delay``
    (microseconds).

    A split without rows for ``idle_after`` microseconds (None: never) holds nothing back. ``on_error`` is for
    rows whose time is null. ``origin`` is the source's column that ``column`` is, unchanged; None: it is computed.
    No task of the source reads while its watermark is more than ``max_drift`` ahead of another task's.
    The watermark of a split without rows for ``close_after`` microseconds (None: never) moves on with the clock.
    """

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False
    assigns_time = True

    column: str
    origin: str | None
    delay: int
    idle_after: int | None
    on_error: OnError
    max_drift: int | None = None
    close_after: int | None = None

    def detail(self) -> dict[str, Json]:
        """Return the settings. ``close_after`` is included only if it is set: older checkpoints lack it."""
        detail: dict[str, Json] = {
            "column": self.column,
            "delay": self.delay,
            "idle_after": self.idle_after,
            "max_drift": self.max_drift,
        }
        return detail if self.close_after is None else {**detail, "close_after": self.close_after}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*used, self.column}

    def takes_encoded(self, column: str) -> bool:
        return column != self.column

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return inputs[0]

    def origin_of(self, column: str) -> str:
        return column


@dataclass(frozen=True, slots=True)
class ProcessingTime(Spec):
    """Adds ``column``, the time at which a row is processed, and makes watermarks by the clock."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False
    assigns_time = True

    column: str

    def detail(self) -> dict[str, Json]:
        return {"column": self.column}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return used - {self.column}

    def takes_encoded(self, column: str) -> bool:
        return True

    def origin_of(self, column: str) -> str | None:
        return None if column == self.column else column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        if inputs[0] is not None:
            raise meaning_error(word, inputs[0], "rows that belong together would get times of their own")
        return None


class Grouped(Spec, ABC):
    """Computes aggregates per key. Rows may be folded per key before they reach the operator.

    Attributes:
        windowed: whether there is a row for each key and window.
        folds_alone: whether folding before the operator pays even if it has one subtask, so that no rows move.
        takes_records: whether rows may be folded per key before they reach the operator.
    """

    is_users = False
    holds_rows = False
    keeps_batches = False
    windowed: bool = False
    folds_alone: bool = False

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
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.emit is not Emit.FINAL and self.every is None and not self.signed

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.aggregations, self.emit, self.every, self.ttl, self.time, CHANGE if self.signed else None

    def detail(self) -> dict[str, Json]:
        """Return the settings. Those that older checkpoints lack are included only if they are set."""
        ttl: dict[str, Json] = {} if self.ttl is None else {"ttl": exact_duration_text(self.ttl.length)}
        signed: dict[str, Json] = {"signed": True} if self.signed else {}
        return {
            "keys": list(self.keys),
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
            **ttl,
            **signed,
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
        """Return the settings. Older checkpoints lack ``emit``: it is included only if it changes the state or the
        columns.
        """
        detail: dict[str, Json] = {
            "keys": list(self.keys),
            "time": self.time.column,
            "exclusive": self.time.exclusive,
            "window": str(self.window),
            "lateness": self.lateness,
            "aggregations": [str(a) for a in self.aggregations],
        }
        told = self.emit is Emit.CHANGES or (self.lateness > 0 and self.emit is Emit.FINAL)
        return {**detail, "emit": self.emit.value} if told else detail

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

    @property
    def _made(self) -> set[str]:
        """The columns of the output that are not of the input."""
        return {*(a.name for a in self.aggregations), *([CHANGE] if self.emit is Emit.CHANGES else [])}


@dataclass(frozen=True, slots=True)
class SessionAggregate(WindowAggregate):
    """Computes aggregates per key and session. ``emit`` is not ``Emit.UPDATES``."""

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

    def detail(self) -> dict[str, Json]:
        return {**WindowAggregate.detail(self), "emit": self.emit.value}


@dataclass(frozen=True, slots=True)
class MergingAggregate(WindowAggregate):
    """Computes final aggregates per key and window of a kind whose windows merge."""

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

    target: Grouped

    def detail(self) -> dict[str, Json]:
        return {"target": self.target.detail()}


@dataclass(frozen=True, slots=True)
class Union(Spec):
    """Emits the rows of all inputs."""

    is_users = False
    times_broadcasts = True
    stateful = False
    row_wise = True
    sees_batches = False

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return used

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        signed = [meaning for meaning in inputs if isinstance(meaning, Signed)]
        if len(signed) == len(inputs):
            return signed[0]
        return Spec.changes(self, inputs, name=name, word=word)

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        """Return the columns that all inputs still have, in the order of the first."""
        import pyarrow as pa

        first, *others = inputs
        return pa.schema([field for field in first if all(field.name in other.names for other in others)])


@dataclass(frozen=True, slots=True)
class Apply(Spec):
    """Runs a user's operator, one per subtask. ``label`` names it in descriptions."""

    declared_in = "apply(...)"
    row_wise_advice = "set stateless = True in its class and pass the class to apply(...), not a function"

    factory: OperatorFactory
    label: str
    stateless: bool
    blocking: bool

    @property
    def stateful(self) -> bool:  # type: ignore[override]
        return not self.stateless

    @property
    def row_wise(self) -> bool:  # type: ignore[override]
        return self.stateless

    @property
    def kernels(self) -> Sequence[str]:  # type: ignore[override]
        """The modules that the class names in an attribute; if ``kernels`` is a property, it needs an operator."""
        names = getattr(inspect.unwrap(getattr(self.factory, "func", self.factory)), "kernels", ())
        return names if isinstance(names, tuple | list) else ()

    def arguments(self) -> tuple[Any, ...]:
        return (self.factory,)

    def detail(self) -> dict[str, Json]:
        return {"operator": self.label}

    def side_advice(self, tag: str) -> str:
        return f"declare it: apply(..., sides={{{tag!r}: schema}}), None for the columns of the main one"


@dataclass(frozen=True, slots=True)
class Write(Spec):
    """Writes rows to a sink."""

    row_wise = True

    sink: Sink

    @property
    def blocking(self) -> bool:  # type: ignore[override]
        return self.sink.blocking

    @property
    def is_users(self) -> bool:  # type: ignore[override]
        return type(self.sink).__module__.partition(".")[0] != "operators"

    def detail(self) -> dict[str, Json]:
        return {"sink": type(self.sink).__name__}

    def origin_of(self, column: str) -> str:
        return column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        self.sink.check_changes(word_of(meaning))
        return meaning
