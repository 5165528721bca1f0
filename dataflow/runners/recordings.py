"""The argument ``record=`` of a run: check it before anything starts, and make the recorder."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from dataflow.contracts.checkpointing import Checkpointing
from dataflow.events.record import Record, refuse_place
from dataflow.events.recorder import OpenFile, Recorder
from dataflow.planning.graph import Graph
from dataflow.planning.specs import Write
from dataflow.store.directory import DirectoryStore

if TYPE_CHECKING:
    from dataflow.events.event_log import EventLog

__all__ = ["RecordTo", "checked_record", "make_recorder", "opener"]

RecordTo = str | os.PathLike[str] | Record | None
"""Where a run is recorded: a path, ``Record(path, ...)``, or None: only in memory."""


def checked_record(record: object, graph: Graph, checkpoint: Checkpointing | None) -> Record | None:
    """Return the settings of ``record=``.

    Raises: ConfigurationError if they are invalid, or no file can be made there, or the file would lie in the directory
        of the checkpoints or in that of a sink.
    """
    settings = Record.of(record)
    if settings is not None:
        targets = [node.spec.sink.target or "" for node in graph if isinstance(node.spec, Write)]
        outputs = [target for target in targets if os.path.isabs(target)]  # others are no paths, but names of tables
        refuse_place(settings, _directory(checkpoint), outputs)
    return settings


def _directory(checkpoint: Checkpointing | None) -> str | None:
    location = None if checkpoint is None else checkpoint.location
    if isinstance(location, DirectoryStore):
        return location.location
    return os.fspath(location) if isinstance(location, str | os.PathLike) else None


def make_recorder(record: Record | None, log: EventLog | None = None) -> Recorder:
    """Return the recorder of one attempt, whose events go to ``log``, too."""
    if record is None:
        return Recorder(log)
    return Recorder(log, sampled_each=record.every, open_file=opener(record))


def opener(record: Record | None) -> OpenFile | None:
    """Return the function that opens the file of ``record``; None: there is none."""
    if record is None:
        return None
    from dataflow.events.event_file import EventFile

    return partial(EventFile.open, record)
