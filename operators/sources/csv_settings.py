"""The settings of ``read_csv``, their checks before a file is opened, and what follows from them for text."""

from __future__ import annotations

import codecs
import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from dataflow.errors import ConfigurationError
from operators.sources.text_source import check_distinct
from operators.sources.time_parsers import check_formats

__all__ = ["CsvSettings", "QuotedNulls", "texts_of"]

_ROW_END: Final = re.compile(rb"\n|\r(?=[^\n])")

_LINES: Final = (
    "to read each line as one column, give column_names=['line'], quote=None and a delimiter that no line has, "
    "such as '\\x01'"
)

QuotedNulls = Literal["typed", "always", "never"]


def texts_of(what: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return a setting that is a list of texts. Raises: ConfigurationError for one text, or for other values."""
    if isinstance(values, str):
        raise ConfigurationError(f"read_csv: {what} must be a list of texts, got {values!r}; write [{values!r}]")
    wrong = [value for value in values if not isinstance(value, str)]
    if wrong:
        raise ConfigurationError(f"read_csv: {what} must be a list of texts, got {wrong[0]!r} among them")
    return tuple(values)


@dataclass(frozen=True, slots=True)
class CsvSettings:
    """See ``read_csv``. ``given`` names the columns whose types were given."""

    names: tuple[str, ...] | None
    skip_rows: int
    delimiter: str
    quote: str | None
    escape: str | None
    null_values: tuple[str, ...]
    quoted_nulls: QuotedNulls
    decimal_point: str
    timestamp_parsers: tuple[str, ...]
    encoding: str
    given: tuple[str, ...]

    def check(self) -> None:
        """Raises: ConfigurationError for a setting out of range, or two that contradict each other; SchemaMismatch."""
        self._check_marks()
        if self.skip_rows < 0:
            raise ConfigurationError(f"read_csv: skip_rows must be at least 0, got {self.skip_rows}")
        if not _is_text_encoding(self.encoding):
            raise ConfigurationError(
                f"read_csv: encoding must be 'utf-8' or one of a byte per character that contains ASCII, such as "
                f"'latin-1', got {self.encoding!r}; convert the files first, such as with iconv"
            )
        if self.names is not None:
            check_distinct("read_csv(column_names=)", self.names)
        self._check_null_values()
        check_formats(self.timestamp_parsers)

    def _check_marks(self) -> None:
        for what in ("delimiter", "quote", "escape", "decimal_point"):
            value = getattr(self, what)
            optional = what in ("quote", "escape")
            if not (value is None and optional) and not (value and len(value) == 1 and value.isascii()):
                raise ConfigurationError(f"read_csv: {what} must be one ASCII character, got {value!r}")
            if value in ("\r", "\n", "\0"):
                advice = _LINES if what == "delimiter" else "leave it out"
                raise ConfigurationError(f"read_csv: {what} must be no line end and not NUL, got {value!r}; {advice}")
        marks = [mark for mark in (self.delimiter, self.quote, self.escape) if mark is not None]
        if len({*marks}) < len(marks):
            raise ConfigurationError(
                f"read_csv: delimiter, quote and escape must differ, got {self.delimiter!r}, {self.quote!r} and "
                f"{self.escape!r}; a quote that is doubled within quotes needs no escape"
            )

    def _check_null_values(self) -> None:
        if self.quoted_nulls not in get_args(QuotedNulls):
            raise ConfigurationError(
                f"read_csv: quoted_nulls must be one of {list(get_args(QuotedNulls))}, got {self.quoted_nulls!r}"
            )
        for marker in self.null_values:
            if self.escape is not None and self.escape in marker:
                raise ConfigurationError(
                    f"read_csv: null_values has {marker!r}, but escape={self.escape!r} is taken out of a field before "
                    f"it is compared, so no field would be null; leave escape= out if only this marker has the "
                    f"character, or write the files with another null marker"
                )

    @property
    def _utf8(self) -> bool:
        return codecs.lookup(self.encoding).name in ("utf-8", "ascii")

    def utf8(self, data: bytes) -> bytes:
        """Return ``data`` in UTF-8. Bytes that are not text do not change, so that Arrow reports them."""
        if data.startswith(BOM_UTF8) and self._utf8:
            return BOM_UTF8 + data  # Arrow drops one, which is part of the first value
        if self._utf8:
            return data
        return data.decode(self.encoding, "surrogateescape").encode("utf-8", "surrogateescape")

    def text(self, data: bytes) -> str:
        return data.decode("utf-8" if self._utf8 else self.encoding, "backslashreplace").rstrip("\r\n")

    def row_ends(self, data: bytes, ends: Any) -> tuple[int, int, bool]:
        from operators.kernels.csv_rows import row_ends

        marks = [-1 if mark is None else ord(mark) for mark in (self.delimiter, self.quote, self.escape)]
        rows, last, opened = row_ends(np.frombuffer(data, np.uint8), *marks, ends)
        return rows, last, bool(opened)

    def cut(self, data: bytes, final: bool) -> int:  # noqa: FBT001  the shape of blocks.Cut
        if not self._special(data) and (whole := len(data) if final else data.rfind(b"\n") + 1):
            return whole
        _, last, opened = self.row_ends(data, np.empty(0, np.int64))
        return len(data) if final and not opened else last

    def _special(self, data: bytes) -> bool:
        """Return whether some newlines may end no row."""
        return any([mark is not None and mark.encode() in data for mark in (self.quote, self.escape)])

    def unmarked(self, data: bytes) -> bytes:
        """Return ``data`` without quotes and escapes, which may occur between the characters of a value."""
        marks = "".join(mark for mark in (self.quote, self.escape) if mark is not None)
        return data.translate(None, marks.encode()) if self._special(data) else data

    def ends(self, data: bytes) -> list[int]:
        """Return the offsets at which rows end, the end of ``data`` included. Text without quotes needs no kernel."""
        if not self._special(data):
            found = [end.end() for end in _ROW_END.finditer(data)]
            last = found[-1] if found else 0
        else:
            places = np.empty(data.count(b"\n") + data.count(b"\r") + 1, np.int64)
            rows, last, _ = self.row_ends(data, places)
            found = places[:rows].tolist()
        return found if last == len(data) else [*found, len(data)]


def _is_text_encoding(name: str) -> bool:
    """Return whether ``name`` is UTF-8, or has a byte per character and ASCII as its lower half (so newlines too)."""
    try:
        if codecs.lookup(name).name == "utf-8":
            return True
        lower = bytes(range(128))
        every = bytes(range(256)).decode(name, "replace")
    except (LookupError, UnicodeError):
        return False
    return len(every) == 256 and lower.decode(name) == lower.decode("ascii")
