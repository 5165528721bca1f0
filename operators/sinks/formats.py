"""The interface of a file format to the file sink: open, write and close one file, and read it back.

Everything else (staging, names, commits, recovery) is the same for all formats: see ``files``, ``directory`` and
``file_writer``. A commit list has the *form* of each file; without one it is Parquet.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import msgspec
import pyarrow as pa

from dataflow.errors import SchemaMismatch, StoreError, repeated_names
from dataflow.state.dictionaries import wide_schema

__all__ = ["MAX_FOLDER", "SUFFIXES", "FileFormat", "Form", "TableWriter", "encoded", "format_named", "is_folder"]
__all__ += ["polars_by_name", "quoted"]

SUFFIXES: Final = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "json": (".jsonl", ".jsonl.gz", ".jsonl.zst"),
    "ipc": (".arrow",),
}
"""The suffixes that files of each format may have."""

MAX_FOLDER: Final = 255
"""Bytes of a folder's name: the limit of the usual file systems."""

_HOMES: Final = {
    "parquet": ("operators.sinks.parquet", "ParquetFormat"),
    "csv": ("operators.sinks.csv", "CsvFormat"),
    "json": ("operators.sinks.json_lines", "JsonLinesFormat"),
    "ipc": ("operators.sinks.ipc", "IpcFormat"),
}


_FOLDER: Final = re.compile(r"(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})+=(?:[A-Za-z0-9_.~-]|%[0-9A-F]{2})*")


def is_folder(name: str) -> bool:
    """Return whether ``name`` may be a partition folder; none of these is ``..``, because each has an equals sign.

    >>> is_folder("day=2024-02-29"), is_folder("s=a%2Fb"), is_folder("s=a/b"), is_folder("..")
    (True, True, False, False)
    """
    return _FOLDER.fullmatch(name) is not None and len(name) <= MAX_FOLDER


class Form(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """How to read a file: its format, and the facts that the file itself does not have.

    ``schema`` (base64 of an Arrow schema message) is for formats without types of their own, and for the columns that
    partition folders hold; each of these has an option ``partition`` with its place among all columns.
    """

    format: str
    schema: str = ""
    options: tuple[tuple[str, str], ...] = ()

    @property
    def levels(self) -> int:
        """The number of partition folders above the file."""
        return [name for name, _ in self.options].count("partition")

    def arrow_schema(self) -> pa.Schema:
        """Return the schema that was written."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))


class TableWriter(Protocol):
    """A file that is being written."""

    def write(self, table: pa.Table) -> pa.Table | None:
        """Append ``table``. Return None, or all of its rows if they must begin another file.

        A new file accepts any table.
        """
        ...

    def close(self) -> None:
        """Write the end of the file. The target stays open."""
        ...


class FileFormat(ABC):
    """A format with its options. Commit lists have its ``name``, messages its ``title``."""

    name: ClassVar[str]
    title: ClassVar[str]

    @property
    def suffix(self) -> str:
        """The suffix of its files, with the dot."""
        return SUFFIXES[self.name][0]

    @property
    def fixed_settings(self) -> Mapping[str, str | bool]:
        """The options, other than defaults, without which a file cannot be read: all files of a job have the same."""
        return {}

    @abstractmethod
    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        """Return a writer into ``target``, which has ``write``; dictionaries in ``schema`` are wide."""

    def form(self, schema: pa.Schema) -> Form | None:
        """Return how to read files of ``schema``; None: they are Parquet, which describes itself."""
        return Form(self.name)

    @staticmethod
    @abstractmethod
    def read(path: Path, form: Form | None) -> pa.Table:
        """Return the rows of a file that was written in ``form``. Raises: OSError, pa.ArrowException."""

    @staticmethod
    def schema(path: Path, form: Form | None) -> pa.Schema:
        """Return the columns of a file that was written in ``form``. Raises: OSError, pa.ArrowException."""
        assert form is not None, f"{path} is listed without its columns"
        return form.arrow_schema()

    def check_columns(self, sink: object) -> None:
        """Raise CheckpointMismatch, naming ``sink``, if files of one directory cannot have other columns."""

    def ways_to_read(self, pattern: str, *, in_folders: bool) -> Mapping[str, str]:
        """Return the code that reads files with other columns each, by program.

        ``pattern`` finds the files. ``in_folders``: their folders hold columns.
        """
        folders = ", hive_partitioning=True" if in_folders else ""
        return {"polars": polars_by_name(pattern, f"pl.scan_{self.name}(f{folders})", "diagonal")}

    def check(self, schema: pa.Schema, sink: object) -> None:
        """Raise SchemaMismatch, naming ``sink`` and the column, if rows of ``schema`` cannot be written."""
        if not schema.names:
            raise SchemaMismatch(f"{sink!r}: rows have no columns, which {self.title} cannot hold; select at least one")
        if repeated := repeated_names(schema.names):
            raise SchemaMismatch(f"{sink!r}: columns {repeated} appear more than once; rename them")
        for field in schema:
            alone = wide_schema(pa.schema([field]))
            try:
                writer = self.open(pa.BufferOutputStream(), alone)
                writer.write(pa.Table.from_batches([], alone))
                writer.close()
            except pa.ArrowException as error:
                raise SchemaMismatch(
                    f"{sink!r}: {self.title} cannot hold column {field.name!r} of type {field.type} ({error}); "
                    "cast it, or leave it out with select()"
                ) from error


def encoded(schema: pa.Schema) -> str:
    """Return ``schema`` as a ``Form`` stores it."""
    return base64.b64encode(schema.remove_metadata().serialize()).decode("ascii")


def polars_by_name(pattern: str, scan: str, how: str) -> str:
    """Return the code with which polars reads files that have several columns, by their names.

    >>> polars_by_name("out/*.parquet", "pl.scan_parquet(f)", "diagonal")
    "pl.concat([pl.scan_parquet(f) for f in sorted(glob.glob('out/*.parquet'))], how='diagonal').collect()"
    """
    return f"pl.concat([{scan} for f in sorted(glob.glob({pattern!r}))], how={how!r}).collect()"


def quoted(pattern: str) -> str:
    """Return text as a literal of SQL.

    >>> quoted("it's/*.csv")
    "'it''s/*.csv'"
    """
    escaped = pattern.replace("'", "''")
    return f"'{escaped}'"


def format_named(name: str) -> type[FileFormat]:
    """Return the format that a commit list calls ``name``. Raises: StoreError for an unknown one."""
    if name not in _HOMES:
        raise StoreError(
            f"files of format {name!r} are unknown here (known: {', '.join(_HOMES)}); read with a newer version"
        )
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
