"""Check untrusted messages of Arrow IPC streams before Arrow decodes them.

Arrow checks that the metadata of a message is well-formed, but not that it is true: a compressed body may expand to any
size, buffers may overlap, and rows may take no bytes at all. Our writers produce none of these, so they are damage.
After decoding, validate each array in full: Arrow also trusts offsets into text, and indices into dictionaries.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["MALFORMED", "body_length", "check_message", "is_dictionary"]

MALFORMED: Final = (struct.error, IndexError, ValueError, OverflowError)
"""The exceptions that the functions of this module raise if metadata is malformed."""

_LENGTH, _NODES, _BUFFERS, _COMPRESSION = 0, 1, 2, 3
"""Fields of the flatbuffer table ``RecordBatch`` (Arrow's Message.fbs)."""
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
"""Fields of the table ``Message``."""
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
"""Values of the union ``MessageHeader``."""
_DATA, _IS_DELTA = 1, 2
"""Fields of the table ``DictionaryBatch``."""
_PADDING: Final = 64
"""Arrow's writers align the end of a body to 8 or 64 bytes."""


def body_length(metadata: memoryview) -> int:
    """Return the number of bytes of the body that follows ``metadata``. Raises: one of ``MALFORMED``."""
    length = _Table.root(metadata).long(_BODY_LENGTH)
    if length < 0:
        raise ValueError("the length of a message body is negative")
    return length


def is_dictionary(metadata: memoryview) -> bool:
    """Return whether the message holds a dictionary. Raises: one of ``MALFORMED``."""
    return _Table.root(metadata).byte(_HEADER_TYPE) == _DICTIONARY


def check_message(metadata: memoryview, size: int) -> int:
    """Check the description of a message body of ``size`` bytes.

    Args:
        metadata: the flatbuffer of the message. It need not have been verified.
        size: the number of bytes of the body.

    Returns: the number of rows that take no bytes: of type null, or without columns.

    Raises: one of ``MALFORMED``, with the reason, if our writers would not write it.

    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"x": [1, 2]})
    >>> message = pa.ipc.read_message(batch.serialize())
    >>> check_message(memoryview(message.metadata), message.body.size)
    0
    >>> check_message(memoryview(message.metadata), 8)
    Traceback (most recent call last):
    ValueError: the buffers of a message body of 8 bytes overlap
    """
    message = _Table.root(metadata)
    kind = message.byte(_HEADER_TYPE)
    if kind == _SCHEMA:
        return 0
    if kind not in (_DICTIONARY, _BATCH):
        raise ValueError("a message holds neither a dictionary nor rows")
    header = message.table(_HEADER)
    if kind == _DICTIONARY:
        if header.byte(_IS_DELTA):
            raise ValueError("the stream has a delta dictionary, which barrierflow never writes")
        header = header.table(_DATA)
    if header.has(_COMPRESSION):
        raise ValueError("a message body is compressed, which barrierflow never writes")
    buffers = header.pairs(_BUFFERS)
    if sum(length for _, length in buffers) > size:
        raise ValueError(f"the buffers of a message body of {size} bytes overlap")
    end = max([start + length for start, length in buffers], default=0)
    if not end <= size < end + _PADDING:
        raise ValueError(f"a message body has {size} bytes, and its buffers end at {end}")
    rows = max([header.long(_LENGTH), *(length for length, _ in header.pairs(_NODES))])
    return max(0, rows - 8 * size)


class _Table:
    """A table of a flatbuffer, for reading its fields. Nothing is read outside ``data``."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - self._read("<i", at)

    @staticmethod
    def root(data: memoryview) -> _Table:
        """Return the root table of the metadata of a message."""
        return _Table(data, struct.unpack_from("<I", data)[0])

    def _read(self, form: str, at: int) -> int:
        if at < 0:
            raise ValueError("the metadata of a message refers to bytes before it")
        return int(struct.unpack_from(form, self._data, at)[0])

    def _place(self, field: int) -> int:
        """Return the position of the value of ``field``; 0 if the table has none."""
        entry = 4 + 2 * field
        if entry >= self._read("<H", self._fields):
            return 0
        offset = self._read("<H", self._fields + entry)
        return self._at + offset if offset else 0

    def has(self, field: int) -> bool:
        """Return whether the table has ``field``."""
        return self._place(field) != 0

    def byte(self, field: int) -> int:
        """Return a field of one byte; 0 if the table has none."""
        place = self._place(field)
        return self._read("<B", place) if place else 0

    def long(self, field: int) -> int:
        """Return an int64 field; 0 if the table has none."""
        place = self._place(field)
        return self._read("<q", place) if place else 0

    def table(self, field: int) -> _Table:
        """Return a field that is a table. Raises: ValueError if there is none."""
        place = self._place(field)
        if not place:
            raise ValueError("a message has no header")
        return _Table(self._data, place + self._read("<I", place))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two int64. Raises: ValueError for a negative one."""
        place = self._place(field)
        if not place:
            return []
        start = place + self._read("<I", place)
        pairs = list(struct.iter_unpack("<qq", self._data[start + 4 : start + 4 + 16 * self._read("<I", start)]))
        if any(number < 0 for pair in pairs for number in pair):
            raise ValueError("a length or an offset is negative")
        return pairs
