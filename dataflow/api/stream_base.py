"""The base class of streams: the schema and meaning of their rows, and how a method adds an operator to the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from dataflow.api.pictures import Drawn
from dataflow.contracts.spec import Spec
from dataflow.contracts.updates import CHANGE, Changes, Meaning, Signed, meaning_error, word_of
from dataflow.contracts.windows import EventTime
from dataflow.errors import GraphError
from dataflow.planning.graph import Edge, Node, Partitioning

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.pipeline import Pipeline
    from dataflow.api.streams import Stream
    from dataflow.views.picture import Picture

__all__ = ["StreamBase", "without_change"]

_LONGEST_REPR: Final = 60
"""Characters of a wrong argument that a message shows."""


class StreamBase:
    """The output of one operator (its main output, or a side output), and the edge on which other operators read it."""

    def __init__(self, pipeline: Pipeline, node: Node, edge: Edge | None = None) -> None:
        self._pipeline = pipeline
        self._node = node
        self._edge = edge or Edge(node.id)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, a ``pyarrow.Schema``, known before anything runs."""
        return self._node.output(self._edge.tag)

    @property
    def name(self) -> str:
        """The name of the operator that emits the rows, as in summaries and checkpoints."""
        return self._node.name

    @property
    def changes(self) -> Changes:
        """The meaning of the rows: ``"rows"``, each row counts; ``"updates"``, the last row of each update key counts;
        ``"signed"``, a row is added or taken back, as its column ``change`` says (+1 or -1).

        Aggregates with ``emit="updates"`` emit updates. Their update keys are the columns of `key_by`, for windows also
        ``window_start`` and ``window_end``. Updates may go to any sink, through `select` and `with_columns` that keep
        every update key unchanged (it may be renamed), through `filter` on update keys, and to `key_by` on update keys.
        Every other method would count rows that were replaced, so it raises GraphError; see `as_rows`.

        Aggregates with ``emit="changes"`` emit signed changes. These may go to any sink, through `filter`, `select`,
        `with_columns`, `split`, `map`, `flat_map`, `union`, `rebalance`, `key_by`, `lookup` and `join`, and to ``agg``
        and ``top``. All of these keep ``change`` without being told; expressions and functions do not see it. What
        counts is the net: the rows that are left when added rows and equal rows that are taken back cancel out. Every
        other method raises GraphError.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a", "b"]})))
        >>> counts = rows.key_by("k").agg(op.count().alias("n"), emit="updates", name="counts")
        >>> rows.changes, counts.changes, counts.select("n", key=flow.col("k")).changes
        ('rows', 'updates', 'updates')
        >>> rows.key_by("k").agg(op.count().alias("n"), emit="changes").filter(flow.col("n") > 1).changes
        'signed'
        """
        return word_of(self._meaning)

    @property
    def _meaning(self) -> Meaning | None:
        """How the rows count; None: each row counts."""
        return self._pipeline.graph.meaning_of(self._edge)

    @property
    def _is_signed(self) -> bool:
        return isinstance(self._meaning, Signed)

    @property
    def _columns(self) -> pa.Schema:
        """The columns that users' functions see: all but ``change`` of signed changes."""
        return without_change(self.schema) if self._is_signed else self.schema

    def as_rows(self) -> Self:
        """Return the same stream, in which each row counts even if the rows are updates or signed changes.

        Adds no operator. The number of updates or changes per key depends on how the input is cut into batches, and so
        does everything computed from them. ``change`` of signed changes becomes a plain column.

        Returns: a stream of the same class, whose `changes` is ``"rows"``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"k": ["a", "a", "b"]}), batch_rows=1))
        >>> counts = rows.key_by("k").agg(op.count().alias("n"), emit="updates", name="counts")
        >>> counts.as_rows().map(lambda row: row).collect()["n"].to_pylist()
        [1, 2, 1]
        """
        return type(self)(self._pipeline, self._node, replace(self._edge, as_rows=True))

    def _refuse(self, method: str, **problems: str) -> None:
        """Raise GraphError if the rows are ``updates`` or ``signed`` and ``method`` has a problem with these."""
        meaning = self._meaning
        if meaning is not None and (problem := problems.get(word_of(meaning))) is not None:
            raise meaning_error(method, meaning, problem)

    @property
    def time(self) -> str | None:
        """The column that holds event time, from `with_watermark`; None if there is none (any more)."""
        return None if self._time is None else self._time.column

    @property
    def _time(self) -> EventTime | None:
        """The event time of the rows, or None if they have none."""
        if self._edge.tag is None:
            return self._node.time
        port = self._node.spec.late_outputs.get(self._edge.tag)
        return None if port is None else self._pipeline.graph.nodes[self._node.inputs[port].source].time

    def _time_in(self, schema: pa.Schema) -> EventTime | None:
        """Return the event time if ``schema`` has its column with the same type, else None."""
        time, name = self._time, self.time
        unchanged = (
            name is not None and name in schema.names and schema.field(name).type == self.schema.field(name).type
        )
        return time if unchanged else None

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.schema)
        return f"{type(self).__name__}({self.name!r}, [{columns}])"

    def draw(self, parallelism: int = 1, *, physical: bool = False) -> Picture:
        """Return a picture of all operators that this stream depends on, to print or to save; notebooks show it.

        Args: as for `Pipeline.draw`.

        Raises: the errors of `Pipeline.draw`.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> rows = flow.Pipeline("orders").source(op.from_arrow(pa.table({"k": [1], "x": [2]})), name="rows")
        >>> print(rows.filter(flow.col("x") > 1, name="large").key_by("k").draw())
        orders: 2 operators
        <BLANKLINE>
          ○ rows         source, read
          □ large        filter
          │              ↓ by k
          ▽ this stream
        """
        graph = self._pipeline.graph.upstream(self._node)
        drawn = Drawn(self._pipeline.name, graph, replace(self._edge, source=len(graph) - 1))
        return drawn.physical(parallelism) if physical else drawn.logical(parallelism)

    def _repr_html_(self) -> str:
        from dataflow.views.documents import notebook_html

        return notebook_html(self.draw().svg(), repr(self))

    def _then(
        self,
        spec: Spec,
        schema: pa.Schema,
        label: str,
        name: str | None,
        parallelism: int | None,
        inputs: tuple[Edge, ...] | None = None,
        sides: Mapping[str, pa.Schema] | None = None,
        time: EventTime | None = None,
        method: str | None = None,
    ) -> Stream:
        """Add an operator to the pipeline and return its main output.

        Args:
            label: the prefix of the automatic name.
            inputs: the edges it reads from; None: this stream.
            time: the event time of its main output; None: it has none.
            method: the method that was called, for messages; None: the label.
        """
        from dataflow.api.streams import Stream

        node = self._pipeline.graph.add(
            spec,
            inputs or (self._edge,),
            schema,
            label=label,
            name=name,
            parallelism=parallelism,
            sides=sides,
            time=time,
            method=method,
        )
        return Stream(self._pipeline, node)

    def _spread(self, partitioning: Partitioning, keys: tuple[str, ...] = ()) -> Edge:
        """Return this stream's edge with another partitioning."""
        return replace(self._edge, partitioning=partitioning, keys=keys)

    def _same_pipeline(self, others: Iterable[StreamBase], where: str) -> None:
        """Raise GraphError unless all of ``others`` are streams of this pipeline."""
        for other in others:
            if not isinstance(other, StreamBase):
                way_out = "; lookup(...) joins with a table or a source" if where.startswith("join") else ""
                kind, text = type(other).__name__, repr(other)
                found = f"{text} ({kind})" if len(text) <= _LONGEST_REPR and "\n" not in text else kind
                raise GraphError(f"{where}: expected a stream, got {found}{way_out}")
            if other._pipeline is not self._pipeline:
                found, expected = other._pipeline.name, self._pipeline.name
                names = "" if found == expected else f" ({found!r}, not {expected!r})"
                raise GraphError(
                    f"{where}: {other.name!r} belongs to another pipeline{names}; begin both streams in one pipeline"
                )


def without_change(schema: pa.Schema) -> pa.Schema:
    """Return ``schema`` without the column ``change``."""
    return schema.remove(schema.get_field_index(CHANGE))
