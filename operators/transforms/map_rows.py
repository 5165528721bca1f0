"""A user's function per row: dicts in, dicts out. Slow, for logic that expressions and batch functions cannot express.

A row's output is emitted completely or not at all, so a rejected row has no output.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.row_errors import ERRORS, OnError, RowErrors
from dataflow.contracts.windows import EventTime
from operators.rows import RowBatches
from operators.transforms.moved_times import MovedTimes

__all__ = ["FlatMapRowsOperator", "MapRowsOperator"]

Row = Mapping[str, Any]
_ROWS: Final = 16_384
"""The rows of an emitted batch; the output of its last row may exceed it."""


class _RowFunction(Operator):
    """Calls ``function`` with each row as a dict of Python values, in order.

    A row is rejected, as ``on_error`` says, if its call raises, if the result does not fit ``context.output_schema``,
    or if the event time is moved to before the watermark. The function does not see the columns ``hidden``, which come
    last in input and output: the rows of its output have those of the row that they come from.
    """

    stateless = True
    word: ClassVar[str]

    def __init__(
        self,
        context: OperatorContext,
        function: Callable[[dict[str, Any]], Any],
        on_error: OnError,
        time: EventTime | None = None,
        hidden: Sequence[str] = (),
    ) -> None:
        self._where = f"{self.word} {context.name!r}"
        self._moved = MovedTimes(time, self._where, context)
        self._function = function
        self._output, self._hidden = context.output_schema, len(hidden)
        self._rows = RowBatches(pa.schema(list(self._output)[: len(self._output) - self._hidden]), self._where)
        self._errors = RowErrors(on_error, context.tally)

    @abstractmethod
    def _output_rows(self, row: dict[str, Any]) -> Sequence[Row]:
        """Call the function with ``row`` and return the rows of its output, checked for the right columns."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        made: list[Row] = []
        origins: list[int] = []  # for each of ``made``, its row of ``batch``
        for index, row in enumerate(self._seen(batch).to_pylist()):
            try:
                rows = self._output_rows(row)
            except Exception as error:
                self._reject(batch, index, error)
                continue
            made += rows
            origins += [index] * len(rows)
            if len(made) >= _ROWS:
                self._emit(batch, made, origins, out)
                made, origins = [], []
                yield
        self._emit(batch, made, origins, out)
        if (aside := self._errors.take()) is not None:
            out.emit(aside, ERRORS)

    def advance(self, watermark: int, out: Out) -> None:
        self._moved.advance(watermark)

    def _emit(self, batch: pa.RecordBatch, made: list[Row], origins: list[int], out: Out) -> None:
        if made and (fitting := self._fitting(batch, made, origins)).num_rows:
            out.emit(fitting)

    def _fitting(self, batch: pa.RecordBatch, made: list[Row], origins: list[int]) -> pa.RecordBatch:
        """Return ``made`` as a batch, and reject rows with output that does not fit, together with all their output."""
        converted, misfits = self._rows.batch(made)
        bad = {origins[i]: error for i, error in reversed(misfits.items())}
        if not bad:
            moved = self._moved.rows(batch, converted)
            bad = {origins[row]: self._moved.error(converted, moved[moved == row]) for row in reversed(moved)}
        if not bad:
            return self._with_hidden(converted, batch, origins)
        for index in sorted(bad):
            self._reject(batch, index, bad[index])
        left = [at for at, origin in enumerate(origins) if origin not in bad]
        return self._fitting(batch, [made[at] for at in left], [origins[at] for at in left])

    def _seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that the function sees."""
        return batch.select(batch.schema.names[: batch.num_columns - self._hidden]) if self._hidden else batch

    def _with_hidden(self, made: pa.RecordBatch, batch: pa.RecordBatch, origins: list[int]) -> pa.RecordBatch:
        """Return ``made`` with the hidden columns of the rows ``origins`` of ``batch``."""
        if not self._hidden:
            return made
        rows = to_array(origins, pa.int64())
        hidden = [column.take(rows) for column in batch.columns[-self._hidden :]]
        return pa.RecordBatch.from_arrays([*made.columns, *hidden], schema=self._output)

    def _reject(self, batch: pa.RecordBatch, index: int, error: Exception) -> None:
        """Reject a row, shown from the batch because the function may have changed its dict."""
        self._errors.reject(self._where, render_rows(batch.slice(index, 1))[0], error)


class MapRowsOperator(_RowFunction):
    """One row for each: ``function`` returns a dict with the columns of the declared schema."""

    word = "map"

    def _output_rows(self, row: dict[str, Any]) -> Sequence[Row]:
        output = self._function(row)
        if output is None:
            raise TypeError(f"{self._where}: the function returned None; to leave rows out use filter or flat_map")
        self._rows.check(output)
        return (output,)


class FlatMapRowsOperator(_RowFunction):
    """Any number of rows for each: ``function`` returns an iterable of dicts, or None for no rows."""

    word = "flat_map"

    def _output_rows(self, row: dict[str, Any]) -> Sequence[Row]:
        output = self._function(row)
        if output is None:
            return ()
        if not isinstance(output, Iterable) or isinstance(output, Mapping | str | bytes):
            raise TypeError(
                f"{self._where}: the function must return an iterable of dicts, or None, got {type(output).__name__}; "
                "put a single row into a list"
            )
        rows = list(output)
        for each in rows:
            self._rows.check(each)
        return rows
