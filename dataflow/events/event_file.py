"""The file that gets the events of a run while it runs: a recording.

    events.arrow      one Arrow IPC stream; the metadata of its schema says what the events are of
    events.arrow.1    the recording before it, when it reached half of the limit, or when another job began

Each batch is written with one call, so a killed process loses at most what was recorded since its last drain, and what
a reader finds ends within a batch at worst. Nothing is synced: after a power failure the end may be missing.

A run of the same job and plan continues the stream of the file: it cuts it after the last whole batch and writes
messages of its own. Arrow's writer sends dictionaries before the first of them, which replace the earlier ones. Nothing
changes before the first event: a start that is refused leaves both files as they are.

Invariants: whoever writes holds the lock (``flock``) of the file at ``path``. A new file is locked before it gets this
name, and the old one, which is then ``.1``, is locked until then. So a second job finds one of the two locked at any
time, although for a moment there is no file at ``path``.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa

from dataflow.errors import EventsDamaged, EventsError
from dataflow.events.kinds import schema
from dataflow.events.record import OLDER, Record
from dataflow.events.recorded import RecordedJob
from dataflow.events.recording_reader import MAX_METADATA, RecordingReader, open_recording

__all__ = ["EventFile"]

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TEMPORARY: Final = ".tmp"
_ROWS_AT_ONCE: Final = 1_024
"""Rows of a message, so that neither file exceeds half of the limit by much."""

_ADVICE: Final = {
    errno.ENOENT: "create the directory, or record to another one",
    errno.ENOTDIR: "a part of the path is a file; record to another path",
    errno.EISDIR: "it is a directory; name a file in it",
    errno.EACCES: "check who owns the directory, or record to another one",
    errno.EPERM: "check who owns the directory, or record to another one",
    errno.EROFS: "record to another directory",
    errno.ELOOP: "it is a symbolic link, which is not followed; name the file itself",
    errno.ENXIO: "it is no regular file; record to another path",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit of file sizes (ulimit -f), or record with a smaller limit=",
}
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class EventFile:
    """A recording that is being written. Make it with ``open``; one thread at a time calls the other methods.

    Attributes:
        attempt: the number of this start of the job in the recording.
    """

    def __init__(self, record: Record, recorded: RecordedJob, ended: Callable[[str], None]) -> None:
        self._path = os.path.abspath(record.path)
        self._half = record.limit // 2
        self._schema = schema().with_metadata(recorded.metadata())
        self._stream = _Stream(self._schema)
        self._descriptor = -1
        self._size = 0  # a write that fails is taken back to here
        self._recorded = recorded
        self._existing: RecordingReader | None = None
        self._has_begun = False  # before that, nothing was written
        self._has_events = False
        self._ended = ended
        self.attempt = 1

    @classmethod
    def open(cls, record: Record, recorded: RecordedJob, ended: Callable[[str], None]) -> EventFile:
        """Open the file of ``record`` for a job, and lock it until ``close``.

        Args:
            record: where, and how much.
            recorded: what the events are of.
            ended: called once, with the reason, if the recording ends before ``close``: because the disk is full, now
                or later, or a later write fails.

        Raises: EventsError if the file cannot be written, is written by another job, is no recording, or is one of
            another pipeline; EventsDamaged if it is damaged.

        >>> import tempfile
        >>> from dataflow.events.plan_shape import PlanShape
        >>> recorded = RecordedJob("bids", "0" * 32, "aligned", "exactly once", PlanShape("local"))
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     file = EventFile.open(Record(f"{directory}/events.arrow"), recorded, ended=print)
        ...     file.close()
        ...     file.attempt, os.listdir(directory)
        (1, [])
        """
        file = cls(record, recorded, ended)
        try:
            file._take()
            file._examine()
        except OSError as error:
            if error.errno not in _NO_ROOM:
                file.close()
                raise EventsError(f"record={record.path!r}: cannot write it: {_reason(error)}") from error
            file._fail(_reason(error))
        except EventsDamaged as error:
            file.close()
            raise EventsDamaged(
                f"record={record.path!r}: {error}. To record here, move the file away; or record to another file"
            ) from error
        except BaseException:
            file.close()
            raise
        return file

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events. If that fails, the recording ends with the batches before."""
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            if self._descriptor >= 0:
                try:
                    self._begin()
                    self._append(batch.slice(start, _ROWS_AT_ONCE))
                except OSError as error:
                    self._fail(_reason(error))
                except EventsError as error:
                    self._fail(str(error))

    def close(self) -> None:
        """Release the file, which is removed if it is empty. Later calls do nothing."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            if not os.fstat(descriptor).st_size and _is_entry(descriptor, self._path):
                os.unlink(self._path)
            _release(descriptor)

    def _take(self) -> None:
        if len(self._stream.head) > MAX_METADATA:
            raise EventsError(f"record={self._path!r}: the plan of the pipeline is too large to be recorded")
        self._descriptor = _locked(self._path)
        self._size = os.fstat(self._descriptor).st_size
        if not os.access(os.path.dirname(self._path), os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "no file can be made beside it")

    def _examine(self) -> None:
        """Find out whether the file is to be continued, and set the number of the attempt. Changes nothing."""
        job, last = self._recorded.job, 0
        if self._size:
            reader = self._existing = RecordingReader(self._descriptor, self._path)
            _refuse_other_pipeline(self._path, reader.recorded, self._recorded)
            last = _last_attempt(reader) if reader.recorded.job == job else 0
        with _older(self._path + OLDER, self._recorded) as older:
            if not last and older is not None and older.recorded.job == job:
                last = _last_attempt(older)
        self.attempt = 1 + last

    def _begin(self) -> None:
        """Continue the file, or begin a new one, unless this was done before."""
        if self._has_begun:
            return
        self._has_begun, reader, recorded = True, self._existing, self._recorded
        if reader is None:
            self._size = _write(self._descriptor, self._stream.head, 0)
        elif (reader.recorded.job, reader.recorded.plan) != (recorded.job, recorded.plan):
            self._rotate()
        else:
            self._size, self._has_events = reader.end, reader.end > len(reader.head)
            os.ftruncate(self._descriptor, self._size)

    def _append(self, rows: pa.RecordBatch) -> None:
        data = self._stream.encode(rows)
        if self._has_events and self._size + len(data) > self._half:
            self._stream = _Stream(self._schema)
            self._rotate()
            data = self._stream.encode(rows)
        if not self._has_events:  # the names, which come first, may take half alone
            self._half = max(self._half, 2 * (self._size + len(data)))
        self._size = _write(self._descriptor, data, self._size)
        self._has_events = True

    def _rotate(self) -> None:
        """Make the file the older one, and begin a new one.

        Raises: EventsError if a file of another job has the name of the older one by now; OSError.
        """
        if _is_locked(self._path + OLDER):
            raise _in_use(self._path + OLDER)
        with _older(self._path + OLDER, self._recorded):
            pass
        temporary = f"{self._path}.{secrets.token_hex(6)}{_TEMPORARY}"
        descriptor = os.open(temporary, _FLAGS | os.O_EXCL, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = _write(descriptor, self._stream.head, 0)
            os.replace(self._path, self._path + OLDER)
            os.replace(temporary, self._path)
        except BaseException:
            os.close(descriptor)
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _release(self._descriptor)
        self._descriptor, self._size, self._has_events = descriptor, size, False

    def _fail(self, why: str) -> None:
        if self._has_begun:
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
        self.close()
        self._ended(f"the recording {self._path} ended, and the run continued: {why}")


class _Stream:
    """Encodes batches as messages of one stream, whose first message is ``head``."""

    def __init__(self, columns: pa.Schema) -> None:
        self._pieces = _Pieces()
        self._writer = pa.ipc.new_stream(pa.PythonFile(self._pieces, "w"), columns)
        self._is_begun = False
        self.head: bytes = columns.serialize().to_pybytes()

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Return the messages of ``batch``: dictionaries that changed, and rows."""
        self._writer.write_batch(batch)
        data = self._pieces.take()
        if not self._is_begun:
            assert data.startswith(self.head), "Arrow's writer begins with another message than the schema"
            data, self._is_begun = data[len(self.head) :], True
        return data


class _Pieces:
    """Collects what Arrow writes."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        """Keep a copy of ``data``."""
        self._pieces.append(bytes(data))
        return len(data)

    def writable(self) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def take(self) -> bytes:
        """Return all bytes since the last call."""
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


def _locked(path: str) -> int:
    """Open ``path``, made if it is missing, and lock it.

    Raises: EventsError if another job writes it, or if it is no file of one name; OSError.
    """
    while True:
        descriptor = os.open(path, _FLAGS, 0o666)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise EventsError(
                    f"record={path!r}: expected a file with one name, found other hard links or no regular file; "
                    "record to another path"
                )
            if not _lock(descriptor, fcntl.LOCK_EX):
                raise _in_use(path)
            if _is_entry(descriptor, path):  # and not the older file, which we would find locked by ourselves
                if _is_locked(path + OLDER):
                    raise _in_use(path)
                if _is_entry(descriptor, path):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # it was replaced before we locked it


def _in_use(path: str) -> EventsError:
    return EventsError(f"record={path!r}: another job writes this recording; wait for it, or record to another file")


def _lock(descriptor: int, operation: int) -> bool:
    """Return whether ``descriptor`` could be locked now."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        _release(descriptor)


def _release(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # close() alone would leave it to children forked meanwhile
    finally:
        os.close(descriptor)


def _is_entry(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


def _write(descriptor: int, data: bytes, offset: int) -> int:
    """Write ``data`` at ``offset``; return the offset after it."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
    return offset


def _last_attempt(reader: RecordingReader) -> int:
    """Return the last attempt of a recording; 0 if it has no events. Raises: EventsDamaged."""
    last = 0
    for batch in reader:
        if batch.num_rows:
            last = batch.column("attempt")[-1].as_py()
    return last


@contextmanager
def _older(path: str, recorded: RecordedJob) -> Iterator[RecordingReader | None]:
    """Open the older file, if there is one.

    Raises: EventsError if it is not a recording of this pipeline, because it would be replaced.
    """
    try:
        with open_recording(path) as descriptor:
            reader = RecordingReader(descriptor, path)
            _refuse_other_pipeline(path, reader.recorded, recorded)
            yield reader
    except FileNotFoundError:
        yield None


def _refuse_other_pipeline(path: str, found: RecordedJob, recorded: RecordedJob) -> None:
    if found.pipeline != recorded.pipeline:
        raise EventsError(
            f"{path} is a recording of pipeline {found.pipeline[:100]!r}, expected one of {recorded.pipeline!r}; move "
            "it away, or record to another file"
        )


def _reason(error: OSError) -> str:
    advice = _ADVICE.get(error.errno or 0, "")
    return f"{error.strerror or error}{advice and '; ' + advice}"
