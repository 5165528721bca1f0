"""The plans of windowed aggregates: the spec, columns and event time, by the kind of the windows.

A kind with an operator of its own registers a function here: ``@plan_windows.register``. All others are windows that
rows are assigned to, which are a ``WindowAggregate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from dataflow.contracts.panes import PANE, PANE_INDEX, Panes
from dataflow.contracts.sliding import Sliding
from dataflow.contracts.untimed import WINDOW_INDEX, CountWindow, GlobalWindow, Untimed
from dataflow.contracts.updates import CHANGE
from dataflow.contracts.window_kinds import SameWindow, Session
from dataflow.contracts.windows import EventTime, Window, greatest_complete
from dataflow.errors import GraphError, SchemaMismatch
from dataflow.expressions import Aggregation
from dataflow.expressions.aggregate_kinds import words_of
from dataflow.planning.aggregate_specs import (
    Emit,
    Grouped,
    MergingAggregate,
    SessionAggregate,
    SlidingAggregate,
    WindowAggregate,
)
from dataflow.planning.checks import check_distinct, choose_session_emit, choose_sliding_emit, edge_type
from dataflow.planning.triggered_specs import (
    CountAggregate,
    GlobalAggregate,
    TriggeredAggregate,
    TriggeredSessionAggregate,
)
from dataflow.planning.window_options import WindowOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["WindowPlan", "Windowed", "is_exclusive", "plan_windows"]


@dataclass(frozen=True, slots=True)
class Windowed:
    """A call of ``stream.window(...).agg(...)``.

    Attributes:
        schema: the columns of the stream.
        keys: the key columns of the output.
        time: the event time of the stream; None: it has none, and the windows have no times.
        options: the other arguments of ``window``.
        aggregations: what is computed.
        results: the columns of it.
        emit: what the user asked for; None: the default.
    """

    schema: pa.Schema
    keys: Sequence[pa.Field]
    time: EventTime | None
    options: WindowOptions
    aggregations: tuple[Aggregation, ...]
    results: Sequence[pa.Field]
    emit: str | Emit | None

    @property
    def timed(self) -> EventTime:
        """The event time, which a stream with windows of event time has."""
        assert self.time is not None, "a stream cut into windows of event time has event time"
        return self.time

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the keys."""
        return tuple(field.name for field in self.keys)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The operator of windows, the columns of its output, and the event time of these."""

    spec: Grouped | SlidingAggregate
    schema: pa.Schema
    time: EventTime | None


@singledispatch
def plan_windows(window: Window | Untimed, windowed: Windowed) -> WindowPlan:
    """Return the plan of aggregates over ``window``.

    Args:
        window: the kind of the windows, which decides.
        windowed: the stream and the arguments.

    Raises: GraphError for two columns of one name, or what this kind does not take; ConfigurationError if ``emit`` is
        unknown; SchemaMismatch for columns that this kind cannot keep.
    """
    import pyarrow as pa

    merges = isinstance(window, Window) and window.merges
    if merges:
        _check_merging(window, windowed)
    emit, because = (Emit.FINAL, "") if merges else windowed.options.emit(windowed.emit)
    labels = _labels(window, windowed, emit)
    change = [pa.field(CHANGE, pa.int8())] if emit is Emit.CHANGES else []
    schema = pa.schema([*windowed.keys, *labels, *windowed.results, *change])
    check_distinct(schema.names, "agg", "rename the column that is not of the window, before or with .alias(...)")
    time = EventTime("window_end", exclusive=is_exclusive(window)) if isinstance(window, Window) else None
    return WindowPlan(_spec(window, windowed, emit, because), schema, time)


def _check_merging(window: Window | Untimed, windowed: Windowed) -> None:
    """Raise GraphError for what windows that merge do not take: results that change, because two become one."""
    options = windowed.options
    if options.has_triggers:
        raise GraphError(
            f"window: {window} merges windows, whose results come out once, so it takes no early=, late= or panes=; "
            "leave them out"
        )
    if windowed.emit not in (None, Emit.FINAL, Emit.FINAL.value):
        raise GraphError(
            f"agg(emit={windowed.emit!r}) cannot be used with {window}, which merges windows: their results come out "
            "once; leave emit= out, or use op.session, which takes results back"
        )


def is_exclusive(window: Window) -> bool:
    """Return whether ends of windows are exclusive: a watermark at the end of a window completes it."""
    if isinstance(window, SameWindow):
        return not window.inclusive
    return greatest_complete(window, 0) == 0


def _labels(window: Window | Untimed, windowed: Windowed, emit: Emit) -> list[pa.Field]:
    """Return the columns that name a window, and a pane of it."""
    import pyarrow as pa

    if isinstance(window, Window):
        kind = edge_type(windowed.schema.field(windowed.timed.column).type, window)
        labels = [pa.field("window_start", kind), pa.field("window_end", kind)]
    else:
        labels = [pa.field(WINDOW_INDEX, pa.int64())]
    if windowed.options.early is not None and emit is not Emit.CHANGES:
        labels += [pa.field(PANE, pa.string()), pa.field(PANE_INDEX, pa.int64())]
    return labels


def _spec(window: Window | Untimed, windowed: Windowed, emit: Emit, because: str) -> Grouped:
    keys, options, computed = windowed.key_names, windowed.options, windowed.aggregations
    match window:
        case CountWindow():
            return CountAggregate(keys, window, computed, emit, because)
        case GlobalWindow():
            return GlobalAggregate(keys, computed, emit, because, options.early, options.panes)
    timed = (keys, windowed.timed, window, options.lateness, computed, emit, because)
    if window.merges:
        return MergingAggregate(*timed)
    if options.has_triggers:
        return TriggeredAggregate(*timed, options.early, options.late, options.panes)
    return WindowAggregate(*timed)


@plan_windows.register
def _plan_sessions(window: Session, windowed: Windowed) -> WindowPlan:
    import pyarrow as pa

    options = windowed.options
    discards = options.panes is Panes.DISCARDING
    if options.has_triggers and not discards:
        given = "early=" if options.early is not None else "late="
        changes = windowed.emit in (Emit.CHANGES, Emit.CHANGES.value)
        raise GraphError(
            f"window({given}): a pane of {window} that shows all rows cannot say that two sessions became one; "
            + (
                f"leave {given} out, or use panes='discarding' without emit=, whose panes are rows that add up"
                if changes
                else "use panes='discarding', whose panes are rows that add up, or leave the triggers out and use "
                "emit='changes', which takes results back"
            )
        )
    emit = options.emit(windowed.emit)[0] if discards else choose_session_emit(windowed.emit, options.lateness)
    edges = _labels(window, windowed, emit)
    change = [pa.field(CHANGE, pa.int8())] if emit is Emit.CHANGES else []
    schema = pa.schema([*windowed.keys, *edges, *windowed.results, *change])
    check_distinct(schema.names, "agg", "rename the column that is not of the window, before or with .alias(...)")
    arguments = (windowed.key_names, windowed.timed, window, options.lateness, windowed.aggregations, emit)
    if discards:
        spec: SessionAggregate = TriggeredSessionAggregate(*arguments, early=options.early, late=options.late)
    else:
        spec = SessionAggregate(*arguments)
    return WindowPlan(spec, schema, EventTime("window_end"))


@plan_windows.register
def _plan_sliding(window: Sliding, windowed: Windowed) -> WindowPlan:
    import pyarrow as pa

    for a in windowed.aggregations:
        if not a.slides:
            raise GraphError(
                f"agg: {a.name!r} is {a}, and sliding windows compute {words_of(lambda kind: kind.slides)} "
                "alone; use one of them, or other windows such as op.hopping"
            )
    options = windowed.options
    if options.has_triggers:
        raise GraphError(
            f"window: {window} has one result for each row, so it takes no early=, late= or panes=; leave them out"
        )
    emit = choose_sliding_emit(windowed.emit, options.lateness)
    keys = {field.name: field for field in windowed.keys}
    rows = [keys.get(field.name, _kept(field)) for field in windowed.schema]
    change = [pa.field(CHANGE, pa.int8())] if emit is Emit.CHANGES else []
    names = [field.name for field in (*rows, *windowed.results, *change)]
    check_distinct(names, "agg", "the result has the columns of the rows as well: rename one, or drop it before")
    period, time = window.period, windowed.timed
    spec = SlidingAggregate(windowed.key_names, time, period, options.lateness, windowed.aggregations, emit)
    return WindowPlan(spec, pa.schema([*rows, *windowed.results, *change]), time)


def _kept(field: pa.Field) -> pa.Field:
    """Return the field of a column of rows that wait. Raises: SchemaMismatch if its type cannot be kept."""
    import pyarrow as pa

    from dataflow.state.arrays import is_key

    if not is_key(field.type):
        raise SchemaMismatch(
            f"agg: sliding windows keep the rows, and the column {field.name!r} of type {field.type} cannot be kept: "
            "expected a number, boolean, text, binary, time or decimal column; drop it before, or cast it"
        )
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
