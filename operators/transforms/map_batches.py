"""MapBatches: a user's function from batches to batches, its output checked against the declared schema.

With ``on_error`` skip or side, a batch that fails is halved until the single rows that fail are found. This calls
``function`` again for some rows, with fewer at a time: it must be pure, and treat each row by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
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
    ) -> None:
        self._where = f"map_batches {context.name!r}"
        self._moved = MovedTimes(time, self._where, context)
        self._made = ArrowBatches(context.output_schema, self._where)
        self._function = function
        self._errors = RowErrors(on_error, context.tally)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if batch.num_rows == 0:
            return None
        if self._errors.policy is not OnError.FAIL:
            return self._emit_what_works(batch, out)
        output = self._function(batch)
        if isinstance(output, pa.RecordBatch):
            self._emit(batch, output, out)
            return None
        return None if output is None else self._emit_each(batch, output, out)

    def advance(self, watermark: int, out: Out) -> None:
        self._moved.advance(watermark)

    def snapshot(self) -> Snapshot:
        return self._moved.snapshot()

    def _emit_each(self, given: pa.RecordBatch, output: Any, out: Out) -> Iterator[None]:
        for batch in self._made.parts(output):
            if self._emit(given, batch, out):
                yield

    def _emit_what_works(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        """Emit in the order of the rows; halve a part that fails, and reject a single row that fails."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                output = self._function(part)
                batches = [] if output is None else [self._made.conformed(each) for each in self._made.parts(output)]
                for each in batches:
                    self._moved.check(part, each)
            except Exception as error:
                half = part.num_rows // 2
                if half:
                    parts += [part.slice(half), part.slice(0, half)]
                else:
                    self._errors.reject(self._where, render_rows(part)[0], error)
                continue
            for each in batches:
                if each.num_rows:
                    out.emit(each)
                    yield
        if (aside := self._errors.take()) is not None:
            out.emit(aside, ERRORS)

    def _emit(self, given: pa.RecordBatch, batch: pa.RecordBatch, out: Out) -> bool:
        batch = self._made.conformed(batch)
        self._moved.check(given, batch)
        if batch.num_rows:
            out.emit(batch)
        return batch.num_rows > 0
