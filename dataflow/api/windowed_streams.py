"""A stream cut into windows, and what is computed of each window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dataflow.api.streams import Stream
from dataflow.contracts.row_errors import LATE
from dataflow.contracts.untimed import Untimed
from dataflow.contracts.windows import Window
from dataflow.expressions import Aggregation, Latest
from dataflow.planning.aggregate_specs import Emit
from dataflow.planning.checks import (
    check_options,
)
from dataflow.planning.window_options import WindowOptions
from dataflow.planning.window_plans import Windowed, plan_windows

if TYPE_CHECKING:
    from dataflow.api.keyed_streams import KeyedStream
    from dataflow.planning.chosen_row_specs import By, Ties
    from dataflow.views.picture import Picture

__all__ = ["WindowedStream"]


class WindowedStream:
    """A stream cut into windows of event time, per key or over all rows; ``agg`` computes aggregates of each window.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> table = pa.table({"k": ["a"], "at": pa.array([1], pa.timestamp("s"))})
    >>> rows = flow.Pipeline().source(op.from_arrow(table), name="rows").with_watermark("at", name="timed")
    >>> rows.key_by("k").window(op.tumbling("10s"))
    WindowedStream('timed' by k, tumbling(10000000us, offset=0us))
    """

    def __init__(self, stream: KeyedStream, window: Window | Untimed, options: WindowOptions) -> None:
        self._stream = stream
        self._window = window
        self._options = options

    def __repr__(self) -> str:
        by = f" by {', '.join(self._stream.keys)}" if self._stream.keys else ""
        return f"WindowedStream({self._stream.name!r}{by}, {self._window})"

    def draw(self, parallelism: int = 1, *, physical: bool = False) -> Picture:
        """Return a picture of all operators that this stream depends on, as `Stream.draw` does.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> table = pa.table({"at": pa.array([1], pa.timestamp("s"))})
        >>> rows = flow.Pipeline("orders").source(op.from_arrow(table), name="rows").with_watermark("at", name="timed")
        >>> print(rows.window(op.tumbling("10s")).draw())
        orders: 2 operators
        <BLANKLINE>
          ○ rows         source, read
          □ timed        watermarks
          │              ↓ without keys, all rows to one task
          ▽ this stream
        """
        return self._stream.draw(parallelism, physical=physical)

    def _repr_html_(self) -> str:
        from dataflow.views.documents import notebook_html

        return notebook_html(self.draw().svg(), repr(self))

    def agg(
        self,
        *aggregations: Aggregation | Latest | Mapping[str, Aggregation],
        emit: str | Emit | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        **named: Aggregation,
    ) -> Stream:
        """Return aggregates per key and window: keys, ``window_start``, ``window_end``, then one column per aggregate.

        Windows without rows of a key have no result for it. Windows without times have ``window_index``, the number of
        the window among those of its key, instead of ``window_start`` and ``window_end``.

        With ``early``, results are *panes*, and after the columns of the window there are two more: ``pane`` is
        "early" before the end of the window, "on_time" at its end, where a pane always comes, and "late" after it;
        ``pane_index`` numbers the panes of a key and window from 0 on. Signed changes do not have these columns.

        ``op.sliding`` has a result for each row: all columns of the row, then the aggregates, without window columns;
        the event time is that of the row.

        A window's rows are emitted once the watermark has reached its end, and at the latest at the end of the input.
        A row is *late* if its last window ended, allowed lateness included, at or before the watermark. It is then
        counted in the summary and emitted unchanged as ``.side("late")``. If only some of its windows ended so early,
        the row counts in the others; it is *partly late*, which the summary shows apart. The event time of a result is
        the last moment of its window, right before ``window_end``; of a session it is ``window_end`` itself.

        Args:
            aggregations: ``op.count()``, ``col("price").max()``, ...; keyword arguments and mappings name them.
                ``op.latest(...)`` makes a column for each of its columns.
            emit: the effect of allowed lateness on the results. ``"updates"``: a window is emitted at its end, and
                again for each batch of rows that it still takes; the last row of a key and window counts (see
                `changes`). ``"changes"``: the same, but the result that was shown is taken back by a row with
                ``change`` -1 directly before the new one, which has ``change`` +1, in the same batch; a result that a
                batch does not change is not emitted. ``"final"``: a window is emitted once, when the watermark reaches
                its end plus the lateness; the watermark downstream is reduced by the lateness, so that no later window
                takes the results for late. Without lateness all three emit the same rows. Default: updates with
                lateness or ``early``, else final. Discarding panes are rows, and take no ``emit``. ``op.sliding``
                takes ``"final"``, or ``"changes"``, which it needs with lateness. ``op.session``
                takes ``"changes"`` and ``"final"``, and discarding panes without ``emit``; see there.
            name: the operator's name. A column called ``name`` is given in a mapping: ``agg({"name": op.count()})``.
            parallelism: how many subtasks the operator has; None: as many as the run says.
            named: aggregates under new names.

        Raises:
            GraphError: no aggregate is given, a value is not an aggregate, two columns have one name, or a column is
                called ``change`` where signed changes would be emitted. ``emit`` is given for discarding panes, or is
                "final" with ``early`` or ``late``. These windows have no such aggregate, ``emit`` or lateness.
            ConfigurationError: ``emit`` is unknown.
            SchemaMismatch: an aggregate cannot take its column's type, or rows with such a column cannot be kept.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> at = pa.array([1, 12, 2, 30], pa.timestamp("s"))  # the third row comes when the watermark is at 12
        >>> table = pa.table({"k": ["a", "a", "a", "a"], "at": at})
        >>> rows = flow.Pipeline().source(op.from_arrow(table, batch_rows=1)).with_watermark("at")
        >>> windows = rows.key_by("k").window(op.tumbling("10s"), lateness="5s")
        >>> windows.agg(op.count().alias("n"), emit="updates").collect()["n"].to_pylist()
        [1, 2, 1, 1]
        >>> windows.agg(op.count().alias("n"), emit="final").collect()["n"].to_pylist()
        [2, 1, 1]
        >>> changes = windows.agg(op.count().alias("n"), emit="changes").collect()
        >>> list(zip(changes["n"].to_pylist(), changes["change"].to_pylist()))
        [(1, 1), (1, -1), (2, 1), (1, 1), (1, 1)]
        """
        stream, window = self._stream, self._window
        check_options("agg", stream.schema, name=name, parallelism=parallelism, emit=emit)
        computed = stream._aggregations(aggregations, named)
        width = stream._width(parallelism)
        keys, results = stream._key_fields(), stream._fields_of(computed)
        windowed = Windowed(stream.schema, keys, stream._time, self._options, tuple(computed), results, emit)
        if emit in (Emit.CHANGES, Emit.CHANGES.value):
            stream._check_change("agg")
        plan = plan_windows(window, windowed)
        sides = {LATE: stream.schema} if isinstance(window, Window) else {}
        return stream._then(plan.spec, plan.schema, "window", name, width, sides=sides, time=plan.time)

    def top(
        self,
        n: int,
        *,
        by: By,
        descending: bool | Sequence[bool] = True,
        ties: Ties = "arrival",
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the first ``n`` rows of each key and window by the order of columns, with their ``rank``.

        They come out once, when the watermark has reached the end of the window plus the allowed lateness; the
        watermark downstream is reduced by the lateness. Rows that come later are in ``.side("late")``.

        Args:
            n: the greatest rank.
            by: the column to compare, or several, as for `KeyedStream.top`.
            descending: as for `KeyedStream.top`.
            ties: as for `KeyedStream.top`.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Returns: a stream of the keys, ``window_start`` and ``window_end``, the other columns, and ``rank``. Its event
            time is the last moment of the window.

        Raises:
            GraphError: the windows are sessions, sliding or of a kind without times; they have ``early``, ``late`` or
                discarding panes; or as for `KeyedStream.top`.
            UnknownColumn, SchemaMismatch, ConfigurationError: as for `KeyedStream.top`.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> table = pa.table({"at": pa.array([1, 2, 12], pa.timestamp("s")), "price": [3, 9, 5]})
        >>> rows = flow.Pipeline().source(op.from_arrow(table)).with_watermark("at")
        >>> rows.window(op.tumbling("10s")).top(1, by="price").collect()["price"].to_pylist()
        [9, 5]
        """
        from dataflow.api.tops import top_of_windows

        return top_of_windows(self, n, by, descending, ties, name, parallelism)
