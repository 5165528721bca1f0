"""What text files share as a source: checks, positions, and rows that cannot be parsed.

A split is a file. A reader parses it block by block (see ``blocks``), each block whole; only where that fails are its
rows looked at one by one.

A position is ``{"byte", "line"}`` where a block begins, with ``"rows"`` and ``"end"`` once rows of that block were
given. All rejected rows of a block leave with its first rows, so once some were given these count as told. In a packed
file bytes are those of the unpacked text: a reader that begins in the middle unpacks what stands before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from dataflow.errors import InputChanged, SourceError
from dataflow.operator import END, EndOfSplit, Json, Split, SplitReader
from dataflow.row_errors import OnError, RowErrors, RowTally
from operators.sources.blocks import Block, Blocks, Place
from operators.sources.files import Files, Status

__all__ = ["UNREADABLE", "RowParser", "TextFile", "TextReader", "Unparsable", "Wrong", "halved", "no_rows"]

UNREADABLE: Final = (OSError, pa.ArrowException)  # what pyarrow raises for a file that is not as it should be


class Unparsable(ValueError):
    """Rows that a parser cannot take."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A row that cannot be parsed: the bytes of its block from ``start`` to ``end``, and why."""

    start: int
    end: int
    error: Exception


_WRONG: Final = (pa.ArrowException, Unparsable)


class RowParser(Protocol):
    """A format. Bytes given to ``parse`` and ``rescue`` begin and end with a row."""

    label: str
    schema: pa.Schema

    def cut(self, data: bytes, final: bool) -> int:  # noqa: FBT001  the shape of blocks.Cut
        """See ``blocks.Cut``."""
        ...

    def parse(self, data: bytes) -> pa.RecordBatch:
        """The rows. Raises: Unparsable, or pyarrow's errors."""
        ...

    def rescue(self, data: bytes) -> tuple[pa.RecordBatch, Sequence[Wrong]]:
        """The rows of ``data``, which ``parse`` would not take, that can be parsed, and the others, in their order."""
        ...

    def text(self, data: bytes) -> str:
        """A row as text, whatever its bytes."""
        ...


@dataclass(frozen=True, slots=True)
class TextFile:
    """A file as it was when the source was made. ``content`` is a hash of its ends (see ``Files.content``)."""

    path: str
    status: Status
    content: str

    @classmethod
    def look(cls, label: str, path: str, where: Files) -> TextFile:
        try:
            return cls(path, where.status(path), where.content(path))
        except UNREADABLE as error:
            raise SourceError(f"{label}: cannot read {path!r}: {error}; replace or remove it") from error

    @property
    def split(self) -> Split:
        return Split(self.path, {"path": self.path, "bytes": self.status.bytes, "content": self.content})

    @staticmethod
    def check(label: str, split: Split, where: Files) -> None:
        """Raises: InputChanged unless the file has the size and the ends that it had."""
        lost = f"the checkpoint was taken over {split.id!r}, which is not what it was"
        try:
            now = TextFile.look(label, str(split.info["path"]), where).split.info
        except SourceError as error:
            raise InputChanged(f"{lost}: it cannot be read any more: {error}") from error
        if now["bytes"] != split.info["bytes"]:
            raise InputChanged(f"{lost}: it had {split.info['bytes']} bytes and has {now['bytes']}")
        if now["content"] != split.info["content"]:
            raise InputChanged(f"{lost}: its ends had hash {split.info['content']} and have {now['content']}")


class TextReader(SplitReader):
    """Reads a file from ``offset`` on; ``begin`` is where its rows begin."""

    def __init__(
        self,
        path: str,
        where: Files,
        parser: RowParser,
        begin: Place,
        offset: Json,
        *,
        batch_rows: int,
        block_bytes: int,
        on_error: OnError,
        tally: RowTally,
    ) -> None:
        self._path = path
        self._parser = parser
        self._batch_rows = batch_rows
        given: Any = offset or {"byte": begin.byte, "line": begin.line}
        self._place = Place(given["byte"], given["line"])  # where the next block begins
        self._block: Block | None = None  # the one whose rows are being given, while there are any left
        self._rows = no_rows(parser.schema)
        self._given = 0
        try:
            self._stream = where.open_text(path, self._place.byte)
            self._blocks = Blocks(self._stream, parser.cut, self._place, block_bytes=block_bytes)
            if "rows" in given:
                self._errors = RowErrors(on_error, RowTally())  # what this block rejected was told before
                self._begin(self._blocks.again(given["end"] - self._place.byte))
                self._give(given["rows"])
        except UNREADABLE as error:
            raise self._damaged(error) from error
        self._errors = RowErrors(on_error, tally)

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        while self._block is None:
            try:
                block = next(self._blocks, None)
            except UNREADABLE as error:
                raise self._damaged(error) from error
            if block is None:
                return END
            if self._begin(block) and self._block is None:
                return self._rows  # none, but rejected ones, whose place counts as read
        return self._give(min(max_rows, self._batch_rows))

    def rejected(self) -> pa.RecordBatch | None:
        return self._errors.take()

    @property
    def offset(self) -> Json:
        if self._block is None:
            return {"byte": self._place.byte, "line": self._place.line}
        at = self._block
        return {"byte": at.at, "line": at.line, "rows": self._given, "end": at.end}

    def close(self) -> None:
        self._block, self._rows = None, no_rows(self._parser.schema)
        self._stream.close()

    def _begin(self, block: Block) -> int:
        """Parse a block, which becomes the current one if it has rows; returns how many rows were rejected."""
        self._place = block.after
        self._rows, rejected = self._parsed(block)
        self._block, self._given = (block if self._rows.num_rows else None), 0
        return rejected

    def _give(self, rows: int) -> pa.RecordBatch:
        batch, self._rows = self._rows.slice(0, rows), self._rows.slice(rows)
        self._given += batch.num_rows
        if self._rows.num_rows == 0:
            self._block = None
        return batch

    def _parsed(self, block: Block) -> tuple[pa.RecordBatch, int]:
        if block.broken:
            self._reject(block.line, block.data, Unparsable("the row does not end: is a quote left open?"))
            return no_rows(self._parser.schema), 1
        try:
            return self._parser.parse(block.data), 0
        except _WRONG:
            batch, wrong = self._parser.rescue(block.data)
        place, seen = Place(block.at, block.line), 0
        for row in wrong:
            place, seen = Block(block.data[seen : row.start], place.byte, place.line).after, row.start
            self._reject(place.line, block.data[row.start : row.end], row.error)
        return batch, len(wrong)

    def _reject(self, line: int, row: bytes, error: Exception) -> None:
        where = f"{self._path}:{line}"
        failing = self._errors.policy is OnError.FAIL
        message = f"{self._parser.label}: {where}: {error}" if failing else str(error)
        self._errors.reject(where, self._parser.text(row), SourceError(message))

    def _damaged(self, error: Exception) -> SourceError:
        return SourceError(
            f"{self._parser.label}: {self._path!r} cannot be read from byte {self._place.byte} on: {error}; restore "
            f"the file from a good copy"
        )


def halved(
    parse: Callable[[bytes], pa.RecordBatch], schema: pa.Schema, data: bytes, ends: Sequence[int]
) -> tuple[pa.RecordBatch, list[Wrong]]:
    """See ``RowParser.rescue``, for any format: the rows are halved as long as a half has a bad one.

    ``ends`` are the places behind each row. A bad row among n good ones costs some 2 log2(n) attempts.
    """
    places = [0, *ends]
    waiting = [(0, len(places) - 1)]
    good: list[pa.RecordBatch] = []
    wrong: list[Wrong] = []
    while waiting:
        first, behind = waiting.pop()
        try:
            good.append(parse(data[places[first] : places[behind]]))
        except _WRONG as error:
            half = (first + behind) // 2
            if half > first:
                waiting += [(half, behind), (first, half)]
            else:
                wrong.append(Wrong(places[first], places[behind], error))
    batches = pa.Table.from_batches(good, schema).combine_chunks().to_batches()
    return batches[0] if batches else no_rows(schema), wrong


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
