"""What events are of: pipeline, job, mode, guarantee and plan, which are the metadata of their table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dataflow.errors import EventsDamaged
from dataflow.events.kinds import VERSION
from dataflow.events.plan_shape import PlanShape, plan_from_json

__all__ = ["Cursor", "RecordedJob", "recorded_from"]

_KEYS: Final = ("pipeline", "job", "mode", "guarantee", "plan", "version")


@dataclass(frozen=True, slots=True)
class RecordedJob:
    """What the events are of: the pipeline, the id of the job, its mode and guarantee, and its plan.

    ``mode`` is "" for a job without checkpoints.
    """

    pipeline: str
    job: str
    mode: str
    guarantee: str
    plan: PlanShape

    def metadata(self) -> dict[str, str]:
        """Return the metadata of a table of these events."""
        values = (self.pipeline, self.job, self.mode, self.guarantee, self.plan.to_json(), str(VERSION))
        return dict(zip(_KEYS, values, strict=True))


def recorded_from(metadata: Mapping[bytes, bytes] | None) -> RecordedJob:
    """Return what a table of events is of, from its metadata, which is untrusted.

    Raises: EventsDamaged if it has no such metadata, or is of a newer version.
    """
    found = metadata or {}
    missing = [key for key in _KEYS if key.encode() not in found]
    if missing:
        raise EventsDamaged(f"it is no recording of events: its metadata has no {', '.join(missing)}")
    try:
        pipeline, job, mode, guarantee, plan, version = [found[key.encode()].decode() for key in _KEYS]
    except UnicodeDecodeError as error:
        raise EventsDamaged(f"the metadata of the recording is damaged: {error}") from error
    if version != str(VERSION):
        raise EventsDamaged(
            f"the recording has version {version[:20]!r}, and this release reads version {VERSION}; read it with the "
            "release that wrote it"
        )
    return RecordedJob(pipeline, job, mode, guarantee, plan_from_json(plan))


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position in the events of one log: how many of each sort were recorded before it, and how many were lost."""

    log: str
    facts: int = 0
    samples: int = 0
    kept: int = 0
    lost: int = 0
