"""The method of a keyed stream that takes a function with state for each key and timers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from dataflow.api.stream_base import StreamBase
from dataflow.contracts.process import ProcessFunction, declared_states
from dataflow.contracts.process_state import SharedMap
from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.errors import GraphError
from dataflow.planning.checks import check_options, check_state_keys, schema_or_default, side_schemas
from dataflow.planning.graph import Edge, Partitioning
from dataflow.planning.process_specs import OneOrder, ProcessBatches, ProcessKeys

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.streams import Stream

__all__ = ["ProcessMethods"]


class ProcessMethods(StreamBase):
    """The methods of `Stream` that take a process function."""

    def process(
        self,
        function: Callable[[], ProcessFunction],
        *,
        schema: pa.Schema | None = None,
        sides: Mapping[str, pa.Schema | None] | None = None,
        broadcast: Stream | None = None,
        on_error: str | OnError = OnError.FAIL,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the rows that a function with state for each key and timers emits; only after `key_by`.

        Args:
            function: a subclass of `KeyedProcess`, which is called with the rows of one key at a time, or of
                `BatchProcess`, which is called with columns; or a function without arguments that returns an instance,
                a new one for each subtask.
            schema: the columns it emits; None: those of the stream. The stream keeps its event time if it keeps the
                column's name and type. Then rows are late downstream if they are before a watermark that was passed on.
            sides: the schema of each side output by its tag, for `side`; None means the schema of the main output.
            broadcast: a stream whose rows all subtasks get, in one order, in ``process_broadcast``. Its rows and those
                of this stream have no order between them. It does not hold back the watermark, and it may be empty.
            on_error: ``"fail"``: an error of the function fails the job, and names the key. ``"skip"``: all rows of the
                call are left out, and what the call wrote, set and emitted is undone. ``"side"``: they are also sent to
                side output ``errors``. For a timer, that is one row that names the key and the due time. A
                call of a `BatchProcess` has rows of many keys, so many are left out together.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Raises:
            GraphError: the stream is not keyed, or holds updates or signed changes (see `changes`); ``function`` is no
                such class or function, or declares state wrongly.
            ConfigurationError: ``on_error`` is unknown.
            SchemaMismatch: a key has a type that state cannot have.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Count(flow.KeyedProcess):
        ...     seen = flow.value_state(pa.int64())
        ...     def process(self, key, rows, ctx):
        ...         self.seen.set(self.seen.get(0) + rows.num_rows)
        ...         ctx.emit({"user": key, "seen": self.seen.get()})
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"user": ["ann", "bob", "ann"]})))
        >>> counts = rows.key_by("user").process(
        ...     Count, schema=pa.schema({"user": pa.string(), "seen": pa.int64()}), name="count"
        ... )
        >>> counts.collect().to_pylist()
        [{'user': 'ann', 'seen': 2}, {'user': 'bob', 'seen': 1}]
        """
        keys = self._edge.keys
        if not keys:
            raise GraphError("process: the stream has no keys; name them first, as in key_by('user').process(...)")
        check_options("process", self.schema, name=name, parallelism=parallelism)
        kind = _class_of(function)
        policy = OnError.of(on_error, "process")
        check_state_keys(keys, self.schema, "process")
        output = schema_or_default(schema, self.schema, "process")
        tagged = side_schemas(sides, output, "process")
        if policy is OnError.SIDE:
            if ERRORS in tagged:
                raise GraphError(f"process(sides=): {ERRORS!r} is the side output of on_error='side'; rename yours")
            tagged[ERRORS] = errors_schema()
        states = declared_states(kind)
        if broadcast is not None:
            self._check_broadcast(broadcast, kind)
        elif shared := [name for name, state in states.items() if state.word == SharedMap.word]:
            raise GraphError(
                f"process: {kind.__name__} declares shared_map {shared[0]!r}, which only rows of a broadcast stream "
                "can change; give process(..., broadcast=stream)"
            )
        spec = ProcessKeys if kind.calls == "key" else ProcessBatches
        made = spec(function, _label(function), keys, self._time, tuple(states.items()), tuple(tagged.items()), policy)
        with self._pipeline.graph.all_or_none():
            edges = (self._edge,) if broadcast is None else (self._edge, self._in_one_order(broadcast, name))
            return self._then(
                made, output, "process", name, parallelism, edges, sides=tagged, time=self._time_in(output)
            )

    def _check_broadcast(self, broadcast: Stream, kind: type[ProcessFunction]) -> None:
        """Raise GraphError if ``broadcast`` is no stream of rows, or ``kind`` does not take its rows."""
        self._same_pipeline([broadcast], "process(broadcast=)")
        broadcast._refuse(
            "process(broadcast=)",
            updates="a function would be called with rows that a later row replaces",
            signed="a function would be called with rows that are taken back",
        )
        if kind.process_broadcast is ProcessFunction.process_broadcast:
            raise GraphError(f"process(broadcast=): {kind.__name__} must define process_broadcast(rows, ctx)")

    def _in_one_order(self, broadcast: Stream, name: str | None) -> Edge:
        """Add one subtask that all rows of a broadcast stream pass through; return the edge after it."""
        label = "broadcast" if name is None else f"{name}-broadcast"
        return broadcast._then(OneOrder(), broadcast.schema, label, None, 1)._spread(Partitioning.BROADCAST)


def _class_of(function: object) -> type[ProcessFunction]:
    """Return the class of a process function, or of what a factory returns. Raises: GraphError for anything else."""
    kind: Any = function
    if not isinstance(function, type):
        if not callable(function) or getattr(function, "calls", None) in ("key", "slots"):
            raise GraphError(
                f"process: expected a class, or a function that returns a new instance for each subtask, got "
                f"{type(function).__name__}"
            )
        try:
            kind = type(function())
        except Exception as error:
            error.add_note(
                "process(...) calls its function without arguments, once when the pipeline is built and once in each "
                "subtask; it must return a new instance"
            )
            raise
    if getattr(kind, "calls", None) not in ("key", "slots"):
        raise GraphError(
            f"process: expected a subclass of flow.KeyedProcess or flow.BatchProcess, or a function without arguments "
            f"that returns an instance of one, got {kind.__name__}"
        )
    base = next(base for base in kind.__mro__ if base.__name__ in ("KeyedProcess", "BatchProcess"))
    if kind.process is base.process:
        arguments = "key, rows, ctx" if kind.calls == "key" else "slots, rows, ctx"
        raise GraphError(f"process: {kind.__name__} must define process(self, {arguments})")
    checked: type[ProcessFunction] = kind
    return checked


def _label(function: Any) -> str:
    """Return the name of a function in descriptions."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__name__))
