"""What the coordinator decides. The job carries it out, in order; outcomes come back to the coordinator as events.

``part`` is what a task acknowledged with: handles of files, opaque here. ``request`` numbers are the caller's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from dataflow.events import BarrierKind
from dataflow.protocol.actions import AbortReason

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
    """Why a checkpoint, or a request for one, came to nothing."""

    NOT_READY = "not-ready"
    """A task had just finished when the trigger reached it."""
    SUBSUMED = "subsumed"
    SUPERSEDED = "superseded"
    CANCEL = "cancel"
    END_OF_INPUT = "end-of-input"
    EXPIRED = "expired"
    SNAPSHOT = "snapshot"
    """An operator failed while its state was copied."""
    IO = "io"
    """A task could not write its part."""
    PERSIST = "persist"
    """The store did not accept the whole."""
    JOB_ENDING = "job-ending"
    """Every task has finished: only the last checkpoint is still to come."""
    JOB_FAILED = "job-failed"

    @property
    def is_failure(self) -> bool:
        """Whether it counts against the tolerable failures: something broke, or took too long."""
        return self in _FAILURES

    @property
    def is_passing(self) -> bool:
        """Whether nothing broke and nothing ended: somebody who asked for the checkpoint may ask again."""
        return self in _PASSING

    @property
    def at_tasks(self) -> AbortReason:
        """The word for it at the barrier handlers."""
        try:
            return AbortReason(self.value)
        except ValueError:
            return AbortReason.CANCEL

    @classmethod
    def of(cls, reason: AbortReason) -> FailureReason:
        """The reason a task declines with when its barrier handler gave the checkpoint up.

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
    snapshot; a task whose predecessors all finished holds the trigger until its inputs have ended, and takes its
    snapshot right before it finishes. A task that cannot do so any more declines with ``NOT_READY``. The ``finished``
    tasks acknowledge at once with their last snapshot. Every other task sees the barrier in-band.
    """

    checkpoint: int
    kind: BarrierKind
    triggered_at: int
    running: tuple[str, ...]
    finished: tuple[str, ...]
    requests: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class AbortTasks:
    """Tell every task that ``checkpoint`` was given up."""

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
    """``checkpoint`` is durable: sinks commit every transaction up to it; when all have, call ``committed``.

    It is sent for checkpoints one would restore automatically. A savepoint is not one of them: a restore of the
    checkpoint before it would repeat rows that it had made visible.
    """

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete what these ``parts`` of ``checkpoint`` name; no manifest will refer to them."""

    checkpoint: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Retire:
    """``checkpoint`` is complete, but older than the ones to keep: delete it."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class RequestCompleted:
    """Answer these requests: ``checkpoint`` is durable."""

    requests: tuple[int, ...]
    checkpoint: int


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """Answer these requests: there will be no checkpoint for them."""

    requests: tuple[int, ...]
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Failed:
    """Too many checkpoints in a row came to nothing: the job must fail or restart. The coordinator is done."""

    reason: FailureReason


@dataclass(frozen=True, slots=True)
class Release:
    """The last checkpoint is committed: tasks may stop. The coordinator is done."""


CoordinatorAction = (
    Inject | AbortTasks | Persist | Notify | Discard | Retire | RequestCompleted | RequestFailed | Failed | Release
)
