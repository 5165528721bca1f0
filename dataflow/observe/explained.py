"""Explain a stored checkpoint by the recording of the run that took it."""

from __future__ import annotations

from pathlib import Path

from dataflow.drawing import printable
from dataflow.errors import EventsError
from dataflow.store.status import CheckpointContents
from dataflow.views.read_events import read_events

__all__ = ["sentences_on"]


def sentences_on(found: CheckpointContents, recording: Path) -> list[str]:
    """Return sentences on a checkpoint, from the events in ``recording``, which may be of any run of its job.

    Raises: EventsError if the recording is of another job, or does not have the checkpoint; EventsDamaged.
    """
    events = read_events(recording)
    recorded, manifest = events.recorded, found.manifest
    if manifest is not None and recorded.job != manifest.job:
        raise EventsError(
            f"{recording} is a recording of job {printable(recorded.job)} of {printable(recorded.pipeline)!r}, and "
            f"checkpoint {found.id} is of job {manifest.job} of {printable(manifest.pipeline)!r}; give the file that "
            "the run in this directory had as record="
        )
    return [printable(sentence) for sentence in events.timeline(found.id).sentences]
