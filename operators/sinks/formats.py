"""What a file format has to know so that the file sink can write it: how to open, fill and close one, and read it back.

Everything else (staging, names, commits, recovery) is the same for all formats and stands in ``files``, ``directory``
and ``file_writer``. A commit list says of each file in which *form* it is; nothing said means Parquet.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import msgspec
import pyarrow as pa

from dataflow.errors import SchemaMismatch, StoreError
from dataflow.state.dictionaries import wide_schema

__all__ = ["SUFFIXES", "FileFormat", "Form", "TableWriter", "encoded", "format_named"]

SUFFIXES: Final = {
    "parquet": (".parquet",),
    "csv": (".csv", ".csv.gz", ".csv.zst"),
    "json": (".jsonl", ".jsonl.gz", ".jsonl.zst"),
    "ipc": (".arrow",),
}
"""How the files of each format may end."""

_HOMES: Final = {
    "parquet": ("operators.sinks.parquet", "ParquetFormat"),
    "csv": ("operators.sinks.csv", "CsvFormat"),
    "json": ("operators.sinks.json_lines", "JsonLinesFormat"),
    "ipc": ("operators.sinks.ipc", "IpcFormat"),
}


class Form(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """How a file is to be read: its format, and what the file itself does not say.

    ``schema`` (base64 of an Arrow schema message) stands where a format has no types of its own.
    """

    format: str = "parquet"
    schema: str = ""
    options: tuple[tuple[str, str], ...] = ()

    def arrow_schema(self) -> pa.Schema:
        """The schema that was written."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))


class TableWriter(Protocol):
    """One file that is being written."""

    def write(self, table: pa.Table) -> pa.Table | None:
        """Add ``table``. Answers what it could not take, to begin another file with: nothing, or all of the rows.

        A new file takes any table.
        """
        ...

    def close(self) -> None:
        """Write what belongs at the end. The target stays open."""
        ...


class FileFormat(ABC):
    """A format with its options. ``name`` is what commit lists say, ``title`` what messages say."""

    name: ClassVar[str]
    title: ClassVar[str]

    @property
    def suffix(self) -> str:
        """How its files end, with the dot."""
        return SUFFIXES[self.name][0]

    @abstractmethod
    def open(self, target: Any, schema: pa.Schema) -> TableWriter:
        """A writer into ``target``, which has ``write``; dictionaries in ``schema`` are wide."""

    def form(self, schema: pa.Schema) -> Form:
        """How files of ``schema`` are to be read."""
        return Form(self.name)

    @staticmethod
    @abstractmethod
    def read(path: Path, form: Form) -> pa.Table:
        """The rows of a file. Raises: OSError, pa.ArrowException."""

    def check(self, schema: pa.Schema, sink: object) -> None:
        """Raise SchemaMismatch, naming ``sink`` and the column, where rows of ``schema`` cannot be written."""
        if not schema.names:
            raise SchemaMismatch(f"{sink!r}: rows have no columns, and {self.title} cannot count rows without one")
        repeated = sorted({name for name in schema.names if schema.names.count(name) > 1})
        if repeated:
            raise SchemaMismatch(f"{sink!r}: columns {repeated} appear more than once; rename them")
        for field in schema:
            alone = wide_schema(pa.schema([field]))
            try:
                writer = self.open(pa.BufferOutputStream(), alone)
                writer.write(pa.Table.from_batches([], alone))
                writer.close()
            except pa.ArrowException as error:
                raise SchemaMismatch(
                    f"{sink!r}: {self.title} has no place for column {field.name!r} of type {field.type} ({error}); "
                    "cast it, or leave it out with select()"
                ) from error


def encoded(schema: pa.Schema) -> str:
    """``schema`` as a ``Form`` keeps it."""
    return base64.b64encode(schema.remove_metadata().serialize()).decode("ascii")


def format_named(name: str) -> type[FileFormat]:
    """The format that a commit list calls ``name``. Raises: StoreError for one that this version does not know."""
    if name not in _HOMES:
        raise StoreError(
            f"files of format {name!r} are unknown here (known: {', '.join(_HOMES)}); read with a newer version"
        )
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
