"""Arrow IPC files as a source: the file format (also called Feather 2) and the stream format.

A position is ``{"batch", "row"}``. To restore one, a reader of a file seeks to the batch; a reader of a stream reads
all batches before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec
import pyarrow as pa
from pyarrow import ipc

from dataflow.contracts.source import END, EndOfSplit, InputIdentity, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import CheckpointDamaged, SchemaMismatch, SourceError, check_count
from dataflow.state.dictionaries import wide_schema
from dataflow.untrusted import Count, parsed
from operators.sources.arrow import conformed, plain_field
from operators.sources.files import Files
from operators.sources.known_file import UNREADABLE, KnownFiles
from operators.sources.paths import SUFFIXES, Paths, expand
from operators.sources.text_source import check_distinct, check_known, selected

__all__ = ["IpcSource", "read_ipc"]

_MAGIC: Final = b"ARROW1"
_LABEL: Final = "read_ipc"


def read_ipc(
    paths: Paths, *, columns: Sequence[str] | None = None, batch_rows: int = 65_536, filesystem: Any = None
) -> IpcSource:
    """Read Arrow IPC files, in order of their names; each file is one split, read by one subtask.

    Files are in the file format (``.arrow``, Feather 2) or the stream format, which their first bytes tell; their
    buffers may be compressed. Dictionary columns get int32 indices, view types become plain text or binary,
    UUIDs their text, other extension types their storage; dictionaries inside nested columns do not change. Batches are
    those of the file, in slices of ``batch_rows``.

    Memory: one batch of the file.

    Args:
        paths: as in ``read_csv``.
        columns: the columns to read; None: all.
        batch_rows: the most rows of a batch.
        filesystem: as in ``read_csv``.

    Returns: a bounded, replayable source.

    Raises: SourceError for a missing or unreadable file, or one that is not Arrow IPC; SchemaMismatch if files differ
    in their columns or types; UnknownColumn; ConfigurationError for settings out of range.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = pa.table({"x": [1, 2, 3]})
    >>> with ipc.new_stream(f"{folder.name}/a.arrows", table.schema) as out:
    ...     out.write_table(table)
    >>> read_ipc(folder.name).schema.names
    ['x']
    >>> folder.cleanup()
    """
    check_count(f"{_LABEL}: batch_rows", batch_rows)
    where, found = expand(paths, SUFFIXES["read_ipc"], filesystem)
    files = KnownFiles.look(_LABEL, found, where)
    schemas = [_schema(path, where, columns) for path in found]
    check_known(f"{_LABEL}({found[0]!r})", columns or (), schemas[0].names)
    names = schemas[0].names if columns is None else columns
    for path, schema in zip(found[1:], schemas[1:], strict=True):
        _check_same(found[0], selected(schemas[0], names), path, schema, columns)
    return IpcSource(files, selected(schemas[0], names), batch_rows)


read_ipc.suffixes = SUFFIXES["read_ipc"]  # type: ignore[attr-defined]  # for ``watch``


class IpcSource(Source):
    """The source that ``read_ipc`` makes. Picklable if its filesystem is."""

    def __init__(self, files: KnownFiles, schema: pa.Schema, batch_rows: int) -> None:
        self.blocking = files.where.remote
        self._files = files
        self._schema = schema
        self._batch_rows = batch_rows

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def splits(self) -> tuple[Split, ...]:
        """Return a split for each file."""
        return tuple(file.split for file in self._files.files.values())

    def check(self, split: Split) -> None:
        self._files.check(split)

    def identified_by(self, identity: InputIdentity) -> IpcSource:
        return IpcSource(self._files.identified_by(identity), self._schema, self._batch_rows)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        file = self._files.check(split)
        return _IpcReader(file.path, self._files.where, self._schema, offset, self._batch_rows)

    def select(self, columns: Sequence[str]) -> IpcSource:
        check_known(repr(self), columns, self._schema.names)
        return IpcSource(self._files, selected(self._schema, columns), self._batch_rows)

    def __repr__(self) -> str:
        return repr(self._files)


class _Offset(msgspec.Struct):
    """A position: a batch, and how many of its rows were emitted."""

    batch: Count = 0
    row: Count = 0


class _IpcReader(SplitReader):
    def __init__(self, path: str, where: Files, schema: pa.Schema, offset: Json, batch_rows: int) -> None:
        at = _Offset() if offset is None else parsed(_Offset, offset, f"{_LABEL}: the position in {path!r}")
        self._path = path
        self._schema = schema
        self._batch_rows = batch_rows
        self._next: int = at.batch  # the batch to be read
        self._row = 0
        self._rows: pa.RecordBatch | None = None
        try:
            self._opened = _Opened.open(path, where, schema.names)
            self._opened.skip(self._next)
            if at.row:
                self._read()
                self._give(at.row)
        except StopIteration as error:
            self.close()
            raise CheckpointDamaged(f"{_LABEL}: {path!r} has no row {at.row} of batch {at.batch}") from error
        except UNREADABLE as error:
            raise self._damaged(error) from error

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        while self._rows is None:
            try:
                self._read()
            except StopIteration:
                return END
            except UNREADABLE as error:
                raise self._damaged(error) from error
        return self._give(min(max_rows, self._batch_rows - self._row % self._batch_rows))

    def _read(self) -> None:
        batch = self._opened.batch(self._next)
        self._next, self._row = self._next + 1, 0
        if batch.num_rows:
            self._rows = conformed(batch.select(self._schema.names), self._schema)

    def _give(self, rows: int) -> pa.RecordBatch:
        if self._rows is None:  # the restored position is after a batch that has no rows
            raise StopIteration
        batch, rest = self._rows.slice(0, rows), self._rows.slice(rows)
        self._row += batch.num_rows
        self._rows = rest if rest.num_rows else None
        return batch

    @property
    def offset(self) -> Json:
        if self._rows is None:
            return {"batch": self._next, "row": 0}
        return {"batch": self._next - 1, "row": self._row}

    @property
    def mid_batch(self) -> bool:
        return self._rows is not None and self._row % self._batch_rows > 0

    def close(self) -> None:
        self._rows = None
        self._opened.raw.close()

    def _damaged(self, error: Exception) -> SourceError:
        return SourceError(
            f"{_LABEL}: {self._path!r} is damaged at batch {self._next}: {error}; restore the file from a good copy"
        )


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open file in one of the two formats, of which some columns are read."""

    raw: Any
    reader: Any
    seekable: bool

    @classmethod
    def open(cls, path: str, where: Files, columns: Sequence[str] | None = None) -> _Opened:
        raw = where.handle(path)
        seekable = raw.read(len(_MAGIC)) == _MAGIC
        raw.seek(0)
        opening = ipc.open_file if seekable else ipc.open_stream
        opened = opening(raw)
        if columns is not None and opened.schema.names != list(columns):
            chosen = frozenset(columns)
            indices = [at for at, name in enumerate(opened.schema.names) if name in chosen]
            raw.seek(0)
            opened = opening(raw, options=ipc.IpcReadOptions(use_threads=False, included_fields=indices))
        return cls(raw, opened, seekable)

    def skip(self, batches: int) -> None:
        for _ in range(0 if self.seekable else batches):
            self.reader.read_next_batch()

    def batch(self, number: int) -> pa.RecordBatch:
        """Return a batch by its number, from 0. Raises: StopIteration after the last one."""
        if not self.seekable:
            return self.reader.read_next_batch()
        if number >= self.reader.num_record_batches:
            raise StopIteration
        return self.reader.get_batch(number)


def _schema(path: str, where: Files, columns: Sequence[str] | None) -> pa.Schema:
    """Return the columns of a file; the ones that are read have the types of the batches."""
    try:
        opened = _Opened.open(path, where)
        found = opened.reader.schema
        opened.raw.close()
        check_distinct(f"{_LABEL}({path!r})", found.names)
    except (UnicodeDecodeError, *UNREADABLE) as error:  # names of columns that are not UTF-8
        raise SourceError(f"{_LABEL}: cannot read {path!r} as Arrow IPC: {error}; replace or remove it") from error
    chosen = frozenset(found.names if columns is None else columns)
    read = [plain_field(field) if field.name in chosen else field for field in found]
    return wide_schema(pa.schema([pa.field(field.name, field.type) for field in read]))


def _check_same(first: str, expected: pa.Schema, path: str, found: pa.Schema, columns: Sequence[str] | None) -> None:
    types_ = dict(zip(found.names, found.types, strict=True))
    differing = [
        f"{field.name!r} is {field.type} in the first and "
        + (f"{types_[field.name]} in the second" if field.name in types_ else "missing in the second")
        for field in expected
        if types_.get(field.name) != field.type
    ]
    if columns is None:
        first_names = frozenset(expected.names)
        differing += [f"{name!r} is missing in the first" for name in found.names if name not in first_names]
    if differing:
        raise SchemaMismatch(
            f"{_LABEL}: {first!r} and {path!r} differ: {'; '.join(differing)}; "
            f"read them as two sources, or choose the columns they share with columns=[...]"
        )
