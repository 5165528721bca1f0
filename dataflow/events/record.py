"""Where and how finely a run is recorded: the argument ``record=`` of ``run()`` and ``start()``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from dataflow.clock import Duration, exact_duration_text, microseconds
from dataflow.errors import ConfigurationError

__all__ = ["OLDER", "Record", "is_path", "refuse_place"]

OLDER: Final = ".1"
"""The suffix of the older half of a recording."""

_LEAST_EVERY: Final = 1_000
_MOST_EVERY: Final = 1_000_000
"""Microseconds between two samples without a recording, too."""
_LEAST_LIMIT: Final = 1_000_000
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)\s*")
_UNITS: Final = {
    "B": 1,
    **{f"{letter}B": 1_000**power for power, letter in enumerate("kMGT", 1)},
    **{f"{letter}iB": 1_024**power for power, letter in enumerate("KMGT", 1)},
    "KB": 1_000,
}
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


@dataclass(frozen=True, slots=True, init=False)
class Record:
    """A file that gets the events of a run while it runs, for ``flow.read_events`` and ``barrierflow timeline``.

    The file is an Arrow IPC stream. A later run of the same job (one that resumes from its checkpoints) appends. When
    it reaches half of ``limit``, or a new job of the same pipeline begins, it becomes the file with the suffix ``.1``,
    in place of an older one, and a new file begins.

    Args:
        path: the file, in an existing local directory that is neither the directory of checkpoints nor of a sink.
        every: time between two samples of what a task did, from 1 ms to 1 s. The attribute has microseconds.
        limit: bytes that both files take at most, such as ``"256MB"``, or a number; at least 1 MB. If the names of
            tasks and channels take more than a quarter of it, four times these. The attribute has bytes.

    Raises: ConfigurationError for a value out of range.

    >>> record = Record("events.arrow", every="20ms", limit="1GiB")
    >>> record.every, record.limit
    (20000, 1073741824)
    >>> Record("events.arrow", limit="256")
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: Record(limit=) must be a size such as '256MB' or '1GiB', or a number of bytes; \
got '256'
    """

    path: str
    every: int
    limit: int

    def __init__(self, path: str | os.PathLike[str], every: Duration = "10ms", limit: str | int = "256MB") -> None:
        step = microseconds(every, "Record(every=)")
        if not _LEAST_EVERY <= step <= _MOST_EVERY:
            raise ConfigurationError(f"Record(every=) must be from 1ms to 1s, got {exact_duration_text(step)}")
        size = _bytes(limit)
        if size < _LEAST_LIMIT:
            raise ConfigurationError(f"Record(limit=) must be at least 1MB, got {limit!r}")
        object.__setattr__(self, "path", _path(path))
        object.__setattr__(self, "every", step)
        object.__setattr__(self, "limit", size)

    @staticmethod
    def of(record: object) -> Record | None:
        """Return the settings for an argument ``record=``, which may be only the path.

        Raises: ConfigurationError if it is something else.

        >>> Record.of("events.arrow").path
        'events.arrow'
        """
        return record if record is None or isinstance(record, Record) else Record(_path(record))


def is_path(name: str) -> bool:
    """Return whether a text can be the path of a file: it has no NUL, and the file system can encode it.

    >>> is_path("größe"), is_path(""), is_path(chr(0)), is_path(chr(0xD800))
    (True, False, False, False)
    """
    try:
        return b"\0" not in os.fsencode(name) != b""
    except UnicodeEncodeError:
        return False


def _path(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise ConfigurationError(
            f"record= must be the path of a file, Record(path, ...) or None, got {type(path).__name__}"
        )
    name = os.fspath(path)
    if not isinstance(name, str) or not is_path(name):
        raise ConfigurationError(f"record= must be the path of a file, got {name!r}")
    if _URL.match(name):
        raise ConfigurationError(f"record= must be a local path, got {name!r}; record to a local file and copy it")
    return name


def _bytes(limit: object) -> int:
    if isinstance(limit, int) and not isinstance(limit, bool):
        return limit
    match = _SIZE.fullmatch(limit) if isinstance(limit, str) else None
    if match is None:
        raise ConfigurationError(
            f"Record(limit=) must be a size such as '256MB' or '1GiB', or a number of bytes; got {limit!r}"
        )
    return int(Fraction(match[1]) * _UNITS[match[2]])


def refuse_place(record: Record, checkpoints: str | None, outputs: Iterable[str]) -> None:
    """Refuse a recording whose file cannot be made, or lies in a directory that the job owns.

    Args:
        record: the recording.
        checkpoints: the directory of the checkpoints; None: there is none.
        outputs: the directories that sinks write to.

    Raises: ConfigurationError.

    >>> refuse_place(Record("missing/events.arrow"), None, [])
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: record='missing/events.arrow': there is no such directory; create it, or \
record to another one
    >>> refuse_place(Record("out/events.arrow"), None, ["out"])
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: record='out/events.arrow': expected a file outside of the output directory of \
a sink, 'out'; record to another directory
    """
    path = os.path.realpath(record.path)
    places = [] if checkpoints is None else [("the checkpoint directory", checkpoints)]
    for what, place in [*places, *[("the output directory of a sink", output) for output in outputs]]:
        directory = os.path.realpath(place)
        if path == directory or path.startswith(os.path.join(directory, "")):
            raise ConfigurationError(
                f"record={record.path!r}: expected a file outside of {what}, {place!r}; record to another directory"
            )
    if os.path.isdir(path):
        raise ConfigurationError(f"record={record.path!r}: it is a directory; name a file in it")
    if not os.path.isdir(os.path.dirname(path)):
        raise ConfigurationError(
            f"record={record.path!r}: there is no such directory; create it, or record to another one"
        )
    if not os.access(os.path.dirname(path), os.W_OK | os.X_OK):
        raise ConfigurationError(
            f"record={record.path!r}: the directory cannot be written; check who owns it, or record to another one"
        )
