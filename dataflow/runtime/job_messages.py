"""Messages to a job: reports of its tasks and of background work, and requests of its users."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.runtime.committer import SinkCommitted, SinkFailed
from dataflow.runtime.manifest_writer import Persisted, PersistFailed
from dataflow.runtime.messages import TaskReport
from dataflow.runtime.predicates import Asked, Judged
from dataflow.runtime.requests import Wanted

__all__ = ["Cancel", "JobMessage", "StopJob"]


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the job as soon as possible; nothing more is committed."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """Take a last checkpoint, then stop."""


JobMessage = (
    TaskReport | SinkCommitted | SinkFailed | Persisted | PersistFailed | Judged | Wanted | Asked | Cancel | StopJob
)
