"""MapBatches: a user's function from batches to batches, its output checked against the declared schema.

With ``on_error`` skip or side, a batch that fails is halved until the single rows that fail are found. This calls
``function`` again for some rows, with fewer at a time: it must be pure, and treat each row by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.row_errors import ERRORS, OnError, RowErrors
from dataflow.contracts.windows import EventTime
from operators.arrow_batches import ArrowBatches
from operators.transforms.moved_times import MovedTimes

__all__ = ["MapBatchesOperator"]

BatchFunction = Callable[[Any], Any]
"""``RecordBatch -> Batches | Iterable[Batches | None] | None``, where ``Batches`` is a RecordBatch, a Table, or
any other object with ``__arrow_c_stream__`` or ``__arrow_c_array__``; pyarrow has no type hints to express it."""


class MapBatchesOperator(Operator):
    """Calls ``function`` with each batch that has rows and emits its output; None is no output.

    The function must depend on its batch alone: after a failure it is called again with the same rows. Iterables are
    consumed lazily, a batch whenever there is room downstream. ``ArrowBatches`` converts the output to the declared
    schema.

    The function does not see the column ``hidden``, which comes last.

    With ``on_error`` skip or side, a call's output is held until it is complete, and any error in it counts as a
    failure of the batch.

    Raises: SchemaMismatch for an output that lacks a column of ``context.output_schema``, has another one, or has one
    of another type; TypeError for an output that is not a batch; ValueError for rows moved to before the watermark.
    """

    stateless = True

    def __init__(
        self,
        context: OperatorContext,
        function: BatchFunction,
        on_error: OnError = OnError.FAIL,
        time: EventTime | None = None,
        hidden: str | None = None,
    ) -> None:
        self._where = f"map_batches {context.name!r}"
        self._moved = MovedTimes(time, self._where, context)
        self._output, self._hidden = context.output_schema, hidden
        fields = [field for field in context.output_schema if field.name != hidden]
        self._made = ArrowBatches(pa.schema(fields), self._where)
        self._function = function
        self._errors = RowErrors(on_error, context.tally)
        self._emitted = context.emitted

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if batch.num_rows == 0:
            return None
        if self._errors.policy is not OnError.FAIL:
            return self._emit_what_works(batch, out)
        output = self._function(self._seen(batch))
        if isinstance(output, pa.RecordBatch) and self._hidden is None:
            made = self._made.conformed(output)
            self._moved.check(batch, made)
            if made.num_rows:
                out.emit(made)
            return None
        return None if output is None else self._emit_each(batch, output, out)

    def advance(self, watermark: int, out: Out) -> None:
        self._moved.advance(watermark)

    def _emit_each(self, given: pa.RecordBatch, output: Any, out: Out) -> Iterator[None]:
        for batch, placed in self._placed(given, self._batches(output)):
            self._moved.check(given, batch)
            if placed.num_rows:
                out.emit(placed)
                yield

    def _emit_what_works(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        """Emit in the order of the rows; halve a part that fails, and reject a single row that fails."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                output = self._function(self._seen(part))
                batches = [] if output is None else list(self._batches(output))
                for each in batches:
                    self._moved.check(part, each)
            except Exception as error:
                half = part.num_rows // 2
                if half:
                    parts += [part.slice(half), part.slice(0, half)]
                else:
                    self._errors.reject(self._where, render_rows(part)[0], error)
                continue
            for _, each in self._placed(part, iter(batches)):
                if each.num_rows:
                    out.emit(each)
                    yield
        if (aside := self._errors.take()) is not None:
            out.emit(aside, ERRORS)

    def _batches(self, output: Any) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the function's output with the declared columns."""
        for part in self._made.parts(output):
            self._emitted.add(part)
            yield self._made.conformed(part)

    def _seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that the function sees."""
        return batch if self._hidden is None else batch.select(batch.schema.names[:-1])

    def _placed(
        self, given: pa.RecordBatch, made: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Yield each batch of a call's output, without and with the hidden column.

        It is that of the call's rows, one by one; if the output has more or fewer rows, that of the first of them.
        """
        if self._hidden is None:
            yield from ((batch, batch) for batch in made)
            return
        hidden, waiting, rows = given.column(self._hidden), list[pa.RecordBatch](), 0
        for batch in made:
            waiting.append(batch)
            rows += batch.num_rows
            if rows > given.num_rows:
                break
        one_by_one, start = rows == given.num_rows, 0
        for batch in chain(waiting, made):
            stop = start + batch.num_rows
            numbers = np.arange(start, stop) if one_by_one else np.zeros(batch.num_rows, np.int64)
            columns = [*batch.columns, hidden.take(to_array(numbers))]
            yield batch, pa.RecordBatch.from_arrays(columns, schema=self._output)
            start = stop
