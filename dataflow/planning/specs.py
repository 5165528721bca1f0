"""The specs of the library's operators: the settings of each kind. The package ``operators`` implements them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from dataflow.contracts.evolution import Adaptation, OperatorDescription, PieceChange, PieceChanges
from dataflow.contracts.live_splits import Silence
from dataflow.contracts.operator import OperatorFactory, Snapshot
from dataflow.contracts.row_errors import OnError
from dataflow.contracts.sink import Sink
from dataflow.contracts.source import Json, Source
from dataflow.contracts.spec import Spec, is_users
from dataflow.contracts.stored_pieces import with_owner
from dataflow.contracts.updates import CHANGE, Meaning, Signed, Updates, meaning_error, quoted_names, word_of
from dataflow.contracts.windows import EventTime
from dataflow.errors import CheckpointMismatch

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.expressions import Expr

__all__ = [
    "AddRows",
    "Apply",
    "EventTimes",
    "Filter",
    "FlatMapRows",
    "LatestTimes",
    "MapBatches",
    "MapRows",
    "ProcessingTime",
    "Project",
    "Read",
    "Union",
    "Watermarks",
    "Write",
]


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
        source = self.source
        while source.wraps is not None:
            source = source.wraps
        return {"source": type(source).__name__}

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        """Accept checkpoints that name a wrapper: they are older than ``Source.wraps``. The splits are compared."""
        is_wrapper = stored.detail.get("source") == "PacedSource"
        return Adaptation(replace(stored, detail=now.detail) if is_wrapper else stored)


@dataclass(frozen=True, slots=True)
class Filter(Spec):
    """Keeps the rows for which ``predicate`` is true."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False

    predicate: Expr

    @property
    def expressions(self) -> Sequence[Expr]:  # type: ignore[override]
        return (self.predicate,)

    @property
    def condition(self) -> Expr:  # type: ignore[override]
        return self.predicate

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

    def carrying(self, column: str) -> Spec:
        return self


@dataclass(frozen=True)  # without slots, for the cached properties: planners ask for each column
class Project(Spec):
    """Computes one column per expression, in order; for ``select`` and ``with_columns``."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False

    columns: tuple[Expr, ...]

    @property
    def expressions(self) -> Sequence[Expr]:  # type: ignore[override]
        return self.columns

    def detail(self) -> dict[str, Json]:
        return {"columns": [str(c) for c in self.columns]}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return [name for column in self.columns for name in column.columns()]

    @cached_property
    def _origins(self) -> Mapping[str, str | None]:
        """The origin of each column."""
        return {
            expr.name: next((name for name in expr.columns() if expr.is_column(name)), None) for expr in self.columns
        }

    @cached_property
    def _computed_from(self) -> frozenset[str]:
        """The columns of the input whose values an expression uses, not only passes on."""
        return frozenset(name for expr in self.columns for name in expr.columns() if not expr.is_column(name))

    def takes_encoded(self, column: str) -> bool:
        return column not in self._computed_from

    def origin_of(self, column: str) -> str | None:
        return self._origins[column]

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

    def carrying(self, column: str) -> Spec:
        from dataflow.expressions import col

        return replace(self, columns=(*self.columns, col(column)))


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
    """A function of the user; ``time`` is the event time that the stream keeps after it.

    ``passes_changes``: whether it can be called with rows of signed changes, which keep their ``change``.
    """

    passes_changes: ClassVar[bool] = False

    is_users = False  # its operator is the library's, and checks what the function returns
    calls_users_code = True
    stateful = False
    row_wise = True
    blocking = True  # the function may wait for anything

    function: Callable[..., Any]
    on_error: OnError = OnError.FAIL
    time: EventTime | None = None

    def detail(self) -> dict[str, Json]:
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        return {"function": name, "on_error": self.on_error.value}

    def side_advice(self, tag: str) -> str:
        return "" if self.on_error is OnError.SIDE else "on_error='side' gives it one, 'errors'"


@dataclass(frozen=True, slots=True)
class MapBatches(_FunctionSpec):
    """Calls a function from batch to batches, which does not see the column ``hidden``: see the operator."""

    emits_users_batches = True
    kind_words = "map of batches"

    hidden: str | None = None

    def carrying(self, column: str) -> Spec:
        return replace(self, hidden=column)


@dataclass(frozen=True, slots=True)
class _RowFunctionSpec(_FunctionSpec):
    """A function of single rows, which does not see the columns ``hidden``: rows of its output keep those of their row.

    So the output of a row that is taken back is taken back.
    """

    sees_batches = False
    passes_changes = True

    hidden: tuple[str, ...] = ()

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        if isinstance(meaning, Signed):
            assert self.hidden == (CHANGE,), f"{name} hides {self.hidden}"
            return meaning
        return Spec.changes(self, inputs, name=name, word=word)

    def carrying(self, column: str) -> Spec:
        return replace(self, hidden=(*self.hidden, column))


@dataclass(frozen=True, slots=True)
class MapRows(_RowFunctionSpec):
    """Calls a function from row to row."""

    kind_words = "map of rows"


@dataclass(frozen=True, slots=True)
class FlatMapRows(_RowFunctionSpec):
    """Calls a function from row to rows."""

    kind_words = "map to rows"


@dataclass(frozen=True, slots=True)
class Watermarks(Spec):
    """Computes watermarks from the event times in ``column``, per split: the latest time, less ``delay``
    (microseconds).

    A split without rows for ``idle_after`` microseconds (None: never) holds nothing back. ``on_error`` is for
    rows whose time is null. ``origin`` is the source's column that ``column`` is, unchanged; None: it is computed.
    No task of the source reads while its watermark is more than ``max_drift`` ahead of another task's.
    The watermark of a split without rows for ``close_after`` microseconds (None: never) moves on with the clock.
    ``on_error`` is also for rows whose time is more than ``ahead`` of the clock (None: there is no limit).
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
    ahead: int | None = None

    def detail(self) -> dict[str, Json]:
        return {
            "column": self.column,
            "delay": self.delay,
            "idle_after": self.idle_after,
            "max_drift": self.max_drift,
            "close_after": self.close_after,
            "ahead": self.ahead,
        }

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*used, self.column}

    def takes_encoded(self, column: str) -> bool:
        return column != self.column

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return inputs[0]

    def origin_of(self, column: str) -> str:
        return column

    def carrying(self, column: str) -> Spec:
        return self

    def in_batch(self) -> Watermarks:
        return EventTimes(self.column, None, 0, None, self.on_error)

    def without_splits(self) -> Watermarks:
        return LatestTimes(*[getattr(self, setting.name) for setting in fields(self)])


@dataclass(frozen=True, slots=True)
class EventTimes(Watermarks):
    """Checks the event times in ``column`` in a batch, where they make no watermarks."""

    assigns_time = False

    @property
    def kind(self) -> str:
        return "watermarks"


@dataclass(frozen=True, slots=True)
class LatestTimes(Watermarks):
    """Computes watermarks of rows that another engine has read, which are of no split that we know."""

    @property
    def split_silence(self) -> Silence:  # type: ignore[override]
        return Silence(self.idle_after, self.close_after)

    @property
    def kind(self) -> str:
        return "watermarks"


@dataclass(frozen=True, slots=True)
class ProcessingTime(Spec):
    """Adds ``column``, the time at which a row is processed, and makes watermarks by the clock."""

    is_users = False
    stateful = False
    row_wise = True
    sees_batches = False
    assigns_time = True
    times_by_clock = True

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


@dataclass(frozen=True, slots=True)
class Union(Spec):
    """Emits the rows of all inputs."""

    is_users = False
    times_broadcasts = True
    runs_per_input = True
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
        shared = frozenset(first.names).intersection(*[other.names for other in others])
        return pa.schema([field for field in first if field.name in shared])

    def carrying(self, column: str) -> Spec:
        return self


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
    def made_by(self) -> OperatorFactory:
        return self.factory

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
        return is_users(self.sink)

    def detail(self) -> dict[str, Json]:
        return {"sink": type(self.sink).__name__, **self.sink.fixed_settings}

    def pieces(self, described: OperatorDescription) -> Collection[str]:
        return [name for name, _ in described.schema]

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        """Let columns be added, removed if they are listed, and put in another order, if the sink takes such rows."""
        before, after = dict(stored.schema), dict(now.schema)
        dropped = [name for name in before if name not in after and name in changes.dropped]
        if [*before] == [*after] or before.keys() - after.keys() - {*dropped}:
            return Adaptation(stored)
        if changes.renamed:
            old, new = next(iter(changes.renamed.items()))
            raise CheckpointMismatch(
                f"sink {now.name!r}: a column cannot be renamed, because the rows that are written keep {old!r}: leave "
                f"{new!r} to be added, and list '{now.name}.{old}' in allow_dropped="
            )
        self.sink.check_columns([*before], [*after])
        what = {name: "column added; null in earlier rows" for name in after if name not in before}
        what |= dict.fromkeys(dropped, "column dropped; earlier rows keep it")
        if not what:
            moved = next(name for name, was in zip(after, before, strict=True) if name != was)
            what[moved] = "column at another place"
        done = [PieceChange(name, text, partial(_with_column, name)) for name, text in what.items()]
        schema = [(name, before.get(name, type_)) for name, type_ in now.schema]
        return Adaptation(replace(stored, schema=schema), done)

    def origin_of(self, column: str) -> str:
        return column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        self.sink.check_changes(word_of(meaning))
        return meaning


def _with_column(name: str, stored: Snapshot) -> tuple[Snapshot, None]:
    """Return the state of a sink with a note of a column that has changed since."""
    return with_owner(stored, name), None
