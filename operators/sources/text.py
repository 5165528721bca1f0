"""The reader of text files, for all formats: positions, and rows that cannot be parsed.

A split is a file. A reader parses it block by block (see ``blocks``). Only if that fails are the rows of the block
parsed one by one.

A position is the ``{"byte", "line"}`` at which a block begins, with ``"rows"`` and ``"end"`` once rows of that block
were emitted. All rejected rows of a block are reported with its first rows, so a position within a block implies that
they were. In a compressed file bytes are those of the decompressed text: a reader that begins in the middle
decompresses all before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import msgspec
import pyarrow as pa

from dataflow.arrow_values import to_array
from dataflow.contracts.row_errors import OnError, RowErrors, RowTally
from dataflow.contracts.source import END, EndOfSplit, Json, SplitReader
from dataflow.errors import CheckpointDamaged, SourceError
from dataflow.untrusted import Count, parsed
from operators.sources.archives import HEAD_BYTES, other_kind
from operators.sources.blocks import Block, Blocks, BlockStart, Cut
from operators.sources.files import Files
from operators.sources.known_file import UNREADABLE

__all__ = ["RowParser", "TextReader", "Unparsable", "Wrong", "no_rows", "opened_blocks", "searched", "undecodable"]


class Unparsable(ValueError):
    """Rows cannot be parsed."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A row that cannot be parsed: the bytes of its block from ``start`` to ``end``, and why."""

    start: int
    end: int
    error: Exception


_WRONG: Final = (pa.ArrowException, Unparsable)
_PIECE: Final = 256  # rows that are parsed together if some are wrong


class RowParser(Protocol):
    """A parser of one format. Bytes passed to ``parse`` and ``rescue`` are whole rows."""

    label: str
    schema: pa.Schema
    encoding: str
    other_encodings: str
    """Advice for a file in another encoding."""

    def cut(self, data: bytes, final: bool) -> int:  # noqa: FBT001  the shape of blocks.Cut
        """See ``blocks.Cut``."""
        ...

    def parse(self, data: bytes) -> pa.RecordBatch:
        """Return the rows. Raises: Unparsable, or pyarrow's errors."""
        ...

    def rescue(self, data: bytes) -> tuple[pa.RecordBatch, Sequence[Wrong]]:
        """Return the good rows of ``data``, for which ``parse`` failed, and the others, in their order."""
        ...

    def text(self, data: bytes) -> str:
        """Return a row as text, whatever its bytes."""
        ...


@contextmanager
def opened_blocks(label: str, path: str, where: Files, cut: Cut, block_bytes: int) -> Iterator[Blocks]:
    """Open a file, and give its blocks from the first one on, without a mark (BOM).

    Raises: SourceError, also within the context, if the file cannot be read or is no text.
    """
    try:
        with where.open_text(path, 0) as stream:
            blocks = Blocks(stream, cut, BlockStart(0, 1), block_bytes=block_bytes)
            if (kind := other_kind(blocks.head(HEAD_BYTES))) is not None:
                raise SourceError(f"{label}: {path!r} {kind}")
            blocks.skip_mark()
            yield blocks
    except UNREADABLE as error:
        raise SourceError(f"{label}: cannot read {path!r}: {error}; restore it from a good copy") from error


class _Offset(msgspec.Struct):
    """A position: see the module docstring."""

    byte: Count
    line: Count
    rows: Count | None = None
    end: Count = 0


class TextReader(SplitReader):
    """Reads a file from ``offset`` on; ``begin`` is where its rows begin.

    At the end of the file ``whole`` is called with the number of its (decompressed) bytes.
    """

    def __init__(
        self,
        path: str,
        where: Files,
        parser: RowParser,
        begin: BlockStart,
        offset: Json,
        *,
        batch_rows: int,
        block_bytes: int,
        on_error: OnError,
        tally: RowTally,
        whole: Callable[[int], None],
    ) -> None:
        self._path = path
        self._parser = parser
        self._batch_rows = batch_rows
        self._whole = whole
        given = _Offset(begin.byte, begin.line)
        if offset is not None:
            given = parsed(_Offset, offset, f"{parser.label}: the position in {path!r}")
        self._place = BlockStart(given.byte, given.line)  # where the next block begins
        self._block: Block | None = None  # whose rows are being emitted, while there are any left
        self._rows = no_rows(parser.schema)
        self._given = 0
        try:
            self._stream = where.open_text(path, self._place.byte)
            self._blocks = Blocks(self._stream, parser.cut, self._place, block_bytes=block_bytes)
            if given.rows is not None:
                if given.end < given.byte:
                    raise CheckpointDamaged(f"{parser.label}: the position in {path!r} ends before it begins: {given}")
                self._errors = RowErrors(on_error, RowTally())  # this block's rejected rows were reported before
                self._begin(self._blocks.again(given.end - given.byte))
                self._give(given.rows)
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
                self._whole(self._place.byte)
                return END
            if self._begin(block) and self._block is None:
                return self._rows  # no rows, but rejected ones, and a new position
        return self._give(min(max_rows, self._batch_rows - self._given % self._batch_rows))

    def rejected(self) -> pa.RecordBatch | None:
        return self._errors.take()

    @property
    def offset(self) -> Json:
        if self._block is None:
            return {"byte": self._place.byte, "line": self._place.line}
        at = self._block
        return {"byte": at.at, "line": at.line, "rows": self._given, "end": at.end}

    @property
    def mid_batch(self) -> bool:
        return self._block is not None and self._given % self._batch_rows > 0

    def close(self) -> None:
        self._block, self._rows = None, no_rows(self._parser.schema)
        self._stream.close()

    def _begin(self, block: Block) -> int:
        """Parse a block, make it the current one if it has rows, and return how many rows were rejected."""
        self._place = self._blocks.place
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
        place, seen = BlockStart(block.at, block.line), 0
        for row in wrong:
            place, seen = Block(block.data[seen : row.start], place.byte, place.line).after, row.start
            text = block.data[row.start : row.end]
            self._reject(place.line, text, self._explained(row.error, text, place.byte))
        return batch, len(wrong)

    def _explained(self, error: Exception, row: bytes, at: int) -> Exception:
        """Return ``error``, with the byte that is the cause if a row is not text."""
        cause = undecodable(row, self._parser.encoding, at) if "UTF" in str(error) else None
        return error if cause is None else Unparsable(f"{error}; {cause}; {self._parser.other_encodings}")

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


def searched(
    parse: Callable[[bytes], pa.RecordBatch],
    schema: pa.Schema,
    data: bytes,
    ends: Sequence[int],
    suspect: Callable[[Exception], int | None],
) -> tuple[pa.RecordBatch, list[Wrong]]:
    """Return the good and the bad rows of ``data``, for any format; see ``RowParser.rescue``.

    Rows that cannot be parsed together are split at the one whose number ``suspect`` derives from the error, or in the
    middle. A suspect is parsed on its own, so a wrong suspect costs time, but no row.

    Args:
        ends: the offset after each row.
    """
    places = [0, *ends]
    waiting = [(first, min(first + _PIECE, len(ends))) for first in reversed(range(0, len(ends), _PIECE))]
    good: list[pa.RecordBatch] = []
    wrong: list[Wrong] = []
    while waiting:
        first, end = waiting.pop()
        if first == end:
            continue
        try:
            good.append(parse(data[places[first] : places[end]]))
        except _WRONG as error:
            if end == first + 1:
                wrong.append(Wrong(places[first], places[end], error))
                continue
            number = suspect(error)
            bad = (first + end) // 2 if number is None else min(first + number, end - 1)
            waiting += [(bad + 1, end), (bad, bad + 1), (first, bad)]
    batches = pa.Table.from_batches(good, schema).combine_chunks().to_batches()
    return batches[0] if batches else no_rows(schema), wrong


def undecodable(data: bytes, encoding: str, at: int) -> str | None:
    """Return which byte of ``data``, which begins at byte ``at`` of its file, is not ``encoding``; None: all are.

    >>> undecodable("größe".encode("latin-1"), "utf-8", 100)
    'byte 0xf6 at byte 102 of the file is not utf-8'
    """
    try:
        data.decode(encoding)
    except UnicodeDecodeError as error:
        return f"byte 0x{data[error.start]:02x} at byte {at + error.start} of the file is not {encoding}"
    return None


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch without rows."""
    return pa.RecordBatch.from_arrays([to_array([], field.type) for field in schema], schema=schema)
