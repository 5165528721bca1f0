"""The actions of the coordinator. The job carries them out, in order, and reports outcomes to it as events.

A ``part`` comes with a task's acknowledgement: handles of files, opaque here. The caller chooses ``request`` numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dataflow.protocol.actions import AbortReason
from dataflow.protocol.events import BarrierKind

__all__ = [
    "AbortTasks",
    "CoordinatorAction",
    "Discard",
    "Failed",
    "FailureReason",
    "Inject",
    "Notify",
    "Part",
    "Persist",
    "Release",
    "RequestCompleted",
    "RequestFailed",
    "Retire",
]

Part = object


class FailureReason(Enum):
    """Why a checkpoint, or a request for one, failed."""

    NOT_READY = "not-ready"
    """A task had just finished when the trigger reached it."""
    SUBSUMED = "subsumed"
    SUPERSEDED = "superseded"
    CANCEL = "cancel"
    END_OF_INPUT = "end-of-input"
    EXPIRED = "expired"
    SNAPSHOT = "snapshot"
    """An operator raised while its state was copied."""
    IO = "io"
    """A task could not write its part."""
    PERSIST = "persist"
    """The store could not commit the checkpoint."""
    JOB_FAILED = "job-failed"

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the tolerable failures: an error, or a timeout."""
        return self in _FAILURES

    @property
    def is_passing(self) -> bool:
        """Whether a new request may succeed: there was no error, and nothing ended."""
        return self in _PASSING

    @property
    def at_tasks(self) -> AbortReason:
        """The corresponding reason at the barrier handlers; CANCEL if there is none."""
        try:
            return AbortReason(self.value)
        except ValueError:
            return AbortReason.CANCEL

    @classmethod
    def of(cls, reason: AbortReason) -> FailureReason:
        """Return the reason with which a task declines after its barrier handler aborted the checkpoint.

        >>> FailureReason.of(AbortReason.SUPERSEDED)
        <FailureReason.SUPERSEDED: 'superseded'>
        """
        return cls(reason.value)


_PASSING = frozenset({FailureReason.NOT_READY, FailureReason.SUBSUMED, FailureReason.SUPERSEDED, FailureReason.CANCEL})
_FAILURES = frozenset({FailureReason.EXPIRED, FailureReason.SNAPSHOT, FailureReason.IO, FailureReason.PERSIST})


@dataclass(frozen=True, slots=True)
class Inject:
    """Trigger ``checkpoint``.

    The ``running`` tasks start it: those with no running predecessor. A source sends the barrier and takes its
    snapshot. A task whose predecessors all finished holds the trigger until its inputs have ended, and takes its
    snapshot right before it finishes. A task that is too late for that declines with ``NOT_READY``. The ``finished``
    tasks acknowledge at once with their last snapshot. Every other task receives the barrier in-band.

    ``since`` is the newest durable checkpoint, on whose files those of this one may build; 0: there is none, or this
    serves a request for a savepoint, which builds on nothing.
    """

    checkpoint: int
    kind: BarrierKind
    triggered_at: int
    running: tuple[str, ...]
    finished: tuple[str, ...]
    requests: tuple[int, ...] = ()
    since: int = 0


@dataclass(frozen=True, slots=True)
class AbortTasks:
    """Notify every task that ``checkpoint`` was aborted."""

    checkpoint: int
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Persist:
    """Every task acknowledged: make the manifest durable, then call ``persisted`` or ``persist_failed``."""

    checkpoint: int
    kind: BarrierKind
    parts: Mapping[str, Part]


@dataclass(frozen=True, slots=True)
class Notify:
    """``checkpoint`` is durable: sinks commit every transaction up to it; when all have, call ``committed``."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the files of these ``parts`` of ``checkpoint``; no manifest will refer to them."""

    checkpoint: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Retire:
    """Delete ``checkpoint``: it is complete, but older than the checkpoints to keep."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class RequestCompleted:
    """Complete these requests: ``checkpoint`` is durable."""

    requests: tuple[int, ...]
    checkpoint: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """Fail these requests: there will be no checkpoint for them."""

    requests: tuple[int, ...]
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Failed:
    """Too many checkpoints in a row failed: the job must fail or restart. The coordinator is done."""

    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Release:
    """The last checkpoint is committed: tasks may stop. The coordinator is done."""


CoordinatorAction = (
    Inject | AbortTasks | Persist | Notify | Discard | Retire | RequestCompleted | RequestFailed | Failed | Release
)
