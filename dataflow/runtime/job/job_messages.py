"""Messages to a job: reports of its tasks and of background work, and requests of its users."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.runtime.job.checkpoint_requests import CheckpointRequest
from dataflow.runtime.job.committer import SinkCommitted, SinkFailed
from dataflow.runtime.job.manifest_writer import Persisted, PersistFailed
from dataflow.runtime.job.predicates import AddPredicate, PredicatesEvaluated
from dataflow.runtime.job.savepoints import Copied, Savepoint, SavepointRequest, WithdrawSavepoint
from dataflow.runtime.task.messages import TaskReport

__all__ = ["CancelJob", "DrainJob", "JobMessage", "StopJob", "StopWithSavepoint"]


@dataclass(frozen=True, slots=True)
class CancelJob:
    """Request to end the job as soon as possible; nothing more is committed."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopJob:
    """Request to take a last checkpoint, then stop."""


@dataclass(frozen=True, slots=True)
class StopWithSavepoint:
    """Request to stop when a savepoint was taken, whose directory is reserved."""

    savepoint: Savepoint


@dataclass(frozen=True, slots=True)
class DrainJob:
    """Request to end all sources where they are; the last checkpoint is a savepoint, whose directory is reserved."""

    savepoint: Savepoint


JobMessage = (
    TaskReport
    | SinkCommitted
    | SinkFailed
    | Persisted
    | PersistFailed
    | PredicatesEvaluated
    | CheckpointRequest
    | AddPredicate
    | SavepointRequest
    | WithdrawSavepoint
    | Copied
    | CancelJob
    | StopJob
    | StopWithSavepoint
    | DrainJob
)
