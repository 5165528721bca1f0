"""The user's words for the rows of a key, and of a key and a window: what is aggregated, and when it comes out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from dataflow.checks import columns_of, distinct, edge_type, emission, expression
from dataflow.clock import Duration, microseconds
from dataflow.errors import ConfigurationError, GraphError, SchemaMismatch
from dataflow.expressions import AggregateKind, Aggregation, Latest, col
from dataflow.row_errors import LATE
from dataflow.specs import Aggregate, Emit, WindowAggregate
from dataflow.streams import Stream
from dataflow.windows import EventTime, Tumbling

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["KeyedStream", "WindowedStream"]


class KeyedStream(Stream):
    """A stream partitioned by key: what follows sees all rows of a key in one subtask."""

    @property
    def keys(self) -> tuple[str, ...]:
        return self._edge.keys

    def window(self, window: Tumbling, *, lateness: Duration = "0s") -> WindowedStream:
        """The rows of each key, cut into windows of event time.

        Args:
            window: ``op.tumbling("10s")``.
            lateness: how long behind its end (by the watermark) a window still takes rows; each batch that brings some
                gives the results of the windows it touched once more.

        Raises: GraphError where the stream has no event time: see `with_watermark`.
        """
        if not isinstance(window, Tumbling):
            raise GraphError(f"window: expected op.tumbling(...), got {window!r} ({type(window).__name__})")
        if self.time is None:
            raise GraphError(
                "window: the stream has no event time: say which column holds it, close to the source and before "
                'key_by, as in .with_watermark("ts", delay="2s"), and keep that column'
            )
        return WindowedStream(self, window, microseconds(lateness, "window(lateness=)"))

    def agg(
        self,
        *aggregations: Aggregation | Latest,
        emit: str | Emit | None = None,
        every: Duration | None = None,
        name: str | None = None,
        parallelism: int | None = None,
        **named: Aggregation,
    ) -> Stream:
        """Aggregates per key: the key columns, then one column per aggregate.

        Args:
            aggregations: ``op.count()``, ``col("price").max()``, ...; keyword arguments name them. ``op.latest(...)``
                makes a column for each of its columns.
            emit: ``"updates"``: one row per key touched by a batch (a changelog: the last row of a key counts);
                ``"final"``: one row per key at the end. Default: final for bounded input, else updates.
            every: with updates, the least time between two emissions.
        """
        import pyarrow as pa

        found = self._aggregations(aggregations, named)
        distinct([*self.keys, *(a.name for a in found)], "agg")
        chosen = emission(emit, every, bounded=self._pipeline.graph.bounded)
        fields = [*self._key_fields(), *self._fields_of(found)]
        spacing = None if every is None else microseconds(every, "agg(every=)")
        if spacing == 0:
            raise ConfigurationError("agg(every=) is above zero; leave it out to emit after each batch")
        spec = Aggregate(self.keys, tuple(found), chosen, spacing)
        return self._then(spec, pa.schema(fields), "agg", name, parallelism)

    def _aggregations(
        self, given: Iterable[Aggregation | Latest], named: Mapping[str, Aggregation]
    ) -> list[Aggregation]:
        found: list[Aggregation] = []
        for a in given:
            found += self._columns_of_last_row(a) if isinstance(a, Latest) else [a]
        found += [a.alias(alias) for alias, a in named.items()]
        for a in found:
            if not isinstance(a, Aggregation):
                raise GraphError(f"agg: expected aggregates such as col('x').sum(), got {a!r} ({type(a).__name__})")
        if not found:
            raise GraphError("agg: give at least one aggregate")
        return [self._in_order_of_time(a) for a in found]

    def _columns_of_last_row(self, latest: Latest) -> list[Aggregation]:
        """Return one ``last`` for each column; all have the same ``by``, so they choose the same row."""
        by = None if latest.by is None else expression(latest.by, "latest(by=)")
        others = [name for name in self.schema.names if name not in self.keys]
        columns = [expression(column, "latest") for column in latest.columns or others]
        if not columns:
            raise GraphError(f"latest: the stream has no columns but its keys, {', '.join(self.keys)}")
        found = [Aggregation(AggregateKind.LAST, column, name=column.name, by=by) for column in columns]
        if not latest.columns and (refused := [a.name for a in found if not a.takes(self.schema)]):
            raise SchemaMismatch(
                f"latest: {', '.join(map(repr, refused))} of {columns_of(self.schema)} cannot be kept, because last "
                "takes all but nested types; name the columns to keep, as in op.latest('a', 'b')"
            )
        return found

    def _in_order_of_time(self, aggregation: Aggregation) -> Aggregation:
        """``first`` and ``last`` go by event time, where there is one and they do not say otherwise."""
        ordered = aggregation.kind in (AggregateKind.FIRST, AggregateKind.LAST) and aggregation.by is None
        return replace(aggregation, by=col(self.time)) if ordered and self.time is not None else aggregation

    def _key_fields(self) -> list[pa.Field]:
        from dataflow.state.dictionaries import key_schema

        return list(key_schema(self.schema, self.keys))

    def _fields_of(self, aggregations: Iterable[Aggregation]) -> list[pa.Field]:
        import pyarrow as pa

        return [pa.field(a.name, a.dtype(self.schema, where=f"agg {a.name!r}")) for a in aggregations]


class WindowedStream:
    """A keyed stream cut into windows of event time; ``agg`` says what is wanted of each."""

    def __init__(self, stream: KeyedStream, window: Tumbling, lateness: int) -> None:
        self._stream = stream
        self._window = window
        self._lateness = lateness

    def __repr__(self) -> str:
        return f"WindowedStream({self._stream.name!r} by {', '.join(self._stream.keys)}, {self._window})"

    def agg(
        self,
        *aggregations: Aggregation | Latest,
        name: str | None = None,
        parallelism: int | None = None,
        **named: Aggregation,
    ) -> Stream:
        """Aggregates per key and window: the key columns, ``window_start``, ``window_end``, a column per aggregate.

        A window's rows come out once the watermark has reached its end, all of them at the end of the input, and with
        allowed lateness again for each batch of late rows it still takes (the last row of a key and window counts).
        A row whose window ended, allowed lateness included, at or before the watermark is *late*: it is counted in the
        summary and goes to ``.side("late")`` as it came. The event time of a
        result is the last moment of its window, right before ``window_end``.

        Args:
            aggregations: ``op.count()``, ``col("price").max()``, ...; keyword arguments name them. ``op.latest(...)``
                makes a column for each of its columns.
        """
        import pyarrow as pa

        stream, time = self._stream, self._stream._time
        assert time is not None, "a windowed stream has event time"
        found = stream._aggregations(aggregations, named)
        distinct([*stream.keys, "window_start", "window_end", *(a.name for a in found)], "agg")
        kind = edge_type(stream.schema.field(time.column).type, self._window)
        edges = [pa.field("window_start", kind), pa.field("window_end", kind)]
        spec = WindowAggregate(stream.keys, time, self._window, self._lateness, tuple(found))
        schema = pa.schema([*stream._key_fields(), *edges, *stream._fields_of(found)])
        time = EventTime("window_end", exclusive=True)
        return stream._then(spec, schema, "window", name, parallelism, sides={LATE: stream.schema}, time=time)
