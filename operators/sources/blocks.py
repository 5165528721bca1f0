"""Text in blocks of whole rows, so that a reader may begin at any block without parsing the text before it.

The end of a block depends only on its beginning and on the text after that. So a position is the byte at which a block
begins, and the number of its first line. A row longer than a block makes its block grow. A row is *broken* if it does
not end within ``longest`` bytes, or not before the file ends (a quote that was never closed): its first line becomes a
block of its own, and the next block begins after that line.

Memory: one block and the text read ahead for the next, or twice the longest row.

>>> import io
>>> def whole_lines(data, final):
...     return len(data) if final else data.rfind(b"\\n") + 1
>>> blocks = Blocks(io.BytesIO(b"one\\ntwo\\nthree"), whole_lines, BlockStart(0, 1), block_bytes=10)
>>> [(block.at, block.line, block.data) for block in blocks]
[(0, 1, b'one\\ntwo\\n'), (8, 3, b'three')]
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np

__all__ = ["LONGEST", "Block", "Blocks", "Cut", "BlockStart"]

LONGEST: Final = 64 << 20
_STEP: Final = 16 << 20  # bytes that are read from a stream at once

Cut = Callable[[bytes, bool], int]
"""A function that returns how many bytes of a text are whole rows; 0: not even one. The flag: the text is the last."""


@dataclass(frozen=True, slots=True)
class BlockStart:
    """The byte and the line (from 1) at which a block begins."""

    byte: int
    line: int


@dataclass(frozen=True, slots=True)
class Block:
    """Whole rows, or the first line of a broken one. ``at`` and ``end`` are bytes of the (unpacked) file."""

    data: bytes
    at: int
    line: int
    broken: bool = False

    @property
    def end(self) -> int:
        return self.at + len(self.data)

    @property
    def after(self) -> BlockStart:
        """Where the next block begins. Lines end in a newline; in text without newlines, in a carriage return."""
        lines = _count(self.data, b"\n")
        if not lines and not self.broken:  # a broken block may end between the two bytes of a line end
            lines = _count(self.data, b"\r")
        return BlockStart(self.end, self.line + lines)


class Blocks(Iterator[Block]):
    """The blocks of ``stream``, which is at ``place``."""

    def __init__(
        self, stream: BinaryIO, cut: Cut, place: BlockStart, *, block_bytes: int, longest: int = LONGEST
    ) -> None:
        self._stream = stream
        self._cut = cut
        self._place = place
        self._block_bytes = block_bytes
        self._longest = max(longest, block_bytes)
        self._ahead = b""
        self._ended = False

    def __next__(self) -> Block:
        size = self._block_bytes
        while True:
            data = self._peek(size)
            if not data:
                raise StopIteration
            final = len(self._ahead) <= size  # independent of how far the stream was read before
            whole = self._cut(data, final)
            if whole:
                return self._take(whole)
            if final or size >= self._longest:
                return self._take(_first_line(data), broken=True)
            size = min(2 * size, self._longest)

    def head(self, size: int) -> bytes:
        """Return up to ``size`` of the next bytes, without taking them."""
        return self._peek(size)

    def skip_mark(self) -> None:
        """Skip the mark (BOM) that some programs write before UTF-8."""
        if self._peek(len(BOM_UTF8)) == BOM_UTF8:
            self._take(len(BOM_UTF8))

    def skip_line(self) -> None:
        """Skip a line, ignoring quotes."""
        while (data := self._peek(self._block_bytes)) and not (at := data.find(b"\n") + 1):
            self._take(len(data))
        if data:
            self._take(at)

    @property
    def place(self) -> BlockStart:
        """Where the next block begins."""
        return self._place

    def again(self, size: int) -> Block:
        """Return the next ``size`` bytes: a block of before a restore, when blocks may have had another size."""
        return self._take(len(self._peek(size)))

    def _peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes. One more is read ahead, which shows whether these are the last."""
        while len(self._ahead) <= size and not self._ended:  # in steps: streams allocate all requested bytes
            read = self._stream.read(min(size + 1 - len(self._ahead), _STEP))
            self._ahead += read
            self._ended = not read
        return self._ahead[:size]

    def _take(self, size: int, *, broken: bool = False) -> Block:
        block = Block(self._ahead[:size], self._place.byte, self._place.line, broken)
        self._ahead = self._ahead[size:]
        self._place = block.after
        return block


def _count(data: bytes, byte: bytes) -> int:
    """Return ``data.count(byte)``, but several times faster, and without blocking other threads."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == byte[0]))


def _first_line(data: bytes) -> int:
    return data.find(b"\n") + 1 or len(data)
