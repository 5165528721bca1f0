"""The checkpoints of a job: pending, durable and failed ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataflow.clock import Clock
from dataflow.errors import CheckpointError
from dataflow.protocol.barrier_ledger import BarrierLedger
from dataflow.protocol.coordinator_actions import FailureReason, Inject
from dataflow.protocol.events import BarrierKind
from dataflow.runtime.job.checkpoint_attempts import CheckpointAttempt, CheckpointRecord, CheckpointTotals
from dataflow.runtime.task.messages import Acknowledged, Declined

__all__ = ["CheckpointHistory"]

log = logging.getLogger("dataflow.job")

KEPT = 1_000
"""Records of checkpoints and of failures that are kept; totals cover all."""


@dataclass(frozen=True, slots=True)
class DroppedCheckpoint:
    """A checkpoint that was aborted: why, when by the clock, and how long after its trigger (microseconds)."""

    why: str
    at: int
    duration: int


class CheckpointHistory:
    """The checkpoints of the job that has these ``tasks``.

    Attributes:
        checkpoints: the last durable checkpoints, at most ``KEPT``, in the order in which they became durable.
        failures: a sentence for each of the last checkpoints that failed, at most ``KEPT``.
        earlier: the totals of those that are not listed any more.
        ledger: the checkpoints that tasks have not settled; a task removes a checkpoint whose cancel it carried out.
    """

    def __init__(self, tasks: Sequence[str], clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock
        self._attempts: dict[int, CheckpointAttempt] = {}
        self._last_dropped = BarrierKind.CHECKPOINT
        self.checkpoints: list[CheckpointRecord] = []
        self.failures: list[str] = []
        self.earlier = CheckpointTotals()
        self.ledger = BarrierLedger()

    @property
    def newest(self) -> int | None:
        """The newest durable checkpoint."""
        return self.checkpoints[-1].checkpoint if self.checkpoints else None

    @property
    def totals(self) -> CheckpointTotals:
        """The totals of all checkpoints."""
        return self.earlier.with_checkpoints(self.checkpoints).with_failures(len(self.failures))

    @property
    def completed(self) -> int:
        """The number of durable checkpoints."""
        return self.earlier.completed + len(self.checkpoints)

    @property
    def failed(self) -> int:
        """The number of failed checkpoints."""
        return self.earlier.failed + len(self.failures)

    @property
    def under_way(self) -> Mapping[int, Sequence[str]]:
        """The checkpoints under way, each with the tasks that have not acknowledged it yet. Any thread may read it."""
        return {n: attempt.waiting_for(self._tasks) for n, attempt in list(self._attempts.items())}

    def attempt(self, checkpoint: int) -> CheckpointAttempt:
        """Return the attempt of a checkpoint under way."""
        return self._attempts[checkpoint]

    def start(self, injected: Inject) -> None:
        """Start tracking a checkpoint that has just been triggered."""
        checkpoint = injected.checkpoint
        self._attempts[checkpoint] = CheckpointAttempt(checkpoint, injected.kind, injected.triggered_at)
        self.ledger.triggered(checkpoint, self._tasks, injected.triggered_at)

    def acknowledged(self, message: Acknowledged) -> None:
        """Add a task's durable part, unless the checkpoint was aborted."""
        if (attempt := self._attempts.get(message.checkpoint)) is not None:
            attempt.add(message)
        self.ledger.settled(message.task, message.checkpoint)

    def declined(self, message: Declined) -> None:
        """Record that a task declined a checkpoint, and why."""
        self.ledger.settled(message.task, message.checkpoint)
        self.note_failure(message.checkpoint, f"{message.task}: {message.detail}")

    def note_failure(self, checkpoint: int, failure: str) -> None:
        """Record the first failure of a checkpoint; ignore later ones."""
        attempt = self._attempts.get(checkpoint)
        if attempt is not None and not attempt.failure:
            attempt.failure = failure

    def mark_durable(self, checkpoint: int) -> CheckpointRecord:
        """Record a checkpoint whose manifest is durable, and return the record."""
        record = self._attempts[checkpoint].record(self._clock.now())
        self.checkpoints.append(record)
        if len(self.checkpoints) > KEPT:
            self.earlier = self.earlier.with_checkpoints([self.checkpoints.pop(0)])
        log.info("checkpoint %d is durable: %d bytes, %d us", checkpoint, record.size, record.duration)
        return record

    def forget(self, checkpoint: int) -> None:
        """Drop the bookkeeping of a durable checkpoint."""
        del self._attempts[checkpoint]

    def drop(self, checkpoint: int, reason: FailureReason) -> DroppedCheckpoint:
        """Drop a checkpoint that the coordinator aborted, and record why if it failed."""
        attempt = self._attempts.pop(checkpoint)
        self._last_dropped = attempt.kind
        now = self._clock.now()
        failure = attempt.why_failed(reason, self._tasks, now)
        if reason.is_failure:
            self.failures.append(failure)
            if len(self.failures) > KEPT:
                del self.failures[0]
                self.earlier = self.earlier.with_failures(1)
            log.warning("failed: %s", failure)
        return DroppedCheckpoint(failure, now, now - attempt.triggered_at)

    def too_many_failures(self, reason: FailureReason) -> CheckpointError:
        """Return the error of a job that fails because of its checkpoints, with advice."""
        which = "too many checkpoints failed in a row"
        if self._last_dropped is BarrierKind.FINAL:
            which = "the last checkpoint, at the end of the input, failed in every attempt"
        more = ", or give them more time: Checkpointing(timeout=)" if reason is FailureReason.EXPIRED else ""
        listing = "".join(f"\n  {failure}" for failure in self.failures[-3:])
        return CheckpointError(
            f"{which} ({reason.value}):{listing}\nfix the problem{more}; run again with restore='auto', which resumes "
            "from the newest checkpoint"
        )
