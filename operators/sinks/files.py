"""A directory of files, written exactly once: rows appear when the checkpoint that holds them completes.

It is the same for every format: a ``FileFormat`` writes and reads one file, ``OutputDirectory`` commits files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Literal, get_args

import pyarrow as pa

from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.sink import Handle, TakenBack, TwoPhaseSink
from dataflow.contracts.source import Json
from dataflow.errors import ConfigurationError, DirectoryNameWarning, OutputExists, StoreError, user_frame
from dataflow.store.files import DISK, FileSystem, storing
from dataflow.store.urls import is_url
from dataflow.untrusted import excerpt
from operators.sinks.changed_columns import ChangedColumns, with_all_columns
from operators.sinks.commits import CommitLists, CommittedFile
from operators.sinks.directory import OutputDirectory
from operators.sinks.file_writer import FileWriter
from operators.sinks.formats import SUFFIXES, FileFormat, format_named
from operators.sinks.one_schema import check_appended, united
from operators.sinks.partitions import ByColumns, OneFolder, with_partitions

__all__ = ["ROW_GROUP_BYTES", "ROW_GROUP_ROWS", "FileSink", "IfExists", "chosen", "committed_files", "read_committed"]

ROW_GROUP_ROWS: Final = 122_880
ROW_GROUP_BYTES: Final = 64 << 20

IfExists = Literal["error", "append", "overwrite"]
_FILE_NAMES: Final = {".parquet", ".csv", ".json", ".jsonl", ".ndjson", ".arrow", ".ipc", ".feather", ".gz", ".zst"}


class FileSink(TwoPhaseSink):
    """A sink that writes files of ``format_`` to ``directory``, in row groups of ``rows`` rows or ``size`` bytes.

    Raises: ConfigurationError for a URL, an unknown ``if_exists``, or ``rows`` or ``size`` below 1.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        format_: FileFormat,
        *,
        if_exists: IfExists = "error",
        rows: int = ROW_GROUP_ROWS,
        size: int = ROW_GROUP_BYTES,
        partition_by: tuple[str, ...] = (),
        files: FileSystem = DISK,
    ) -> None:
        self._name = f"write_{format_.name}"
        chosen("if_exists", if_exists, IfExists)
        if rows < 1 or size < 1:
            raise ConfigurationError(
                f"{self._name}: a row group needs at least 1 row and 1 byte, got {rows} rows, {size} bytes"
            )
        if is_url(os.fspath(directory)):
            raise ConfigurationError(
                f"{self._name}({os.fspath(directory)!r}): object stores and other URLs are not supported, only local "
                "directories (without file://); write to one and copy the committed files"
            )
        _warn_of_file_name(Path(directory), self._name)
        self._directory = OutputDirectory(Path(directory), format_, files=files)
        self._format = format_
        self._if_exists = if_exists
        self._rows = rows
        self._size = size
        self._by = ByColumns(partition_by) if partition_by else None
        self._files = files

    def __repr__(self) -> str:
        return f"{self._name}({str(self._directory.path)!r})"

    @property
    def target(self) -> str:
        return os.path.realpath(self._directory.path)

    @property
    def readable(self) -> str:
        """A pattern, because most readers would also take the files in ``_commits`` and ``_staging``.

        Files of an earlier run may have another compression, and so another suffix. Then it matches these, too.
        """
        folders = ["*"] * len(self._by.columns) if self._by else []
        suffixes = self._directory.suffixes() | {self._format.suffix}
        ending = self._format.suffix if len(suffixes) == 1 else f"{SUFFIXES[self._format.name][0]}*"
        return str(self._directory.path.joinpath(*folders, f"*{ending}"))

    @property
    def read_hint(self) -> Sequence[str]:
        changes = self._directory.columns.all()
        if not changes:
            return ()
        ways = self._format.ways_to_read(self.readable, in_folders=self._by is not None)
        since = ", ".join([str(change.first) for change in changes])
        return [f"columns changed at checkpoint {since}", *[f"{reader}: {way}" for reader, way in ways.items()]]

    @property
    def fixed_settings(self) -> Mapping[str, Json]:
        folders: dict[str, Json] = {"partition_by": list(self._by.columns)} if self._by else {}
        return folders | dict(self._format.fixed_settings)

    def check(self, schema: pa.Schema) -> None:
        if self._by is not None:
            self._by.check(schema, self)
            schema = self._by.file_schema(schema)
        self._format.check(schema, self)

    def check_columns(self, before: Sequence[str], after: Sequence[str]) -> None:
        self._format.check_columns(self)

    def change_columns(self, checkpoint: int, columns: Sequence[str]) -> None:
        self._directory.columns.note(checkpoint + 1, columns)

    def writer(self, context: OperatorContext) -> FileWriter:
        return FileWriter(
            context,
            self._directory,
            row_group_rows=self._rows,
            row_group_bytes=self._size,
            format_=self._format,
            layout=self._by or OneFolder(),
            files=self._files,
        )

    def hold(self, run_id: str) -> AbstractContextManager[None]:
        return self._directory.hold(run_id)

    def check_handles(self, handles: Sequence[Handle]) -> None:
        self._directory.transactions(handles)

    def check_target(self, schema: pa.Schema) -> None:
        match self._if_exists:
            case "error":
                self._directory.refuse_output()
            case "append":
                what = f"{self._name}({str(self._directory.path)!r}, if_exists='append')"
                partition_by = self._by.columns if self._by else ()
                self._directory.refuse_other_formats()
                check_appended(what, self._directory.path, self._directory.newest_first(), schema, partition_by)
            case "overwrite":
                self._directory.refuse_strangers()

    def begin(self) -> None:
        match self._if_exists:
            case "error":
                self._directory.refuse_output()
            case "append":
                self._directory.keep_output()
                self._directory.columns.begin()
            case "overwrite":
                self._directory.remove_output()
                self._directory.columns.forget()
        self._directory.make()
        self._directory.clean_staging()

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        self._directory.commit(checkpoint, handles)

    def sweep(self) -> None:
        self._directory.sweep()

    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        """Commit ``handles``, delete all other staged files, and delete the output of later checkpoints.

        There are later ones if an older one was restored, because the newest was damaged or the user asked for it:
        their rows are produced again. Readers may have seen them, so the job warns. Raises: OutputExists if commit
        lists are gone; StoreError.
        """
        self._directory.refuse_other_formats(handles)
        self._directory.make()
        self._directory.verify(checkpoint, handles)
        self._directory.commit(checkpoint, handles)
        self._directory.refuse_unlisted(checkpoint)
        self._directory.clean_staging()
        self._directory.columns.take_back(checkpoint)
        return self._directory.take_back(checkpoint)

    def would_take_back(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        self._directory.refuse_other_formats(handles)
        return self._directory.rehearse(checkpoint, handles)

    def uncommitted(self, target: str, handles: Sequence[Handle]) -> Sequence[Handle] | None:
        """Return the handles that no commit list of the directory ``target`` names; None: it has no commit lists.

        Only these lists are read, because a checkpoint is an untrusted document that may name any directory. Raises:
        OutputExists if ``target`` is gone, and output is here that ``begin`` would delete: the directory may have been
        moved here.
        """
        if not os.path.isabs(target) or "\0" in target or not (Path(target) / "_commits").is_dir():
            if self._if_exists == "overwrite" and self._directory.commits.all():
                raise OutputExists(
                    f"{self._directory.path} holds output, and {excerpt(target)}, where the restored job wrote, is "
                    "gone: if it was moved here, move it back, because if_exists='overwrite' would delete its rows; "
                    f"if not, empty {self._directory.path}, or use another directory"
                )
            return None
        committed = {file for files in CommitLists(Path(target), self._files).all().values() for file in files}
        transactions = self._directory.transactions(handles)
        return [
            handle
            for handle, transaction in zip(handles, transactions, strict=True)
            if transaction.committed() not in committed
        ]


def _warn_of_file_name(directory: Path, what: str) -> None:
    """Warn of a directory that is named like a file, unless it exists."""
    if directory.suffix.lower() in _FILE_NAMES and not directory.is_dir():
        plain = directory.with_suffix("")
        if plain.suffix.lower() in _FILE_NAMES:  # as in x.csv.gz
            plain = plain.with_suffix("")
        warnings.warn(
            f"{what}({str(directory)!r}) writes a directory of this name, with files in it: a job writes many files. "
            f"Give it a name without a suffix, such as {str(plain)!r}",
            DirectoryNameWarning,
            stacklevel=user_frame(),
        )


def chosen(name: str, value: object, choices: Any) -> None:
    """Raise ConfigurationError unless ``value``, of parameter ``name``, is one of the literals ``choices``."""
    if value not in get_args(choices):
        raise ConfigurationError(f"{name}= must be one of {get_args(choices)}, got {value!r}")


def committed_files(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the files of all completely committed checkpoints, oldest checkpoint first.

    Args:
        directory: the directory that a sink writes to.

    Raises: StoreError if the commit lists cannot be read.
    """
    path = Path(directory)
    names = [committed.file for listed in CommitLists(path, DISK).all().values() for committed in listed]
    return [path / name for name in dict.fromkeys(names)]


def read_committed(directory: str | os.PathLike[str]) -> pa.Table:
    """Return the rows of all completely committed checkpoints, with the types they were written with.

    Values that a format cannot distinguish are read as one: JSON has no NaN, so it is read as null. If files store one
    type in different Arrow types, such as text and dictionaries of text, the result has a type for all of them. If a
    restore added columns or removed some, the result has all of them, those of the newest files first, with nulls in
    the rows of other files.

    Args:
        directory: the directory that a sink of any format writes to.

    Raises: StoreError if there are no rows (a sink writes no file for no rows), if a file is gone or cannot be read, or
        if two files, which it names, have different columns and no restore changed them.

    >>> import dataflow as flow, operators as op, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> pipeline = flow.Pipeline()
    >>> pipeline.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.write_csv(folder.name))
    >>> _ = pipeline.run()
    >>> read_committed(folder.name)["x"].to_pylist()
    [1, 2]
    >>> folder.cleanup()
    """
    path = Path(directory)
    commits = CommitLists(path, DISK).all()
    owners = {committed.file: (committed, checkpoint) for checkpoint, all_ in commits.items() for committed in all_}
    if not owners:
        raise StoreError(
            f"{directory}: no rows are committed there, so there is no schema either: the job has committed nothing "
            "yet, or had no rows (a sink writes no file for no rows)"
        )
    tables = [_read(path, committed, checkpoint) for committed, checkpoint in owners.values()]
    if changes := ChangedColumns(path / "_commits", DISK).all():
        tables = with_all_columns(tables, changes[-1].columns)
    return united([(path / file, table) for file, table in zip(owners, tables, strict=True)])


def _rows(path: Path, committed: CommittedFile) -> pa.Table:
    form = committed.form
    table = format_named(committed.format).read(path, form)
    if form is None or not form.levels:
        return table
    try:
        return with_partitions(table, committed.file.split("/")[:-1], form)
    except (ValueError, IndexError) as error:  # of the folders' text, or of forged places; Arrow's are ValueErrors, too
        raise pa.ArrowInvalid(f"its folders do not hold the columns {form.options}: {error}") from error


def _read(directory: Path, committed: CommittedFile, checkpoint: int) -> pa.Table:
    path = directory / committed.file
    owner = f"checkpoint {checkpoint}" if checkpoint else "an earlier job"
    listed = f"a file of {owner}, named in _commits/{checkpoint}.json"
    try:
        with storing("read", path):
            return _rows(path, committed)
    except StoreError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
        raise StoreError(
            f"{path}: {listed}, is gone; put it back, or read again if a job is replacing its output right now "
            "(committed_files() lists all that should be there)"
        ) from error
    except pa.ArrowException as error:
        raise StoreError(f"{path}: {listed}, is not whole ({error}); put the original back") from error
