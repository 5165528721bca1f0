"""The specs of windows whose results come by triggers, and of windows without times."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from dataflow.contracts.panes import AfterRows, AfterTime, Panes, Trigger
from dataflow.contracts.source import Json
from dataflow.contracts.spec import Spec
from dataflow.contracts.untimed import WINDOW_INDEX, CountWindow
from dataflow.contracts.updates import Meaning
from dataflow.contracts.windows import EventTime
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit, Grouped, SessionAggregate, WindowAggregate

__all__ = [
    "CountAggregate",
    "GlobalAggregate",
    "TriggeredAggregate",
    "TriggeredSessionAggregate",
]


class _Triggered(Grouped):
    """Aggregates that triggers show, ``early`` before the end of a window and ``late`` after it, as ``panes``."""

    @property
    @abstractmethod
    def early(self) -> Trigger | None: ...

    @property
    @abstractmethod
    def late(self) -> Trigger | None: ...

    @property
    @abstractmethod
    def panes(self) -> Panes: ...

    @property
    def has_pane_columns(self) -> bool:  # type: ignore[override]
        """Whether results say which pane they are: with early panes, but for signed changes."""
        return self.early is not None and self.emit is not Emit.CHANGES

    @property
    def depends_on_cuts(self) -> bool:  # type: ignore[override]
        return self.has_pane_columns or self.panes is Panes.DISCARDING

    @property
    def shown_by_clock(self) -> bool:  # type: ignore[override]
        return any(isinstance(trigger, AfterTime) for trigger in (self.early, self.late))


@dataclass(frozen=True, slots=True)
class TriggeredAggregate(_Triggered, WindowAggregate):
    """Computes aggregates per key and window of event time, which ``early`` and ``late`` show besides the one at the
    end.

    ``emit`` is not ``Emit.FINAL``. Discarding panes are rows, each of which counts.
    """

    merges_slices: ClassVar[bool] = False

    early: Trigger | None = None
    late: Trigger | None = None
    panes: Panes = Panes.ACCUMULATING

    @property
    def takes_records(self) -> bool:
        return not self.window.overlaps

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return True

    def arguments(self) -> tuple[Any, ...]:
        return (
            self.keys,
            self.aggregations,
            self.emit,
            self.early,
            self.late,
            self.panes,
            self.time,
            self.window,
            self.lateness,
        )

    def in_batch(self) -> Spec:
        return replace(self, early=_never(self.early), late=None)

    def detail(self) -> dict[str, Json]:
        return {
            **WindowAggregate.detail(self),
            "early": _text(self.early),
            "late": _text(self.late),
            "panes": self.panes.value,
        }

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        meaning = WindowAggregate.changes(self, inputs, name=name, word=word)
        return None if self.panes is Panes.DISCARDING else meaning


@dataclass(frozen=True, slots=True)
class TriggeredSessionAggregate(_Triggered, SessionAggregate):
    """Computes aggregates per key and session over the rows that no pane has shown, so that panes add up.

    Each pane is a row that counts. ``emit`` is ``Emit.UPDATES``.
    """

    panes: ClassVar[Panes] = Panes.DISCARDING

    early: Trigger | None = None
    late: Trigger | None = None

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return True

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.time, self.window, self.lateness, self.aggregations, self.early, self.late

    def in_batch(self) -> Spec:
        return replace(self, early=_never(self.early), late=None)

    def detail(self) -> dict[str, Json]:
        return {
            **SessionAggregate.detail(self),
            "early": _text(self.early),
            "late": _text(self.late),
            "panes": self.panes.value,
        }

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        SessionAggregate.changes(self, inputs, name=name, word=word)
        return None


class _UntimedAggregate(Grouped):
    """Aggregates of windows without times."""

    windowed = True
    signed = False

    @property
    def takes_records(self) -> bool:
        return False

    @property
    def update_keys(self) -> tuple[str, ...]:
        return *self.keys, WINDOW_INDEX

    @property
    def row_keys(self) -> tuple[str, ...]:
        return self.update_keys

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {*self.keys, *self._aggregated()}


@dataclass(frozen=True, slots=True)
class GlobalAggregate(_Triggered, _UntimedAggregate):
    """Computes aggregates per key over all rows; ``early`` shows results before the end."""

    late = None
    emits_sooner = "give window(early=...) a trigger"

    keys: tuple[str, ...]
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    because: str = field(default="", compare=False)
    early: Trigger | None = None
    panes: Panes = Panes.ACCUMULATING

    @property
    def emits_at_end(self) -> str:  # type: ignore[override]
        return "its results" if self.early is None else ""

    @property
    def sees_batches(self) -> bool:  # type: ignore[override]
        return self.early is not None

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.aggregations, self.emit, self.early, None, self.panes

    def in_batch(self) -> Spec:
        return replace(self, early=_never(self.early))

    def detail(self) -> dict[str, Json]:
        return {
            "keys": list(self.keys),
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
            "early": _text(self.early),
            "panes": self.panes.value,
        }

    def changes(self, inputs: Sequence[Meaning | None], *, name: str, word: str) -> Meaning | None:
        meaning = Grouped.changes(self, inputs, name=name, word=word)
        return None if self.panes is Panes.DISCARDING else meaning


@dataclass(frozen=True, slots=True)
class CountAggregate(_UntimedAggregate):
    """Computes aggregates per key and window of so many rows by arrival."""

    sees_batches = False

    keys: tuple[str, ...]
    window: CountWindow
    aggregations: tuple[Aggregation, ...]
    emit: Emit
    because: str = field(default="", compare=False)

    def arguments(self) -> tuple[Any, ...]:
        return self.keys, self.window, self.aggregations, self.emit

    def wants_order(self, time: EventTime | None) -> bool:
        return time is not None

    def detail(self) -> dict[str, Json]:
        return {
            "keys": list(self.keys),
            "window": str(self.window),
            "aggregations": [str(a) for a in self.aggregations],
            "emit": self.emit.value,
        }


def _never(trigger: Trigger | None) -> Trigger | None:
    """Return a trigger that keeps the columns of ``trigger`` and never shows a result; None stays None."""
    return None if trigger is None else AfterRows(2**62)


def _text(trigger: Trigger | None) -> str | None:
    return None if trigger is None else str(trigger)
