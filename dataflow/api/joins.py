"""The methods of streams that join two streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from dataflow.api.stream_base import StreamBase
from dataflow.clock import Duration, microseconds, signed_microseconds
from dataflow.contracts.row_errors import LATE, LATE_RIGHT
from dataflow.contracts.updates import CHANGE, Signed
from dataflow.contracts.window_kinds import Cumulate, Hopping, Tumbling
from dataflow.contracts.windows import EventTime, Window
from dataflow.errors import ConfigurationError, GraphError
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.checks import check_options, check_zones, choose_emit, edge_type
from dataflow.planning.graph import Partitioning
from dataflow.planning.join_columns import join_columns, join_keys
from dataflow.planning.join_specs import (
    AsofJoin,
    ExpiringJoin,
    ForwardAsofJoin,
    How,
    IntervalJoin,
    Join,
    UnboundedJoin,
    WindowJoin,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.streams import Stream
    from dataflow.planning.join_columns import JoinColumns, JoinKeys

__all__ = ["JoinMethods"]

Keys = str | Sequence[str]
Strategy = Literal["backward", "forward"]


class JoinMethods(StreamBase):
    """The methods of `Stream` that pair its rows with those of another stream."""

    def join(
        self,
        right: Stream,
        *,
        on: Keys | None = None,
        left_on: Keys | None = None,
        right_on: Keys | None = None,
        how: How = "inner",
        suffix: str = "_right",
        window: Window | None = None,
        within: tuple[Duration, Duration] | None = None,
        lateness: Duration = "0s",
        ttl: Duration | None = None,
        emit: str | Emit | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the pairs of rows of this stream, the left side, and of ``right`` with equal keys.

        Null equals nothing; NaN equals NaN, and -0.0 equals 0.0. Which pairs there are depends on one of:

        - ``window``: both rows are in the window. The pairs of a window come out once, when the watermark has reached
          its end plus ``lateness``.
        - ``within=(lo, hi)``: lo <= right time - left time <= hi. A pair comes out as soon as both rows are there.
        - neither: all rows of a key are pairs, whenever they come. So all rows are kept, or each for ``ttl``.

        Args:
            right: the other stream, of the same pipeline.
            on: the column, or columns, that must be equal and that both sides have.
            left_on: with ``right_on``, in the place of ``on``: the columns of this stream.
            right_on: the columns of ``right``, in the same order and of the same types.
            how: ``"inner"``: pairs alone; ``"left"``, ``"right"``, ``"full"``: also the rows of this side, or of both,
                that have no counterpart, with nulls in the columns of the other side.
            suffix: is put after the name of a right column if the result already has a column of that name.
            window: ``op.tumbling(...)``, ``op.hopping(...)`` or ``op.cumulate(...)``.
            within: two durations such as ``("-4s", "10s")``, which may be negative; both ends count.
            lateness: with ``window`` or ``within``: how far a row, or its last window, may be behind the watermark and
                still count. The watermark of the result is held back as long.
            ttl: rows meet if their times are less than this apart, whichever comes first: their event times if both
                sides have event time, else when they came, by the clock. What was shown stays. Only without ``window``
                and ``within``.
            emit: of outer joins without ``window`` and ``within``: ``"changes"``: a row without a counterpart comes out
                at once, and is taken back (``change`` -1) when the first one comes; ``"final"``: it comes out at the
                end of the input. Default: final for bounded input, else changes.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream of the keys, with their names on the left side; ``window_start`` and ``window_end`` if there
            are windows; the other left columns; the other right columns. With ``window`` its event time is the last
            moment of the window. With ``within`` it is the left one; rows of ``"right"`` and ``"full"`` joins have
            none. Rows that came too late are in ``.side("late")`` and ``.side("late_right")``; with ``ttl`` and event
            time, a row before the watermark is there as well, and meets those rows that are still kept.

            Signed changes are joined without ``window``, ``within`` and ``ttl``; then the result has signed changes.

        Raises:
            GraphError: wrong combinations of arguments; two columns of one name; a stream of updates, of another
                pipeline, or without the event time that is needed.
            SchemaMismatch: keys of different types, or of types that cannot be keys; with ``window``, ``within`` or
                ``ttl``, event times of which only one has a time zone.
            UnknownColumn: a side has no such column.
            ConfigurationError: ``how``, ``emit`` or a duration is wrong.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> p = flow.Pipeline()
        >>> orders = p.source(op.from_arrow(pa.table({"id": [1, 2], "item": ["tea", "jam"]})), name="orders")
        >>> payments = p.source(op.from_arrow(pa.table({"id": [1, 1], "euros": [3, 4]})), name="payments")
        >>> paid = orders.join(payments, on="id", how="left", name="paid")
        >>> paid.collect().sort_by("euros").to_pylist()  # doctest: +NORMALIZE_WHITESPACE
        [{'id': 1, 'item': 'tea', 'euros': 3}, {'id': 1, 'item': 'tea', 'euros': 4},
         {'id': 2, 'item': 'jam', 'euros': None}]
        """
        arguments = _Arguments(self, right, how, window, within, lateness, ttl, emit)
        check_options("join", self.schema, name=name, parallelism=parallelism)
        self._same_pipeline([right], "join")
        arguments.check()
        keys = join_keys(self._columns, right._columns, "join", on, left_on, right_on)
        planned = arguments.plan(keys, suffix)
        edges = (self._spread(Partitioning.HASH, keys.left), right._spread(Partitioning.HASH, keys.right))
        return self._then(
            planned.spec,
            planned.schema,
            "join",
            name,
            parallelism,
            edges,
            sides=planned.sides,
            time=planned.time,
        )

    def join_asof(
        self,
        right: Stream,
        *,
        by: Keys | None = None,
        left_by: Keys | None = None,
        right_by: Keys | None = None,
        strategy: Strategy = "backward",
        tolerance: Duration | None = None,
        how: Literal["inner", "left"] = "left",
        suffix: str = "_right",
        ttl: Duration | None = None,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return each row of this stream, the left side, with the row of ``right`` that is nearest in event time.

        Only rows with equal keys meet; null equals nothing. Of right rows of one time, the last to arrive counts; with
        several source subtasks that may be any of them.

        Args:
            right: the other stream, of the same pipeline.
            by: the column, or columns, that must be equal and that both sides have.
            left_by: with ``right_by``, in the place of ``by``: the columns of this stream.
            right_by: the columns of ``right``, in the same order and of the same types.
            strategy: ``"backward"``: the latest right row at or before the left row, which comes out when the watermark
                is above its time; ``"forward"``: the earliest right row at or after it. Then it comes out when the
                watermark is above the time of that row, or above its own time plus ``tolerance``.
            tolerance: the greatest distance between the two rows, included; None: any distance. Forward needs one.
            how: ``"left"``: a row without a counterpart comes out with nulls; ``"inner"``: it does not.
            suffix: is put after the name of a right column if the result already has a column of that name.
            ttl: right rows are forgotten so long after their time; a left row at that time or later does not meet them.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream of the keys, with their names on the left side; the other left columns; the other right
            columns. Its event time is the left one. Rows before the watermark are in ``.side("late")`` and
            ``.side("late_right")``.

        Raises: the errors of `join`; GraphError if ``tolerance`` is missing with ``strategy="forward"``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> def timed(name, times, **columns):
        ...     table = pa.table({"city": ["Rome"] * len(times), "at": pa.array(times, pa.timestamp("s")), **columns})
        ...     return p.source(op.from_arrow(table), name=name).with_watermark("at", name=f"{name} in time")
        >>> p = flow.Pipeline()
        >>> flights, weather = timed("flights", [5, 9]), timed("weather", [3, 8], sky=["rain", "sun"])
        >>> seen = flights.join_asof(weather, by="city", tolerance="1h", name="seen")
        >>> seen.collect().sort_by("at")["sky"].to_pylist()
        ['rain', 'sun']
        """
        check_options("join_asof", self.schema, name=name, parallelism=parallelism)
        self._same_pipeline([right], "join_asof")
        if strategy not in get_args(Strategy):
            raise ConfigurationError(f"join_asof(strategy=) must be 'backward' or 'forward', got {strategy!r}")
        if how not in ("inner", "left"):
            raise ConfigurationError(f"join_asof(how=) must be 'inner' or 'left', got {how!r}")
        for word, side in (("left", self), ("right", right)):
            _check_timed("join_asof", word, side)
        times = _times("join_asof", (self, right))
        limits = [] if tolerance is None else [microseconds(tolerance, "join_asof(tolerance=)")]
        if strategy == "forward" and not limits:
            raise GraphError(
                "join_asof(strategy='forward') needs tolerance=, because a row would wait for ever for a later one; "
                "give the greatest distance, such as tolerance='1h'"
            )
        if ttl is not None:
            limits.append(microseconds(ttl, "join_asof(ttl=)") - 1)
            if limits[-1] < 0:
                raise ConfigurationError("join_asof(ttl=) must be above zero; leave it out to keep the last rows")
        keys = join_keys(self._columns, right._columns, "join_asof", by, left_by, right_by)
        columns, schema = join_columns(
            self._columns, right._columns, keys, "join_asof", suffix=suffix, optional=(False, how == "left")
        )
        limit, nearest = min(limits, default=None), None if tolerance is None else limits[0]
        spec: Join = AsofJoin(columns, how, times, limit, nearest)
        if strategy == "forward":
            assert limit is not None, "a forward join has a tolerance"
            spec = ForwardAsofJoin(columns, how, times, limit, nearest)
        edges = (self._spread(Partitioning.HASH, keys.left), right._spread(Partitioning.HASH, keys.right))
        sides = {LATE: self.schema, LATE_RIGHT: right.schema}
        time = _left_time(columns, times[0])
        return self._then(spec, schema, "join_asof", name, parallelism, edges, sides=sides, time=time)


@dataclass(frozen=True, slots=True)
class _Planned:
    spec: UnboundedJoin | IntervalJoin | WindowJoin
    schema: pa.Schema
    time: EventTime | None
    sides: dict[str, pa.Schema]


@dataclass(frozen=True, slots=True)
class _Arguments:
    """The arguments of `join`."""

    left: StreamBase
    right: StreamBase
    how: How
    window: Window | None
    within: tuple[Duration, Duration] | None
    lateness: Duration
    ttl: Duration | None
    emit: str | Emit | None

    @property
    def sides(self) -> tuple[StreamBase, StreamBase]:
        return self.left, self.right

    @property
    def optional(self) -> tuple[bool, bool]:
        """Whether rows without a left row, and without a right row, come out."""
        return self.how in ("right", "full"), self.how in ("left", "full")

    def check(self) -> None:
        """Raise GraphError or ConfigurationError for arguments that do not go together."""
        if self.how not in get_args(How):
            raise ConfigurationError(f"join(how=) must be one of {[*get_args(How)]}, got {self.how!r}")
        given = [word for word in ("window", "within", "ttl") if getattr(self, word) is not None]
        if len(given) > 1:
            raise GraphError(f"join: {given[0]}= and {given[1]}= exclude each other; leave one of them out")
        timed = bool(given) and given[0] != "ttl"
        if microseconds(self.lateness, "join(lateness=)") and not timed:
            raise GraphError("join(lateness=) needs window= or within=, because only these wait for late rows")
        if self.emit is not None and (timed or self.how == "inner"):
            why = "an inner join" if not timed else f"a join with {given[0]}="
            raise GraphError(
                f"join(emit={self.emit!r}) cannot be used with {why}, whose rows come out once and stay; leave emit= "
                "out"
            )
        if not timed and self.ttl is None:
            return
        for word, side in zip(("left", "right"), self.sides, strict=True):
            _check_timed(f"join({given[0]}=)", word, side, needs_time=timed)

    def plan(self, keys: JoinKeys, suffix: str) -> _Planned:
        """Return the operator, its columns, its event time and its side outputs."""
        if self.window is not None:
            return self._windowed(keys, suffix, self.window)
        return self._unbounded(keys, suffix) if self.within is None else self._interval(keys, suffix, self.within)

    def _unbounded(self, keys: JoinKeys, suffix: str) -> _Planned:
        import pyarrow as pa

        from dataflow.state.ttl import Ttl

        left, right = self.sides
        signed = left._is_signed, right._is_signed
        emit, because = self._emit()
        columns, schema = self._columns(keys, suffix)
        ttl = None if self.ttl is None else microseconds(self.ttl, "join(ttl=)")
        if ttl == 0:
            raise ConfigurationError("join(ttl=) must be above zero; leave it out to keep all rows")
        timed = ttl is not None and left._time is not None and right._time is not None
        times = _times("join(ttl=)", self.sides) if timed else (None, None)
        kind, kept = (UnboundedJoin, None) if ttl is None else (ExpiringJoin, Ttl(ttl))
        spec = kind(columns, self.how, times, emit, because, signed, kept)
        if spec.is_signed:
            schema = schema.append(pa.field(CHANGE, pa.int8()))
        return _Planned(spec, schema, None, self._late() if timed else {})

    def _emit(self) -> tuple[Emit, str]:
        """Return what an outer join emits, and why if the user did not say it."""
        graph = self.left._pipeline.graph
        for side in self.sides:
            upstream = graph.upstream(side._node)
            emit, because = choose_emit(self.emit, None, self.ttl, upstream, side._meaning, "join")
            if emit is not Emit.FINAL:
                if emit is Emit.UPDATES and self.emit is not None:
                    raise ConfigurationError("join(emit=) must be 'changes' or 'final', got 'updates'")
                return Emit.CHANGES, because
        return Emit.FINAL, ""

    def _interval(self, keys: JoinKeys, suffix: str, within: tuple[Duration, Duration]) -> _Planned:
        if not isinstance(within, tuple | list) or len(within) != 2:
            raise ConfigurationError(f"join(within=) takes two durations, such as ('-4s', '10s'), got {within!r}")
        low, high = (1000 * signed_microseconds(length, "join(within=)") for length in within)
        if low > high:
            raise ConfigurationError(
                f"join(within=): the first duration is above the second, so no rows would meet, got {within!r}; it is "
                "the least and the greatest value of right time - left time"
            )
        columns, schema = self._columns(keys, suffix)
        times = _times("join(within=)", self.sides)
        spec = IntervalJoin(columns, self.how, times, low, high, microseconds(self.lateness, "join(lateness=)"))
        time = None if self.optional[0] else _left_time(spec.columns, times[0])
        return _Planned(spec, schema, time, self._late())

    def _windowed(self, keys: JoinKeys, suffix: str, window: Window) -> _Planned:
        import pyarrow as pa

        if not isinstance(window, Tumbling | Hopping | Cumulate):
            raise GraphError(
                f"join(window=) takes op.tumbling, op.hopping and op.cumulate, got {window!r}; rows that are near each "
                "other in time are joined by within=(lo, hi)"
            )
        times = _times("join(window=)", self.sides)
        units = [
            edge_type(side.schema.field(time.column).type, window) for side, time in zip(self.sides, times, strict=True)
        ]
        order = ("s", "ms", "us", "ns")
        kind = max(units, key=lambda unit: order.index(unit.unit))
        edges = [pa.field("window_start", pa.timestamp(kind.unit, units[0].tz))]
        edges.append(edges[0].with_name("window_end"))
        columns, schema = self._columns(keys, suffix, edges)
        spec = WindowJoin(columns, self.how, times, window, microseconds(self.lateness, "join(lateness=)"))
        return _Planned(spec, schema, EventTime("window_end", exclusive=True), self._late())

    def _columns(self, keys: JoinKeys, suffix: str, edges: Sequence[pa.Field] = ()) -> tuple[JoinColumns, pa.Schema]:
        left, right = self.sides
        return join_columns(
            left._columns, right._columns, keys, "join", suffix=suffix, edges=edges, optional=self.optional
        )

    def _late(self) -> dict[str, pa.Schema]:
        return {LATE: self.left.schema, LATE_RIGHT: self.right.schema}


def _left_time(columns: JoinColumns, time: EventTime) -> EventTime:
    """Return the event time of a result that has the left one."""
    names = {name: name for name in columns.keys.left} | {origin: name for name, origin in columns.left}
    return EventTime(names[time.column], time.exclusive)


def _times(where: str, sides: tuple[StreamBase, StreamBase]) -> tuple[EventTime, EventTime]:
    """Return the event times of both sides, which have some. Raises: SchemaMismatch if only one has a time zone."""
    left, right = (side._time for side in sides)
    assert left is not None, "the left side has event time"
    assert right is not None, "the right side has event time"
    columns = [side.schema.field(time.column) for side, time in zip(sides, (left, right), strict=True)]
    check_zones(where, ("the left side", columns[0]), ("the right side", columns[1]))
    return left, right


def _check_timed(where: str, word: str, side: StreamBase, *, needs_time: bool = True) -> None:
    """Raise GraphError if the ``word`` side of a join has signed changes, or lacks the event time that is needed."""
    meaning = side._meaning
    if isinstance(meaning, Signed):
        raise GraphError(
            f"{where}: the {word} side, {side.name!r}, has signed changes, and a row that is taken back could come too "
            f'late. Use join without window=, within= and ttl=, or write .agg(..., emit="final") at '
            f"{meaning.aggregate!r}"
        )
    if needs_time and side._time is None:
        raise GraphError(
            f"{where} needs event time, and the {word} side, {side.name!r}, has none; declare its column with "
            f'.with_watermark("ts")'
        )
