"""Read the recording of a run: also while it is written, and after its process was killed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dataflow.arrow_values import to_numbers
from dataflow.errors import ConfigurationError, EventsDamaged, EventsError
from dataflow.events.kinds import Kind, schema
from dataflow.events.record import OLDER, is_path
from dataflow.events.recording_reader import RecordingReader, open_recording
from dataflow.views.events import Events

__all__ = ["read_events"]

_ORDER: Final = [("attempt", "ascending"), ("time", "ascending"), ("seq", "ascending")]


def read_events(path: str | os.PathLike[str]) -> Events:
    """Read the events that ``record=`` stores in a file.

    A job may be writing it now, or may have been killed: then the events are those up to the last whole batch, which is
    written every 250 ms. The older file beside it (``events.arrow.1``) is read, too, if it is of the same job; its
    attempts may have had other tasks, because the plan is that of the newest file. The files are untrusted: damaged
    and forged ones are refused.

    Args:
        path: the file.

    Returns: the events. ``missed`` counts those that were recorded and are in neither file, as far as numbers that
        are left out show.

    Raises: EventsError if there is no such file, or it cannot be read; EventsDamaged if it is damaged, or no recording;
        ConfigurationError if ``path`` is no path.

    >>> read_events("missing.arrow")
    Traceback (most recent call last):
    dataflow.errors.EventsError: there is no recording missing.arrow: check the path
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else path
    if not isinstance(name, str) or not is_path(name):
        raise ConfigurationError(f"read_events() expects the path of a recording, got {name!r}")
    with ExitStack() as files:
        # The newest file is opened first: if a job begins another one now, the older one is this file.
        newest, older = _open(files, name), _open(files, name + OLDER)
        if newest is not None and older is not None and os.path.samestat(os.fstat(newest), os.fstat(older)):
            older = None
        if newest is not None and not os.fstat(newest).st_size:
            if older is None:
                raise EventsError(f"the recording {name} has no events yet; read it again in a second")
            newest = None  # a job has just made it
        if newest is None and older is None:
            raise EventsError(f"there is no recording {name}: check the path")
        readers = []
        if older is not None:
            readers.append(_older(older, name))
        if newest is not None:
            readers.append(RecordingReader(newest, name))
        return _events([reader for reader in readers if _job(reader) == _job(readers[-1])], name)


def _open(files: ExitStack, path: str) -> int | None:
    try:
        return files.enter_context(open_recording(path))
    except FileNotFoundError:
        return None


def _older(descriptor: int, name: str) -> RecordingReader:
    try:
        return RecordingReader(descriptor, name + OLDER)
    except EventsError as error:
        raise EventsDamaged(f"{error}; move {name + OLDER} away to read {name} alone") from error


def _job(reader: RecordingReader) -> tuple[str, str]:
    return reader.recorded.pipeline, reader.recorded.job


def _events(readers: Sequence[RecordingReader], path: str) -> Events:
    tables = [pa.Table.from_batches(list(reader), schema()).unify_dictionaries().combine_chunks() for reader in readers]
    metadata = readers[-1].recorded.metadata()
    attempts = [to_numbers(table.column("attempt")) for table in tables if table.num_rows]
    if any(one[-1] > other[0] for one, other in pairwise(attempts)):
        raise EventsDamaged(f"the recording {path} is damaged: attempts of {path}{OLDER} come after its own")
    missed = _missed(tables)
    table = pa.concat_tables(tables).unify_dictionaries().sort_by(_ORDER)
    return Events(table.replace_schema_metadata(metadata), missed)


def _missed(tables: Sequence[pa.Table]) -> int:
    """Return how many numbers are left out before the last one of each writer."""
    writers: dict[tuple[Any, ...], tuple[int, int]] = {}
    for table in tables:
        if not table.num_rows:
            continue
        task = table.column("task").chunk(0)
        kinds = table.column("kind").chunk(0)
        names = task.dictionary
        is_part = to_numbers(kinds.indices) == Kind.PART  # parts are written by a writer of their own
        attempt, seq = to_numbers(table.column("attempt")), to_numbers(table.column("seq"))
        key = (attempt * len(names) + to_numbers(task.indices)) * 2 + is_part
        of, first, inverse, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        last = np.zeros(len(of), np.int64)
        np.maximum.at(last, inverse, seq)
        for at, highest, count in zip(first, last, counts, strict=True):
            writer = (int(attempt[at]), names[task.indices[at].as_py()].as_py(), bool(is_part[at]))
            most, some = writers.get(writer, (0, 0))
            writers[writer] = max(most, int(highest)), some + int(count)
    return sum([max(0, highest + 1 - count) for highest, count in writers.values()])
