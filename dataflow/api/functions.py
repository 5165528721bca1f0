"""The methods of a stream that take a function: per batch, per row, and from a row to any number of rows.

>>> import pyarrow as pa, dataflow as flow, operators as op
>>> with flow.Pipeline("parsed") as p:
...     lines = p.source(op.from_arrow(pa.table({"line": ["a=1", "b=2", "c"]})), name="lines")
...     def parse(row):
...         key, value = row["line"].split("=")
...         return {"key": key, "value": value}
...     schema = pa.schema({"key": pa.string(), "value": pa.string()})
...     parsed = lines.map(parse, schema=schema, on_error="side", name="parse")
...     parsed.sink(op.collect(), name="out")
...     parsed.side("errors").sink(op.collect(), name="errors")
>>> result = p.run()
>>> result.table("out")["value"].to_pylist(), result.table("errors")["row"].to_pylist()
(['1', '2'], ["{'line': 'c'}"])
>>> result.operator("parse").skipped
1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dataflow.api.stream_base import StreamBase
from dataflow.contracts.row_errors import ERRORS, OnError, errors_schema
from dataflow.contracts.updates import CHANGE
from dataflow.errors import GraphError
from dataflow.planning.checks import schema_or_default
from dataflow.planning.specs import FlatMapRows, MapBatches, MapRows

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.api.streams import Stream

__all__ = ["FunctionMethods"]

RowFunction = Callable[[dict[str, Any]], Mapping[str, Any]]
RowsFunction = Callable[[dict[str, Any]], Iterable[Mapping[str, Any]] | None]


class FunctionMethods(StreamBase):
    """The methods of `Stream` that take a function, which must depend on its argument only.

    After a failure the function is called again with the same rows.

    ``on_error`` is the policy for a row that raises, or whose result does not fit the schema: ``"fail"`` (the job
    fails, and the error names the row), ``"skip"`` (the row is left out), ``"side"`` (it is also sent to side output
    ``errors``, with its place, its text and the error). Rows left out are counted and sampled in every summary of a
    run. All methods raise GraphError for a stream of updates, see
    ``Stream.changes``. `map` and `flat_map` take signed changes: the function does not see ``change``, must return the
    same for the same row, and its output has the ``change`` of its row.

    The stream keeps its event time if the function's schema keeps the column's name and type. Then it is an error of
    the row if the function moves its time to before the watermark, because no row before a watermark is expected.
    Change times before ``with_watermark``, or return the changed time as another column.
    """

    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], Any],
        *,
        schema: pa.Schema | None = None,
        on_error: str | OnError = OnError.FAIL,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the results of ``function``, called with each batch.

        Args:
            function: called with a ``pa.RecordBatch`` of `schema`; must depend on its argument only. It returns a
                batch, a table, a frame of polars or pandas or any other Arrow object, an iterable of them, or None for
                no rows. It must not write into their memory afterwards: ``pa.array(numpy_array)`` shares the array, so
                copy a buffer that is filled again for each batch. ``run("simulated")`` finds such a function.
            schema: the columns it returns; None: those of the stream. Dictionaries are emitted with int32 indices.
            on_error: ``"fail"``, ``"skip"`` or ``"side"``. With the latter two a batch that fails is halved until
                single rows are found that fail alone, so the function must be pure and treat each row by itself (it
                may leave rows out, or return more of them). One bad row among n costs about 2 log2(n) further calls.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Raises:
            GraphError: ``function`` cannot be called, ``schema`` is no schema, or the rows are updates.
            ConfigurationError: ``on_error`` is unknown.

        >>> import pyarrow as pa, pyarrow.compute as pc, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})))
        >>> stream.map_batches(lambda batch: pa.record_batch({"x": pc.negate(batch["x"])})).collect()["x"].to_pylist()
        [-1, -2]
        """
        return self._function(MapBatches, "map_batches", function, schema, on_error, name, parallelism)

    def map(
        self,
        function: RowFunction,
        *,
        schema: pa.Schema | None = None,
        on_error: str | OnError = OnError.FAIL,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the results of ``function``, called with each row as a dict of Python values.

        Much slower than an expression or ``map_batches``: a row of three columns takes about 3 us here, and 7 ns in a
        batch function that does the same to one of the columns with pyarrow: 400 times as long. Nanoseconds
        that are not zero become Python values only if pandas is installed; cast them to microseconds first.

        Args:
            function: called with one row; must depend on its argument only. It returns a dict with the columns of
                ``schema``. Changes to its argument have no effect.
            schema: the columns it returns; None: those of the stream. Values are converted if nothing is lost.
            on_error: ``"fail"``, ``"skip"`` or ``"side"``; a value that does not fit the schema is an error as well.
            name: the operator's name in summaries and checkpoints; None: an automatic one.
            parallelism: how many subtasks the operator has; None: as many as the run says.

        Raises:
            GraphError: ``function`` cannot be called, ``schema`` is no schema, or the rows are updates.
            ConfigurationError: ``on_error`` is unknown.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})))
        >>> stream.map(lambda row: {"x": row["x"] * 10}).collect()["x"].to_pylist()
        [10, 20]
        """
        return self._function(MapRows, "map", function, schema, on_error, name, parallelism)

    def flat_map(
        self,
        function: RowsFunction,
        *,
        schema: pa.Schema | None = None,
        on_error: str | OnError = OnError.FAIL,
        name: str | None = None,
        parallelism: int | None = None,
    ) -> Stream:
        """Return the rows that ``function`` returns for each row: a list, a generator, or None for no rows.

        The results of one row are held in memory together. They are all passed on or, after an error, none of them.

        Args and Raises: as for `map`, but ``function`` returns any number of dicts.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"text": ["a b", "", "c"]})))
        >>> words = stream.flat_map(lambda row: [{"word": word} for word in row["text"].split()],
        ...                         schema=pa.schema({"word": pa.string()}))
        >>> words.collect()["word"].to_pylist()
        ['a', 'b', 'c']
        """
        return self._function(FlatMapRows, "flat_map", function, schema, on_error, name, parallelism)

    def _function(
        self,
        spec: type[MapBatches] | type[MapRows] | type[FlatMapRows],
        method: str,
        function: Callable[..., Any],
        schema: pa.Schema | None,
        on_error: str | OnError,
        name: str | None,
        parallelism: int | None,
    ) -> Stream:
        """Add an operator of kind ``spec`` that calls ``function``."""
        if not callable(function):
            raise GraphError(f"{method}: expected a function, got {type(function).__name__}")
        from dataflow.state.dictionaries import wide_schema

        policy = OnError.of(on_error, method)
        output = wide_schema(schema_or_default(schema, self._columns, method))
        hides = self._is_signed and spec.passes_changes
        if hides:
            if CHANGE in output.names:
                raise GraphError(f"{method}(schema=): {CHANGE!r} is kept without being declared; leave it out")
            output = output.append(self.schema.field(CHANGE))
        sides = {ERRORS: errors_schema()} if policy is OnError.SIDE else {}
        time = self._time_in(output)
        made = spec(function, policy, time)
        return self._then(
            made.carrying(CHANGE) if hides else made, output, method, name, parallelism, sides=sides, time=time
        )
