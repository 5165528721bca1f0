"""What process functions emit: rows and batches, checked at once, and sent as one batch for each output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from dataflow.contracts.declared_schema import DeclaredSchema
from dataflow.contracts.emitted_rows import UNWATCHED, Unwatched
from dataflow.contracts.operator import Out
from dataflow.errors import ContractViolation, SchemaMismatch, did_you_mean
from operators.process.values import Converter, shown

__all__ = ["Emissions"]

MOST: Final = 16_384
"""The rows of an emitted batch; those of the last call may exceed it."""

Row = tuple[Any, ...]


class _Output:
    """What waits for one output: checked rows, as tuples, and batches, in their order."""

    def __init__(self, schema: pa.Schema, where: str, tag: str | None, emitted: Unwatched) -> None:
        self._emitted = emitted
        output = "" if tag is None else f" side output {tag!r},"
        self._schema = schema
        self._names = schema.names
        self._known = frozenset(schema.names)
        self._where = f"{where}:{output}"
        self._converters = [
            Converter(field.type, f"{where}:{output} column {field.name!r}", nullable=field.nullable)
            for field in schema
        ]
        self._checks = [
            (field.name, converter.checked) for field, converter in zip(schema, self._converters, strict=True)
        ]
        advice = "change ctx.emit(...) or the schema declared in process(...)"
        self._declared = DeclaredSchema(schema, f"{where}:{output} an emitted batch", advice)
        self.pieces: list[Row | pa.RecordBatch] = []

    def add_row(self, row: Mapping[str, Any]) -> None:
        if row.keys() != self._known:
            raise self._wrong_columns(row)
        self.pieces.append(tuple([check(row[name]) for name, check in self._checks]))

    def add_batch(self, batch: pa.RecordBatch) -> None:
        self._emitted.add(batch)
        self.pieces.append(self._declared.conformed(batch))

    def batch(self) -> pa.RecordBatch | None:
        """Return all that waits as one batch; None if there are no rows."""
        pieces, self.pieces = self.pieces, []
        batches: list[pa.RecordBatch] = []
        rows: list[Row] = []
        for piece in pieces:
            if isinstance(piece, tuple):
                rows.append(piece)
                continue
            if rows:
                batches.append(self._of_rows(rows))
                rows = []
            batches.append(piece)
        if rows:
            batches.append(self._of_rows(rows))
        if not batches:
            return None
        batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
        return batch if batch.num_rows else None

    def _of_rows(self, rows: Sequence[Row]) -> pa.RecordBatch:
        if not self._names:
            return pa.record_batch({"": pa.nulls(len(rows))}).select([])
        values = zip(*rows, strict=True)
        columns = [converter.array(each) for each, converter in zip(values, self._converters, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _wrong_columns(self, row: Mapping[str, Any]) -> SchemaMismatch:
        problems = [f"column {name!r} is missing" for name in self._names if name not in row]
        problems += [
            f"column {name!r} is not in the declared schema{did_you_mean(str(name), self._names)}"
            for name in row
            if name not in self._known
        ]
        return SchemaMismatch(
            f"{self._where} an emitted row does not fit: {'; '.join(problems)}; change the row, or the schema declared "
            "in process(...)"
        )


class Emissions:
    """What the calls of one subtask emit, by tag; None is the main output.

    >>> emissions = Emissions("process 'p'", pa.schema({"x": pa.int64()}), {})
    >>> emissions.add({"x": 1}, None)
    >>> emissions.add(pa.record_batch({"x": [2, 3]}), None)
    >>> [batch.to_pydict() for batch, tag in emissions.take()]
    [{'x': [1, 2, 3]}]
    """

    def __init__(
        self, where: str, schema: pa.Schema, sides: Mapping[str, pa.Schema], emitted: Unwatched = UNWATCHED
    ) -> None:
        self._where = where
        self._outputs = {None: _Output(schema, where, None, emitted)} | {
            tag: _Output(side, where, tag, emitted) for tag, side in sides.items()
        }
        self._main: _Output | None = self._outputs[None]
        self.rows = 0
        """The rows that wait, about."""

    def add(self, rows: Any, tag: str | None) -> None:
        """Take rows that a function emits. Raises: SchemaMismatch, ContractViolation."""
        output = self._main if tag is None else self._outputs.get(tag)
        if output is None:
            if not self._outputs:
                raise ContractViolation(
                    f"{self._where}: a row is emitted after the last call, where it would be lost; emit it in process "
                    "or on_timer"
                )
            tags = [each for each in self._outputs if each is not None]
            raise ContractViolation(
                f"{self._where}: there is no side output {tag!r}; declared are {tags}: process(..., sides={{{tag!r}: "
                "schema})"
            )
        if type(rows) is dict or isinstance(rows, Mapping):  # the first test is ten times as fast
            output.add_row(rows)
            self.rows += 1
        elif isinstance(rows, pa.RecordBatch):
            output.add_batch(rows)
            self.rows += rows.num_rows
        else:
            raise ContractViolation(
                f"{self._where}: expected a row, as a mapping, or a pyarrow.RecordBatch, got {shown(rows)}; emit the "
                "rows of a list one by one, and a table as table.to_batches()"
            )

    def close(self) -> None:
        """Refuse rows from now on."""
        self._outputs, self._main = {}, None

    def mark(self) -> list[int]:
        """Return a mark for ``undo``."""
        return [len(output.pieces) for output in self._outputs.values()]

    def undo(self, mark: list[int]) -> None:
        """Drop what was emitted since ``mark``, which is of the same batch."""
        for output, length in zip(self._outputs.values(), mark, strict=True):
            del output.pieces[length:]

    def take(self) -> list[tuple[pa.RecordBatch, str | None]]:
        """Return what waits, and its tags."""
        self.rows = 0
        taken = [(output.batch(), tag) for tag, output in self._outputs.items() if output.pieces]
        return [(batch, tag) for batch, tag in taken if batch is not None]

    def send(self, out: Out) -> Iterator[None]:
        """Emit what waits."""
        taken = self.take()
        for batch, tag in taken:
            out.emit(batch, tag)
        if taken:
            yield
