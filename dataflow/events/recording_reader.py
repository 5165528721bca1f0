"""Read a recording, which is an untrusted document, batch by batch up to the last whole one.

A recording is one Arrow IPC stream. Its writer may be killed at any byte, and may be writing now. So what is left
after the last whole message is no damage if it can be the beginning of one. Each message is checked before Arrow
decodes it, and each batch in full before it is returned.

Guarantees: memory is proportional to the bytes of the file that were read, and bounded for one message. The names in
a batch are exactly those of the plan, so no name is unknown and no plan is larger than the file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from dataflow.errors import EventsDamaged, EventsError
from dataflow.events.batch_check import BatchCheck
from dataflow.events.kinds import schema
from dataflow.events.recorded import RecordedJob, recorded_from
from dataflow.untrusted.ipc_messages import MALFORMED, body_length, check_message, is_dictionary

__all__ = ["MAX_METADATA", "RecordingReader", "open_recording"]

_CONTINUATION: Final = b"\xff\xff\xff\xff"
"""The first bytes of each message. Four bytes with the length of its metadata follow; 0 ends the stream."""
_PREFIX: Final = 8
MAX_METADATA: Final = 16 << 20
"""Bytes of the metadata of a message. The first message has the plan."""
_MAX_BODY: Final = 256 << 20
_ROWS_AT_ONCE: Final = 65_536
"""Events that are checked together, unless names change between them."""


@contextmanager
def open_recording(path: str) -> Iterator[int]:
    """Open the file of a recording for reading; yield its descriptor.

    Raises: FileNotFoundError; EventsError if it cannot be opened or is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EventsError(f"cannot read the recording {path}: {reason}; check the path and its permissions") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise EventsError(f"cannot read {path}: expected the file of a recording, found no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


class RecordingReader:
    """The events of a recording, in order.

    Args:
        descriptor: the open file. Its size is taken now: what is written later is not read.
        path: for messages.

    Raises: EventsDamaged if it does not begin as a recording does.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self._messages = _Messages(descriptor, path)
        self.head = self._messages.peek()
        """The bytes of the first message, with schema and metadata."""
        self.end = len(self.head)
        """The offset after the last batch returned so far."""
        if not self.head:
            raise EventsDamaged(f"{path} is no recording of events: it ends after {self._messages.size} bytes")
        with self._reading():
            self._stream = pa.ipc.open_stream(pa.PythonFile(self._messages, "r"))
            metadata, columns = self._stream.schema.metadata, self._stream.schema
            self.recorded: RecordedJob = self._messages.blamed(recorded_from, metadata)
            if not columns.equals(schema()):
                raise self._messages.damaged(f"its columns are not those of events: {str(columns)[:300]!r}")
        self._check = BatchCheck(self.recorded.plan)
        self._attempt = 1

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the events up to the last whole batch, many batches as one. Raises: EventsDamaged."""
        batches: list[pa.RecordBatch] = []
        rows, dictionaries = 0, 0
        for batch in self._batches():
            if batches and (rows > _ROWS_AT_ONCE or dictionaries != self._messages.dictionaries):
                yield self._checked(batches)
                batches, rows = [], 0
            batches.append(batch)
            rows, dictionaries = rows + batch.num_rows, self._messages.dictionaries
        if batches:
            yield self._checked(batches)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._reading():
                try:
                    batch = self._stream.read_next_batch()
                except StopIteration:
                    break
                batch.validate()
                for name in ("totals", "detail"):
                    batch.column(name).validate(full=True)
            self.end = self._messages.offset
            yield batch
        if self._messages.failure is not None:
            raise self._messages.failure

    def _checked(self, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the rows of ``batches``, which have the same dictionaries, as one batch."""
        with self._reading():
            columns = []
            for pieces in zip(*[batch.columns for batch in batches], strict=True):
                if pa.types.is_dictionary(pieces[0].type):
                    indices = pa.concat_arrays([piece.indices for piece in pieces])
                    columns.append(pa.DictionaryArray.from_arrays(indices, pieces[0].dictionary, safe=False))
                else:
                    columns.append(pa.concat_arrays(pieces))
            batch = pa.RecordBatch.from_arrays(columns, schema=schema())
            self._attempt = self._check.check(batch, self._attempt)
        return batch

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except EventsError:
            raise
        except (pa.ArrowException, OSError, *MALFORMED) as error:
            raise self._messages.failure or self._messages.damaged(str(error)[:500]) from error


class _Messages:
    """The whole messages of a stream as a file that Arrow reads; each is checked before its first byte is returned.

    Dictionaries and the rows after them are returned together or not at all: Arrow wants rows after dictionaries.

    An exception that is raised while Arrow reads may be replaced by one of Arrow's, so it is also kept as ``failure``.
    """

    closed = False

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        self._message = b""
        self._taken = 0
        self.size = os.fstat(descriptor).st_size
        self.offset = 0
        """The end of the current message in the file."""
        self.dictionaries = 0
        """How many messages with dictionaries there were so far."""
        self.failure: EventsError | None = None

    def read(self, size: int = -1) -> bytes:
        """Return bytes of one message; none at the end of the last whole one."""
        message = self.peek()
        piece = message[self._taken : self._taken + size] if size >= 0 else message[self._taken :]
        self._taken += len(piece)
        return piece

    def readable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing: the descriptor is the caller's."""

    def peek(self) -> bytes:
        """Return the message of which bytes are read next; b"" at the end. Raises: EventsError."""
        if self._taken == len(self._message) and self.failure is None:
            self._taken = 0
            try:
                self._message = self._next()
            except EventsError as error:
                self._message, self.failure = b"", error
                raise
            self.offset += len(self._message)
        return self._message

    def damaged(self, why: str) -> EventsDamaged:
        """Return the error for damage at the current place."""
        return EventsDamaged(
            f"the recording {self._path} is damaged after byte {self.offset:,}: {why}; read a copy that is whole, "
            "if there is one"
        )

    def blamed(self, read: object, metadata: object) -> RecordedJob:
        """Return ``recorded_from(metadata)``, with the path in its error."""
        try:
            return recorded_from(metadata)  # type: ignore[arg-type]
        except EventsDamaged as error:
            raise EventsDamaged(f"{self._path}: {error}") from error

    def _next(self) -> bytes:
        """Return the next message, with the dictionaries before it; b"" if it is not whole."""
        messages, at = [], self.offset
        while True:
            message, holds_names = self._message_at(at)
            if not message:
                return b""
            messages.append(message)
            at += len(message)
            if not holds_names:
                return b"".join(messages)
            self.dictionaries += 1

    def _message_at(self, start: int) -> tuple[bytes, bool]:
        """Return the message at ``start``, b"" if it is not whole, and whether it is a dictionary."""
        left = self.size - start
        prefix = self._pread(min(_PREFIX, left), start)
        if not _CONTINUATION.startswith(prefix[:4]):
            if start == 0:
                raise EventsDamaged(f"{self._path} is no recording of events: it is no Arrow stream")
            raise self.damaged("expected another message")
        if len(prefix) < _PREFIX:
            return b"", False
        length = int.from_bytes(prefix[4:], "little", signed=True)
        if length == 0:
            if left > _PREFIX:
                raise self.damaged(f"{left - _PREFIX:,} bytes follow the end of the stream")
            return b"", False
        if not 0 < length <= MAX_METADATA or length % 8:
            raise self.damaged(f"a message has {length:,} bytes of metadata")
        metadata = self._pread(length, start + _PREFIX)
        if len(metadata) < length:
            return b"", False
        try:
            size = body_length(memoryview(metadata))
            if size > _MAX_BODY:
                raise ValueError(f"a message has {size:,} bytes, at most {_MAX_BODY:,} are possible")
            if check_message(memoryview(metadata), size):
                raise ValueError("rows take no bytes")
            holds_names = is_dictionary(memoryview(metadata))
        except MALFORMED as error:
            raise self.damaged(str(error)) from error
        body = self._pread(size, start + _PREFIX + length)
        return (b"".join([prefix, metadata, body]) if len(body) == size else b""), holds_names

    def _pread(self, size: int, offset: int) -> bytes:
        pieces, size = [], min(size, self.size - offset)
        while size > 0:
            try:
                piece = os.pread(self._descriptor, size, offset)
            except OSError as error:
                raise EventsError(f"cannot read {self._path}: {error.strerror or error}") from error
            if not piece:
                break
            pieces.append(piece)
            size, offset = size - len(piece), offset + len(piece)
        return b"".join(pieces)
