"""The specs of ``unique`` and ``top``, and the checks of their arguments. ``operators.chosen_rows`` implements them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from dataflow.clock import Duration, exact_duration_text, microseconds
from dataflow.contracts.evolution import Adaptation, OperatorDescription, PieceChanges
from dataflow.contracts.execution import RowOrder
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Meaning, Signed, meaning_error
from dataflow.contracts.windows import EventTime, Window
from dataflow.errors import ConfigurationError, GraphError
from dataflow.expressions import Expr
from dataflow.planning.aggregate_specs import Aggregate, Emit
from dataflow.planning.checks import choose_emit
from dataflow.state.ttl import Ttl

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.planning.graph import Graph

__all__ = ["EDGES", "RANK", "By", "LastOfKey", "Order", "SignedTop", "Ties", "Top", "TopSpec", "Unique", "WindowTop"]
__all__ += ["choose_row_emit", "time_to_live"]

By = str | Expr | Sequence[str | Expr]
"""The columns by which rows are ranked, as users give them."""
Ties = Literal["arrival", "all"]
RANK: Final = "rank"
"""The column of the rank of a row, from 1 on."""
EDGES: Final = ("window_start", "window_end")
"""The columns of the window of a row."""


def time_to_live(ttl: Duration | None, method: str) -> Ttl | None:
    """Return the time to live that was given to ``method``. Raises: ConfigurationError if it is zero or no duration."""
    if ttl is None:
        return None
    length = microseconds(ttl, f"{method}(ttl=)")
    if length == 0:
        raise ConfigurationError(f"{method}(ttl=) must be above zero; leave it out to keep every key")
    return Ttl(length)


def choose_row_emit(
    emit: str | Emit | None, ttl: Duration | None, upstream: Graph, meaning: Meaning | None, method: str
) -> tuple[Emit, str]:
    """Return whether chosen rows come out at the end, or at once as signed changes; and why, if by default.

    Raises: ConfigurationError if ``emit`` is another value; GraphError if a ``ttl`` does not go with it, or with signed
        changes.
    """
    if emit not in (None, Emit.CHANGES, Emit.FINAL, Emit.CHANGES.value, Emit.FINAL.value):
        raise ConfigurationError(f"{method}(emit=) must be 'changes' or 'final', got {emit!r}")
    if ttl is not None and emit in (Emit.FINAL, Emit.FINAL.value):
        raise GraphError(
            f"{method}(ttl=) needs emit='changes', got emit='final': rows of a key that expires are not there at the "
            "end; leave one of them out"
        )
    chosen, because = choose_emit(emit, None, ttl, upstream, meaning, method)
    return (Emit.FINAL if chosen is Emit.FINAL else Emit.CHANGES), because


@dataclass(frozen=True, slots=True)
class Unique(Spec):
    """Emits the first row of each key. A key is forgotten ``ttl`` after its last row, if that is not None.

    It expires by the event time in ``time``, or by the clock if that is None.
    """

    is_users = False
    holds_rows = False

    keys: tuple[str, ...]
    ttl: Ttl | None
    time: EventTime | None

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl=" if self.ttl is None else ""

    def pieces(self, described: OperatorDescription) -> Collection[str]:
        return ()

    def evolve(self, stored: OperatorDescription, now: OperatorDescription, changes: PieceChanges) -> Adaptation:
        return Adaptation(stored)  # what is stored are whole rows

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.ttl is not None

    def detail(self) -> dict[str, Json]:
        return {"keys": list(self.keys), **ttl_detail(self.ttl, self.time)}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*used, *self.keys, *([] if self.time is None else [self.time.column])}

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return inputs[0]

    def origin_of(self, column: str) -> str:
        return column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        if meaning is not None:
            how = "taken back" if isinstance(meaning, Signed) else "replaced"
            raise meaning_error(word, meaning, f"a row that is shown, or left out for it, could be {how}")
        return None

    def in_batch(self) -> Unique:
        return replace(self, ttl=None, time=None)

    def wants_order(self, time: EventTime | None) -> bool:
        return time is not None

    def carrying(self, column: str) -> Unique:
        return self

    def arguments(self) -> tuple[Any, ...]:
        return (self,)


@dataclass(frozen=True, slots=True)
class LastOfKey(Aggregate):
    """Keeps the last row of each key: an aggregate of all columns that choose the same row."""

    emits_sooner = "give emit='changes'"

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl=" if self.ttl is None else ""


def ttl_detail(ttl: Ttl | None, time: EventTime | None) -> dict[str, Json]:
    """Return the settings of expiry for a checkpoint; None: nothing expires, or by the clock."""
    return {
        "ttl": None if ttl is None else exact_duration_text(ttl.length),
        "time": None if ttl is None or time is None else time.column,
    }


@dataclass(frozen=True, slots=True)
class Order:
    """How rows of a key are ranked: the columns to compare, which of them descend, and the ranks that come out.

    ``ties``: ``"arrival"``: of rows with equal columns the first to arrive is first; ``"all"``: they have one rank.
    """

    n: int
    by: tuple[str, ...]
    descending: tuple[bool, ...]
    ties: Ties

    @property
    def pairs(self) -> list[tuple[str, bool]]:
        """The columns to compare, and whether each descends."""
        return list(zip(self.by, self.descending, strict=True))

    def then(self, columns: Sequence[str]) -> Order:
        """Return this order, in which rows that are equal so far are compared by ``columns``, ascending."""
        more = tuple(name for name in columns if name not in self.by)
        return replace(self, by=(*self.by, *more), descending=(*self.descending, *[False] * len(more)))

    def detail(self) -> dict[str, Json]:
        """Return the settings for a checkpoint."""
        by: list[Json] = [f"{name} {'descending' if down else 'ascending'}" for name, down in self.pairs]
        return {"n": self.n, "by": by, "ties": self.ties}


class TopSpec(Spec):
    """Emits the rows of each key with the lowest ranks. ``time``: the event time of the input, if it is read."""

    is_users = False
    keeps_batches = False
    emits_sooner = "give emit='changes'"

    keys: tuple[str, ...]
    order: Order
    time: EventTime | None

    @property
    def made(self) -> set[str]:
        """The columns of the output that are not of the input."""
        return {RANK}

    def wants_order(self, time: EventTime | None) -> bool:
        return time is not None and self.order.ties == "arrival"

    def ordered_by(self, order: RowOrder) -> Self:
        return replace(self, order=self.order.then(order.columns))  # type: ignore[type-var]  # its kinds are dataclasses

    def arguments(self) -> tuple[Any, ...]:
        return (self,)

    def detail(self) -> dict[str, Json]:
        return {"keys": list(self.keys), **self.order.detail()}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        time = [] if self.time is None else [self.time.column]
        return {*self.keys, *self.order.by, *time, *(used - self.made)}

    def origin_of(self, column: str) -> str | None:
        return None if column in self.made else column

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        if meaning is not None:
            how = "taken back" if isinstance(meaning, Signed) else "replaced"
            raise meaning_error(word, meaning, f"a row among the first ones could be {how}")
        return None


@dataclass(frozen=True, slots=True)
class Top(TopSpec):
    """Ranks the rows of each key that have come: at the end of the input, or with changes after each batch.

    A key expires ``ttl`` after its last row, by the event time in ``time``, or by the clock if it is None.
    """

    keys: tuple[str, ...]
    order: Order
    emit: Emit
    because: str = field(default="", compare=False)
    ttl: Ttl | None = None
    time: EventTime | None = None

    @property
    def made(self) -> set[str]:
        return {RANK, CHANGE} if self.emit is Emit.CHANGES else {RANK}

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl=, or windows" if self.ttl is None and self.keys else ""

    @property
    def emits_at_end(self) -> str:  # type: ignore[override]
        return "its results" if self.emit is Emit.FINAL else ""

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.emit is Emit.CHANGES or self.ttl is not None

    def in_batch(self) -> Top:
        return replace(self, emit=Emit.FINAL, ttl=None, time=None)

    def detail(self) -> dict[str, Json]:
        return {**TopSpec.detail(self), "emit": self.emit.value, **ttl_detail(self.ttl, self.time)}

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        TopSpec.changes(self, inputs, name=name, word=word)
        return Signed(name, self.because) if self.emit is Emit.CHANGES else None


@dataclass(frozen=True, slots=True)
class SignedTop(TopSpec):
    """Ranks the rows of each key that are left of signed changes."""

    keys: tuple[str, ...]
    order: Order
    emit: Emit
    because: str = field(default="", compare=False)
    time: EventTime | None = None

    bounded_by = "windows before it, or fewer keys"

    @property
    def emits_at_end(self) -> str:  # type: ignore[override]
        return "its results" if self.emit is Emit.FINAL else ""

    @property
    def made(self) -> set[str]:
        return {RANK, CHANGE}

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.emit is Emit.CHANGES

    def in_batch(self) -> SignedTop:
        return replace(self, emit=Emit.FINAL)

    def detail(self) -> dict[str, Json]:
        return {**TopSpec.detail(self), "emit": self.emit.value, "signed": True}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*TopSpec.reads(self, port, used), CHANGE}

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        (meaning,) = inputs
        if not isinstance(meaning, Signed):
            TopSpec.changes(self, inputs, name=name, word=word)
        return Signed(name, self.because) if self.emit is Emit.CHANGES else None


@dataclass(frozen=True, slots=True)
class WindowTop(TopSpec):
    """Ranks the rows of each key and window once no row of it can come any more. ``lateness`` in microseconds."""

    late_outputs = MappingProxyType({LATE: 0})
    sees_batches = False

    keys: tuple[str, ...]
    order: Order
    time: EventTime
    window: Window
    lateness: int

    @property
    def made(self) -> set[str]:
        return {RANK, *EDGES}

    def detail(self) -> dict[str, Json]:
        return {
            **TopSpec.detail(self),
            "time": self.time.column,
            "exclusive": self.time.exclusive,
            "window": str(self.window),
            "lateness": self.lateness,
        }

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*TopSpec.reads(self, port, used), *self.window.columns}
