"""Sinks that get their rows as DataFrames: the calls of their functions, and how these recognise a repetition."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dataflow.contracts.sink import FrameSink, SparkBatch
from dataflow.errors import NewSparkAppWarning
from dataflow.runners.spark.session import functions, pyspark
from dataflow.runners.spark.session_kinds import is_connect
from dataflow.runtime.task.notices import Notices
from dataflow.store.files import DISK, storing
from dataflow.untrusted import parsed

__all__ = ["App", "FrameSinks", "app_of", "counted_rows"]

_FILE: Final = "app.json"
"""The file in a job's directory that has the UUID of the job."""
_PATIENCE: Final = 1.0
"""Seconds to wait for a count, which Spark delivers on another thread after an action."""
_PAUSE: Final = 0.01


@dataclass(frozen=True)
class App:
    """The UUID of a job, and whether a later run of it has the same."""

    id: str = ""
    kept: bool = True


class _Stored(msgspec.Struct):
    """The content of the file: the UUID, and the directory in which it was made."""

    app: str
    directory: str


def app_of(directory: Path | None, sinks: Mapping[str, FrameSink], notices: Notices) -> App:
    """Return the app of the job in ``directory``; None: it is in no directory, and has a new one in each run.

    A directory at another path than before may be a copy. The same number is then a micro-batch with other rows in the
    copy than in the original, so the copy has a new app, too. If there are ``sinks``, a new app is warned of: it does
    not know what an earlier job has written.
    """
    file = None if directory is None else directory / _FILE
    here = "" if directory is None else str(directory.resolve())
    why = "is new"
    if file is not None and file.exists():
        with storing("read", file):
            stored: _Stored = parsed(_Stored, json.loads(DISK.read(file)), str(file))
        if stored.directory == here or not sinks:
            return App(stored.app)
        why = f"was moved or copied from {stored.directory}"
    app = str(uuid.uuid4())
    if file is not None and sinks:
        with storing("write", file):
            DISK.make_directories(file.parent)
            DISK.write_new(file, json.dumps({"app": app, "directory": here}).encode())
    if sinks:
        where = "without checkpoint=" if directory is None else f"in {directory}"
        notices.add(
            NewSparkAppWarning,
            f"the functions of {', '.join(map(repr, sinks))} get a new batch.app, {app}, because the job {where} "
            f"{why}: rows that an earlier job has written for the same input are written again; to continue that "
            "job, give checkpoint= its directory",
        )
    return App(app, kept=file is not None)


@dataclass(frozen=True)
class FrameSinks:
    """The sinks of a job that get DataFrames, by name."""

    sinks: Mapping[str, FrameSink]
    app: App

    def write(self, name: str, frame: Any, number: int) -> int:
        """Give the rows of a batch to a sink, and return how many of them were computed for its first action.

        Raises: the errors of its function, with a note.
        """
        f, observation = functions(), pyspark("pyspark.sql").Observation()
        observed = frame.observe(observation, f.count(f.lit(1)).alias("rows"))
        try:
            self.sinks[name].write(observed, SparkBatch(number, f"{self.app.id}/{name}"))
        except Exception as error:
            after = (
                "after a restart it is called again with the same rows and the same number"
                if self.app.kept
                else "the job had no checkpoint=, so a later run is a new app, and begins with batch 0"
            )
            error.add_note(
                f"raised by {self.sinks[name]!r} of sink {name!r} for batch {number}, which is not committed: {after}"
            )
            raise
        return counted_rows(observation, frame, _PATIENCE) or 0


def counted_rows(observation: Any, frame: Any, patience: float) -> int | None:
    """Return the rows of ``frame`` that an action counted; None if it counted none within ``patience`` (seconds).

    Spark leaves out parts of a plan that cannot change its result, such as a join with an empty side, and with them the
    counting of rows there. Then the rows are counted by an action of their own.
    """
    if is_connect(observation):  # the action brings the count
        brought: int | None = observation.get.get("rows")
        return brought
    until = time.monotonic() + patience
    while not observation._jo.future().isCompleted():
        if time.monotonic() > until:
            return None
        time.sleep(_PAUSE)
    return int(observation.get["rows"]) if observation._jo.getRow().length() else int(frame.count())
