"""MapBatches: a user's function from batches to batches, its output held to the declared schema.

Where rows that fail are to be left out, a batch that fails is halved until single rows are found that fail alone. That
asks ``function`` twice for some rows, and for fewer at a time: it must be pure, and look at each row by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from dataflow.errors import SchemaMismatch, did_you_mean
from dataflow.operator import Operator, OperatorContext, Out
from dataflow.row_errors import ERRORS, OnError, RowErrors
from dataflow.state.dictionaries import wide_type, widened_array

__all__ = ["MapBatches"]

BatchFunction = Callable[[Any], Any]
"""``RecordBatch -> Batches | Iterable[Batches | None] | None``, where ``Batches`` is a RecordBatch, a Table, or
whatever else has ``__arrow_c_stream__`` or ``__arrow_c_array__``; pyarrow has no types to say it in."""

_UNNAMED_INDEX: Final = re.compile(r"__index_level_\d+__")  # what pandas calls an index that nobody named


class MapBatches(Operator):
    """Calls ``function`` with each batch that has rows and emits what it answers; None answers nothing.

    The function must depend on its batch alone: after a failure it is called again with the same rows. Iterables are
    consumed lazily, a batch whenever there is room downstream. Columns may come in any order, dictionaries with indices
    of any width. Frames of other libraries are imported; they lay out text as they like (views, large, dictionaries
    of it), so theirs is brought to the declared type, and the index that pandas leaves behind a filter is dropped.

    With ``on_error`` skip or side everything a call answers is held until it is complete, and whatever is wrong with it
    counts as a failure of the batch.

    Raises: SchemaMismatch for an output that lacks a column of ``context.output_schema``, has another one, or has one
    of another type; TypeError for an output that is no batch.
    """

    stateless = True

    def __init__(self, context: OperatorContext, function: BatchFunction, on_error: OnError = OnError.FAIL) -> None:
        self._where = f"map_batches {context.name!r}"
        self._schema = context.output_schema
        self._function = function
        self._errors = RowErrors(on_error, context.tally)

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if batch.num_rows == 0:
            return None
        if self._errors.policy is not OnError.FAIL:
            return self._emit_what_works(batch, out)
        answer = self._function(batch)
        if isinstance(answer, pa.RecordBatch):
            self._emit(answer, out)
            return None
        return None if answer is None else self._emit_each(answer, out)

    def _emit_each(self, answer: Any, out: Out) -> Iterator[None]:
        for batch in self._batches(answer):
            if self._emit(batch, out):
                yield

    def _emit_what_works(self, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        """Emit in the order of the rows; a part that fails is halved, the row that fails alone is rejected."""
        parts = [batch]
        while parts:
            part = parts.pop()
            try:
                answer = self._function(part)
                made = [] if answer is None else [self._conformed(each) for each in self._batches(answer)]
            except Exception as error:
                half = part.num_rows // 2
                if half:
                    parts += [part.slice(half), part.slice(0, half)]
                else:
                    self._errors.reject(self._where, part.to_pylist()[0], error)
                continue
            for each in made:
                if each.num_rows:
                    out.emit(each)
                    yield
        if (aside := self._errors.take()) is not None:
            out.emit(aside, ERRORS)

    def _batches(self, answer: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(answer, pa.RecordBatch):
            yield answer
        elif isinstance(answer, pa.Table):
            self._check(answer.schema)
            yield from answer.to_batches()
        elif _speaks_arrow(answer) and not isinstance(answer, pa.RecordBatchReader):
            yield from self._batches(self._imported(answer))
        elif isinstance(answer, Iterable) and not isinstance(answer, str | bytes | dict):
            for part in answer:
                if part is None:
                    continue
                if not _speaks_arrow(part):
                    raise self._no_batch(part)
                yield from self._batches(part)
        else:
            raise self._no_batch(answer)

    def _imported(self, frame: Any) -> pa.Table:
        """A frame of another library as a table, its text in the layout that was declared."""
        try:
            streams = hasattr(frame, "__arrow_c_stream__")
            made = pa.RecordBatchReader.from_stream(frame) if streams else pa.record_batch(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:  # one column without a name: a series, an array
            raise self._no_batch(frame) from error
        table = made.read_all() if streams else pa.Table.from_batches([made])
        expected = {field.name: field.type for field in self._schema}
        for i in range(table.num_columns - 1, -1, -1):
            name, found = table.schema.names[i], table.schema.types[i]
            if name not in expected and _UNNAMED_INDEX.fullmatch(name):
                table = table.remove_column(i)
            elif found != expected.get(name, found) and _layout(found) == _layout(expected[name]):
                table = table.set_column(i, name, table.column(i).cast(expected[name]))
        return table

    def _no_batch(self, answer: object) -> TypeError:
        return TypeError(
            f"{self._where}: the function must return a RecordBatch, a Table, a polars or pandas frame, an iterable of "
            f"them, or None; "
            f"it returned a {type(answer).__module__}.{type(answer).__qualname__}"
        )

    def _emit(self, batch: pa.RecordBatch, out: Out) -> bool:
        batch = self._conformed(batch)
        if batch.num_rows:
            out.emit(batch)
        return batch.num_rows > 0

    def _conformed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = self._schema
        if not batch.schema.equals(schema, check_metadata=True):
            self._check(batch.schema)
            if schema.names:
                columns = [
                    widened_array(column) if column.type != field.type else column
                    for field, column in ((field, batch.column(field.name)) for field in schema)
                ]
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return batch

    def _check(self, found: pa.Schema) -> None:
        expected = self._schema
        problems = [
            f"column {name!r} occurs twice" for name in dict.fromkeys(found.names) if found.names.count(name) > 1
        ]
        for field in expected:
            if field.name not in found.names:
                problems.append(f"column {field.name!r} ({field.type}) is missing")
            elif field.type not in (other := found.field(found.names.index(field.name)).type, wide_type(other)):
                problems.append(f"column {field.name!r} should be {field.type} but is {other}")
        problems += [
            f"column {name!r} is not in the declared schema{did_you_mean(name, expected.names)}"
            for name in found.names
            if name not in expected.names
        ]
        if problems:
            raise SchemaMismatch(
                f"{self._where}: the function's output does not have the declared schema: {'; '.join(problems)}; "
                f"change the function or the schema declared for it"
            )


def _speaks_arrow(answer: object) -> bool:
    return hasattr(answer, "__arrow_c_stream__") or hasattr(answer, "__arrow_c_array__")


def _layout(type_: pa.DataType) -> pa.DataType:
    """One type for all that hold the same text, or bytes, in different layouts."""
    types = pa.types
    if types.is_dictionary(type_):
        return pa.dictionary(pa.int32(), _layout(type_.value_type))
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return pa.string()
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_):
        return pa.binary()
    return type_
