"""MapBatches: a user's function from batches to batches, its output held to the declared schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from dataflow.errors import SchemaMismatch, did_you_mean
from dataflow.operator import Operator, OperatorContext, Out

__all__ = ["MapBatches"]

BatchFunction = Callable[[Any], Any]
"""``RecordBatch -> RecordBatch | Table | Iterable[RecordBatch | Table] | None``; pyarrow has no types to say it in."""


class MapBatches(Operator):
    """Calls ``function`` with each batch that has rows and emits what it answers; None answers nothing.

    The function must depend on its batch alone: after a failure it is called again with the same rows. Iterables are
    consumed lazily, a batch whenever there is room downstream. Columns may come in any order.

    Raises: SchemaMismatch for an output that lacks a column of ``context.output_schema``, has another one, or has one
    of another type; TypeError for an output that is no batch.
    """

    stateless = True

    def __init__(self, context: OperatorContext, function: BatchFunction) -> None:
        self._where = f"map_batches {context.name!r}"
        self._schema = context.output_schema
        self._function = function

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        if batch.num_rows == 0:
            return None
        answer = self._function(batch)
        if isinstance(answer, pa.RecordBatch):
            self._emit(answer, out)
            return None
        return None if answer is None else self._emit_each(answer, out)

    def _emit_each(self, answer: Any, out: Out) -> Iterator[None]:
        for batch in self._batches(answer):
            if self._emit(batch, out):
                yield

    def _batches(self, answer: Any) -> Iterator[pa.RecordBatch]:
        if isinstance(answer, pa.RecordBatch):
            yield answer
        elif isinstance(answer, pa.Table):
            self._check(answer.schema)
            yield from answer.to_batches()
        elif isinstance(answer, Iterable) and not isinstance(answer, str | bytes | dict):
            for part in answer:
                if not isinstance(part, pa.RecordBatch | pa.Table | None):
                    raise self._no_batch(part)
                if part is not None:
                    yield from self._batches(part)
        else:
            raise self._no_batch(answer)

    def _no_batch(self, answer: object) -> TypeError:
        return TypeError(
            f"{self._where}: the function must return a pyarrow RecordBatch or Table, an iterable of them, or None; "
            f"it returned a {type(answer).__module__}.{type(answer).__qualname__}"
        )

    def _emit(self, batch: pa.RecordBatch, out: Out) -> bool:
        schema = self._schema
        if not batch.schema.equals(schema, check_metadata=True):
            self._check(batch.schema)
            if schema.names:
                batch = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
        if batch.num_rows:
            out.emit(batch)
        return batch.num_rows > 0

    def _check(self, found: pa.Schema) -> None:
        expected = self._schema
        problems = [
            f"column {name!r} occurs twice" for name in dict.fromkeys(found.names) if found.names.count(name) > 1
        ]
        for field in expected:
            if field.name not in found.names:
                problems.append(f"column {field.name!r} ({field.type}) is missing")
            elif found.field(found.names.index(field.name)).type != field.type:
                other = found.field(found.names.index(field.name)).type
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
