"""What a node of the graph does, each kind with its settings. Pure data: ``operators`` implements them.

``detail`` is what a checkpoint keeps of a node, to tell on restore what has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from dataflow.operator import OperatorFactory, Sink
from dataflow.row_errors import OnError
from dataflow.source import Json, Source
from dataflow.windows import EventTime, Tumbling

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.expressions import Aggregation, Expr

__all__ = [
    "Aggregate",
    "Apply",
    "Combine",
    "Emit",
    "Filter",
    "FlatMapRows",
    "MapBatches",
    "MapRows",
    "Project",
    "Read",
    "Spec",
    "Union",
    "Watermarks",
    "WindowAggregate",
    "Write",
]


class Emit(Enum):
    """The time when an aggregate emits: a row per changed key after each batch, or one final row per key."""

    UPDATES = "updates"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Read:
    """Rows from a source."""

    source: Source

    def detail(self) -> dict[str, Json]:
        return {"source": type(self.source).__name__}


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which ``predicate`` is true."""

    predicate: Expr

    def detail(self) -> dict[str, Json]:
        return {"predicate": str(self.predicate)}


@dataclass(frozen=True, slots=True)
class Project:
    """One column per expression, in order; serves ``select`` and ``with_columns``."""

    columns: tuple[Expr, ...]

    def detail(self) -> dict[str, Json]:
        return {"columns": [str(c) for c in self.columns]}


@dataclass(frozen=True, slots=True)
class MapBatches:
    """A user's function from batch to batches; ``time`` is the event time that the stream keeps after it."""

    function: Callable[[pa.RecordBatch], Any]
    on_error: OnError = OnError.FAIL
    time: EventTime | None = None

    def detail(self) -> dict[str, Json]:
        return _function_detail(self.function, self.on_error)


@dataclass(frozen=True, slots=True)
class MapRows:
    """A user's function from row to row; ``time`` is the event time that the stream keeps after it."""

    function: Callable[[dict[str, Any]], Any]
    on_error: OnError = OnError.FAIL
    time: EventTime | None = None

    def detail(self) -> dict[str, Json]:
        return _function_detail(self.function, self.on_error)


@dataclass(frozen=True, slots=True)
class FlatMapRows:
    """A user's function from row to rows; ``time`` is the event time that the stream keeps after it."""

    function: Callable[[dict[str, Any]], Any]
    on_error: OnError = OnError.FAIL
    time: EventTime | None = None

    def detail(self) -> dict[str, Json]:
        return _function_detail(self.function, self.on_error)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregates per key. ``every`` (microseconds) spaces the updates out; None: after each batch.

    ``because`` says, for messages, why updates are the default; empty if ``emit`` was given.
    """

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    every: int | None
    because: str = field(default="", compare=False)

    def detail(self) -> dict[str, Json]:
        return {
            "keys": list(self.keys),
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
        }


@dataclass(frozen=True, slots=True)
class Watermarks:
    """Watermarks out of the event times in ``column``, per split: the latest time, less ``delay`` (microseconds).

    A split that gives no rows for ``idle_after`` microseconds (None: never) holds nothing back. ``on_error`` is for
    rows whose time is null. ``origin`` is the source's column that ``column`` is, untouched; None: it is computed.
    No task of the source reads while its watermark is more than ``max_drift`` ahead of another one's.
    """

    column: str
    origin: str | None
    delay: int
    idle_after: int | None
    on_error: OnError
    max_drift: int | None = None

    def detail(self) -> dict[str, Json]:
        return {
            "column": self.column,
            "delay": self.delay,
            "idle_after": self.idle_after,
            "max_drift": self.max_drift,
        }


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates per key and window of the event times in ``time``. ``lateness`` in microseconds.

    ``emit`` is ``Emit.FINAL`` wherever ``lateness`` is 0. ``because`` as in ``Aggregate``.
    """

    keys: tuple[str, ...]
    time: EventTime
    window: Tumbling
    lateness: int
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    because: str = field(default="", compare=False)

    def detail(self) -> dict[str, Json]:
        """Return the description. ``emit`` is only in it for final results with lateness: older checkpoints lack it."""
        found: dict[str, Json] = {
            "keys": list(self.keys),
            "time": self.time.column,
            "exclusive": self.time.exclusive,
            "window": str(self.window),
            "lateness": self.lateness,
            "aggregations": [str(a) for a in self.aggregations],
        }
        return {**found, "emit": self.emit.value} if self.lateness and self.emit is Emit.FINAL else found


@dataclass(frozen=True, slots=True)
class Combine:
    """Folds the rows of a batch per key, for the aggregate ``target`` behind a shuffle; the planner puts it there."""

    target: Aggregate | WindowAggregate

    def detail(self) -> dict[str, Json]:
        return {"target": self.target.detail()}


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all inputs."""

    def detail(self) -> dict[str, Json]:
        return {}


@dataclass(frozen=True, slots=True)
class Apply:
    """A user's operator, one per subtask. ``label`` names it in descriptions."""

    factory: OperatorFactory
    label: str
    stateless: bool
    blocking: bool

    def detail(self) -> dict[str, Json]:
        return {"operator": self.label}


@dataclass(frozen=True, slots=True)
class Write:
    """Rows into a sink."""

    sink: Sink

    def detail(self) -> dict[str, Json]:
        return {"sink": type(self.sink).__name__}


Spec = (
    Read
    | Filter
    | Project
    | MapBatches
    | MapRows
    | FlatMapRows
    | Watermarks
    | Combine
    | Aggregate
    | WindowAggregate
    | Union
    | Apply
    | Write
)


def _function_detail(function: Callable[..., Any], on_error: OnError) -> dict[str, Json]:
    name = getattr(function, "__qualname__", type(function).__name__)
    return {"function": name} if on_error is OnError.FAIL else {"function": name, "on_error": on_error.value}
