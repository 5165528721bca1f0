"""Compressed files as streams, and files of other kinds, which are recognised by their first bytes.

A file of gzip or bzip2 may consist of several compressed streams ("members"), one after another. Rotated logs have
members without any data, and files from tapes and block devices end in zeros. Both are read here as ``gzip`` and
``bzip2`` read them. Arrow's own stream refuses zeros, and members of bzip2 without data.
"""

from __future__ import annotations

import bz2
import io
import re
import zlib
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

__all__ = ["HEAD_BYTES", "other_kind", "unpacked"]

HEAD_BYTES: Final = 512
"""The first bytes of a file that ``other_kind`` looks at."""
_PIECE: Final = 1 << 16

_KINDS: Final[Sequence[tuple[bytes, str]]] = (
    (rb"\x1f\x8b\x08", "is compressed with gzip, which its name does not say: rename it to end in .gz"),
    (rb"BZh[1-9](1AY|\x17rE)", "is compressed with bzip2, which its name does not say: rename it to end in .bz2"),
    (rb"\x28\xb5\x2f\xfd", "is compressed with zstd, which its name does not say: rename it to end in .zst"),
    (rb"\xfd7zXZ\0", "is compressed with xz, which is not read: decompress it, such as with xz -d"),
    (rb"\x04\x22\x4d\x18", "is compressed with lz4, which is not read: decompress it, such as with lz4 -d"),
    (rb"PK(\x03\x04|\x05\x06)", "is a zip archive, as .xlsx files are: unpack it, or save its sheet as CSV"),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is an Excel workbook: save its sheet as CSV"),
    (rb"[\s\S]{257}ustar", "is a tar archive: unpack it, such as with tar -xf"),
    (rb"PAR1\x15", "is a Parquet file: read it with read_parquet"),
    (rb"ARROW1\0\0", "is an Arrow IPC file: read it with read_ipc"),
    (rb"\xff\xfe\0\0|\0\0\xfe\xff", "is UTF-32 text: convert it, such as with iconv -f utf-32 -t utf-8"),
    (rb"\xff\xfe|\xfe\xff", "is UTF-16 text: convert it, such as with iconv -f utf-16 -t utf-8"),
)
_RECOGNISED: Final = [(re.compile(pattern), advice) for pattern, advice in _KINDS]


def other_kind(head: bytes) -> str | None:
    """Return what a file that begins with ``head`` is, and what to do, if it is no text; None if it may be text.

    >>> other_kind(b"PK\\3\\4...")
    'is a zip archive, as .xlsx files are: unpack it, or save its sheet as CSV'
    """
    return next((advice for pattern, advice in _RECOGNISED if pattern.match(head)), None)


def unpacked(raw: Any, codec: str) -> BinaryIO:
    """Return the decompressed data of the open file ``raw``. Its ``read`` raises OSError if the data is damaged."""
    begin = _DECOMPRESSORS.get(codec)
    stream = pa.CompressedInputStream(raw, codec) if begin is None else _Members(raw, codec, begin)
    return cast(BinaryIO, stream)


_DECOMPRESSORS: Final[dict[str, Callable[[], Any]]] = {
    "gzip": lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS),
    "bz2": bz2.BZ2Decompressor,
}
_MAGIC: Final = {"gzip": b"\x1f\x8b", "bz2": b"BZ"}


class _Members(io.RawIOBase):
    """The data of all members of a file, one after another."""

    def __init__(self, raw: Any, codec: str, begin: Callable[[], Any]) -> None:
        self._raw = raw
        self._codec = codec
        self._begin = begin
        self._member: Any = None  # the decompressor of the current member; None: between two members
        self._first = True
        self._packed = b""  # bytes that were read and not decompressed yet

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; none only at the end of the file."""
        parts: list[bytes] = []
        missing = size if size >= 0 else 1 << 62
        while missing and (part := self._next(min(missing, 1 << 24))):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _next(self, most: int) -> bytes:
        """Return some bytes of the data; none only at the end of the file."""
        while True:
            if self._member is None and not self._begin_member():
                return b""
            more = self._decompressed(most)
            if self._member.eof:
                self._packed, self._member = self._member.unused_data, None
            if more:
                return more

    def _begin_member(self) -> bool:
        """Begin the next member, after any zeros; return False at the end of the file."""
        while not self._packed.strip(b"\0") if not self._first else not self._packed:
            self._packed = self._raw.read(_PIECE)
            if not self._packed:
                return False
        self._packed = self._packed if self._first else self._packed.lstrip(b"\0")
        if self._first and not self._packed.startswith(_MAGIC[self._codec][: len(self._packed)]):
            raise OSError(f"it is not compressed with {self._codec}, as its name says (if it is plain text, rename it)")
        self._member, self._first = self._begin(), False
        return True

    def _decompressed(self, most: int) -> bytes:
        member = self._member
        if not self._packed and getattr(member, "needs_input", True):
            self._packed = self._raw.read(_PIECE)
            if not self._packed:
                raise OSError(f"the {self._codec} data ends early")
        try:
            more: bytes = member.decompress(self._packed, most)
        except (zlib.error, OSError, EOFError) as error:
            raise OSError(f"its {self._codec} data is damaged ({error})") from error
        self._packed = getattr(member, "unconsumed_tail", b"")  # bz2's decompressor keeps its own
        return more

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()
