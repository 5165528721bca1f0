"""The specs of joins. The package ``operators.joins`` implements them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

from dataflow.clock import exact_duration_text
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Meaning, Signed, Updates, meaning_error
from dataflow.contracts.windows import EventTime, Sliced
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.join_columns import JoinColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.state.ttl import Ttl

__all__ = ["AsofJoin", "ExpiringJoin", "ForwardAsofJoin", "How", "IntervalJoin", "Join", "UnboundedJoin", "WindowJoin"]
__all__ += ["refuse_updates"]

How = Literal["inner", "left", "right", "full"]

_LATE = MappingProxyType({LATE: 0, LATE_RIGHT: 1})


def refuse_updates(meanings: Sequence[Meaning | None], word: str) -> None:
    """Raise GraphError if an input of a join has updates."""
    for meaning in meanings:
        if isinstance(meaning, Updates):
            problem = (
                'a joined row cannot be replaced. Use emit="changes" in the place of emit="updates": joins take signed '
                "changes"
            )
            raise meaning_error(word, meaning, problem)


class Join(Spec):
    """Pairs of left and right rows with equal keys. Input 0 is the left side.

    Attributes:
        columns: where the columns of the result come from.
        how: the sides whose rows come out even if they have no counterpart.
        times: the event times of the sides.
    """

    is_users = False
    keeps_batches = False
    sees_batches = False
    is_signed = False
    """Whether the result has signed changes."""

    columns: JoinColumns
    how: How
    times: tuple[EventTime | None, EventTime | None]

    @property
    def outer(self) -> tuple[bool, bool]:
        """Whether rows without a counterpart come out, for each side."""
        return self.how in ("left", "full"), self.how in ("right", "full")

    def arguments(self) -> tuple[Any, ...]:
        return (self,)

    def detail(self) -> dict[str, Json]:
        keys = self.columns.keys
        own: dict[str, Json] = {"left_on": list(keys.left), "right_on": list(keys.right), "how": self.how}
        times = [time for time in self.times if time is not None]
        if times:
            own |= {"times": [time.column for time in times], "exclusive": [time.exclusive for time in times]}
        return own

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        time = self.times[port]
        return self.columns.read(port, used) | (set() if time is None else {time.column})

    def pruned(self, used: set[str]) -> Self:
        return replace(self, columns=self.columns.pruned(used))  # type: ignore[type-var]  # its kinds are dataclasses

    def narrowed(self, inputs: Sequence[pa.Schema], output: pa.Schema) -> pa.Schema:
        return self.columns.narrowed([schema.names for schema in inputs], output)


@dataclass(frozen=True, slots=True)
class UnboundedJoin(Join):
    """Joins each row with all rows of its key. A row is kept for ``ttl``, if that is not None.

    ``signed_inputs``: whether the inputs have signed changes. ``emit``: whether rows without a counterpart come out at
    the end (``Emit.FINAL``), or at once, and are taken back later (``Emit.CHANGES``).
    """

    columns: JoinColumns
    how: How
    times: tuple[EventTime | None, EventTime | None]
    emit: Emit
    because: str
    signed_inputs: tuple[bool, bool]
    ttl: Ttl | None

    kind_words = "join"

    emits_sooner = "give emit='changes'"

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl=, within= or window=" if self.ttl is None else ""

    @property
    def emits_at_end(self) -> str:  # type: ignore[override]
        return "rows without a counterpart" if any(self.outer) and self.emit is Emit.FINAL else ""

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.is_signed or self.ttl is not None

    @property
    def is_signed(self) -> bool:  # type: ignore[override]
        """Whether the result has signed changes."""
        return any(self.signed_inputs) or (any(self.outer) and self.emit is Emit.CHANGES)

    @property
    def shows(self) -> tuple[bool, bool]:
        """Whether rows without a counterpart come out at once, for each side."""
        left, right = self.outer
        at_once = self.emit is Emit.CHANGES
        return left and at_once, right and at_once

    def in_batch(self) -> Join:
        return UnboundedJoin(self.columns, self.how, (None, None), Emit.FINAL, "", self.signed_inputs, None)

    def detail(self) -> dict[str, Json]:
        ttl = None if self.ttl is None else exact_duration_text(self.ttl.length)
        emit = {"emit": self.emit.value} if any(self.outer) else {}  # an inner join emits pairs at once
        return {**Join.detail(self), **emit, "ttl": ttl}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        change = {CHANGE} if self.signed_inputs[port] else set()
        return set(Join.reads(self, port, used)) | change

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        refuse_updates(inputs, word)
        signed = next((meaning for meaning in inputs if isinstance(meaning, Signed)), None)
        if signed is not None:
            return signed
        return Signed(name, self.because) if self.is_signed else None


@dataclass(frozen=True, slots=True)
class ExpiringJoin(UnboundedJoin):
    """Joins each row with the rows of its key whose times are less than ``ttl`` apart from its own.

    ``times``: the event times of both sides, or None for both: the time of a row is then when it came, by the clock.
    """

    kind_words = "join in time"
    uses_late_rows = True

    @property
    def reach(self) -> int:
        """The greatest distance of two rows that meet, in nanoseconds."""
        assert self.ttl is not None, "rows expire"
        return 1000 * self.ttl.length - 1

    @property
    def late_outputs(self) -> Mapping[str, int]:  # type: ignore[override]
        return {} if self.times[0] is None else _LATE

    def in_batch(self) -> Join:
        """Return a join by time, or without event time of all rows: a batch has no time by the clock."""
        left, right = self.times
        if left is None or right is None:
            return UnboundedJoin.in_batch(self)
        return IntervalJoin(self.columns, self.how, (left, right), -self.reach, self.reach, 0)


class TimedJoin(Join):
    """A join of rows by event time, which both sides have."""

    late_outputs = _LATE

    times: tuple[EventTime, EventTime]


@dataclass(frozen=True, slots=True)
class IntervalJoin(TimedJoin):
    """Joins rows with ``low <= right time - left time <= high``, in nanoseconds; ``lateness`` is in microseconds."""

    columns: JoinColumns
    how: How
    times: tuple[EventTime, EventTime]
    low: int
    high: int
    lateness: int

    kind_words = "join in time"

    def detail(self) -> dict[str, Json]:
        return {
            **Join.detail(self),
            "within": [_span(self.low), _span(self.high)],
            "lateness": exact_duration_text(self.lateness),
        }


@dataclass(frozen=True, slots=True)
class WindowJoin(TimedJoin):
    """Joins rows of one window. ``lateness`` in microseconds."""

    columns: JoinColumns
    how: How
    times: tuple[EventTime, EventTime]
    window: Sliced
    lateness: int

    kind_words = "join in windows"

    def detail(self) -> dict[str, Json]:
        return {
            **Join.detail(self),
            "window": str(self.window),
            "lateness": exact_duration_text(self.lateness),
        }


class NearestJoin(TimedJoin):
    """A join of each left row with the nearest right row, on one side of it.

    ``limit`` (microseconds): the greatest distance of the two; None: any. A ``ttl`` is a limit as well, of one
    microsecond less; ``tolerance`` is the limit without it.
    """

    limit: int | None
    tolerance: int | None

    @property
    def reach(self) -> int | None:
        """The greatest distance of the two in nanoseconds; below the ``ttl``, if that is the limit. None: any."""
        if self.limit is None:
            return None
        return 1000 * self.limit + (0 if self.limit == self.tolerance else 999)


@dataclass(frozen=True, slots=True)
class AsofJoin(NearestJoin):
    """Joins each left row with the latest right row at or before it."""

    columns: JoinColumns
    how: How
    times: tuple[EventTime, EventTime]
    limit: int | None
    tolerance: int | None = field(default=None, compare=False)

    @property
    def bounded_by(self) -> str:  # type: ignore[override]
        return "ttl= or tolerance=" if self.limit is None else ""

    def in_batch(self) -> AsofJoin:
        return replace(self, limit=self.tolerance)

    def detail(self) -> dict[str, Json]:
        return {**Join.detail(self), "strategy": "backward", "tolerance or ttl": _span(self.reach)}


@dataclass(frozen=True, slots=True)
class ForwardAsofJoin(NearestJoin):
    """Joins each left row with the earliest right row at or after it, at most ``limit`` microseconds after it."""

    columns: JoinColumns
    how: How
    times: tuple[EventTime, EventTime]
    limit: int
    tolerance: int | None = field(default=None, compare=False)

    holds_by_rows = True

    def in_batch(self) -> ForwardAsofJoin:
        assert self.tolerance is not None, "a forward join has a tolerance"
        return replace(self, limit=self.tolerance)

    def detail(self) -> dict[str, Json]:
        return {**Join.detail(self), "strategy": "forward", "tolerance or ttl": _span(self.reach)}


def _span(nanoseconds: int | None) -> str | None:
    """Return a distance of times as text.

    >>> _span(60_000_000_000), _span(-1_500), _span(None)
    ('1min', '-1500 ns', None)
    """
    if nanoseconds is None:
        return None
    return f"{nanoseconds} ns" if nanoseconds % 1_000 else exact_duration_text(nanoseconds // 1_000)
