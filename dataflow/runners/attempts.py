"""The attempts of one run: their records, and the decision after each failure whether the job restarts.

An *attempt* is one start of a job inside a run. Every runner records its attempts and decides here.
"""

from __future__ import annotations

import logging
import traceback
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Checkpointing, Mode
from dataflow.contracts.restarts import AttemptFailure, GiveUp, RestartAfter, Restarts, may_restart
from dataflow.errors import ConfigurationError, JobRestartedWarning, StoreError
from dataflow.planning.graph import Graph
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    from dataflow.runtime.job.job import Job
    from dataflow.runtime.restore.find_checkpoint import RestoreReport
    from dataflow.runtime.task.messages import FailedAt
    from dataflow.runtime.task.notices import Notices
    from dataflow.store.base import CheckpointStore

__all__ = ["Attempt", "Attempts", "RestorePoint", "checked_restarts", "error_line", "forget_frames", "rows_read"]

log = logging.getLogger("dataflow.job")

_KEPT: Final = 1_000
"""Attempts that are listed; the count covers all."""
_SAME: Final = 3
"""Failures of one operator with one type of exception, without a completed checkpoint between, that fail the job."""


@dataclass(slots=True)
class Attempt:
    """The record of one attempt of a run.

    Attributes:
        started: when it began, in microseconds since the first attempt began.
        ended: when it ended, in the same time; None: it has not.
        rows_read: the rows that its sources read.
        restored_checkpoint: the id of the checkpoint that it started from; None: it started from the beginning.
        error: the error that ended it; None: there is none, or a simulated crash ended it.
        highest: only in simulations, as all below: the highest checkpoint id in the store at its start.
        mode: its checkpoint mode; None: no checkpoints.
        restored: the report of its restore; None: it restored nothing.
        checkpoints: the ids of the checkpoints that it completed.
        duplicated: rows delivered twice, if its checkpoints are restored.
        in_flight: rows in its checkpoints' channels.
        blocked: microseconds that its channels were blocked, in all.
        crash: the place of the crash that ended it; None: no crash did.
        turns: turns of the scheduler.

    >>> Attempt(started=1_000, ended=5_000).time
    4000
    """

    started: int = 0
    ended: int | None = None
    rows_read: int = 0
    restored_checkpoint: int | None = None
    error: BaseException | None = None
    highest: int = 0
    mode: Mode | None = None
    restored: RestoreReport | None = None
    checkpoints: list[int] = field(default_factory=list)
    duplicated: int = 0
    in_flight: int = 0
    blocked: int = 0
    crash: str | None = None
    turns: int = 0

    @property
    def time(self) -> int:
        """How long it lasted, in microseconds; 0 until it has ended."""
        return 0 if self.ended is None else self.ended - self.started


def rows_read(job: Job) -> int:
    """Return the rows that the sources of ``job`` have read."""
    return sum([task.chain.head.tally.rows_in for task in job.tasks.values() if task.task_input.is_source])


def forget_frames(error: BaseException) -> None:
    """Remove the tracebacks of ``error`` and of its causes, whose frames keep the operators of an attempt in memory."""
    pending, seen = [error], set[int]()
    while pending:
        one = pending.pop()
        if id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            nested: Sequence[BaseException] = one.exceptions if isinstance(one, BaseExceptionGroup) else ()
            pending += [other for other in (one.__cause__, one.__context__, *nested) if other is not None]


def checked_restarts(restarts: object, graph: Graph, checkpoint: Checkpointing | None) -> Restarts:
    """Return the policy of ``run(restarts=)``; None means that the job never restarts.

    Raises: ConfigurationError if it is none, if a job that restarts has no checkpoints, or if a source cannot be read
        again.
    """
    policy = Restarts.none() if restarts is None else restarts
    if not isinstance(policy, Restarts):
        raise ConfigurationError(
            f"restarts= must be a policy such as Restarts.fixed(3, '10s'), or None, got {policy!r} "
            f"({type(policy).__name__})"
        )
    if not policy.restarts:
        return policy
    if checkpoint is None:
        raise ConfigurationError(
            f"restarts={policy!r} needs checkpoint=Checkpointing(...), from which the job restarts; "
            "Checkpointing(MemoryStore()) keeps the checkpoints in memory"
        )
    for node in graph:
        if isinstance(node.spec, Read) and not node.spec.source.replayable:
            raise ConfigurationError(
                f"restarts={policy!r}: source {node.name!r} cannot be read again from an offset, so each restart would "
                "lose rows; leave restarts= out, or use a source that can (replayable=True)"
            )
    return policy


class RestorePoint:
    """What each attempt of a run restores.

    The first one restores what the user named. So does a later one, until this run has completed a checkpoint; then it
    restores the newest valid checkpoint of the store.
    """

    def __init__(self, restore: object, store: CheckpointStore | None) -> None:
        self._restore = restore
        self._store = store
        self._before: int | None = None

    def begun(self) -> None:
        """The first attempt was built: checkpoints after those that the store has now are of this run."""
        if self._before is None:
            self._before = 0 if self._store is None else max(self._store.checkpoints(), default=0)

    @property
    def now(self) -> object:
        """The value of ``restore=`` for the next attempt. Raises: StoreError if the store cannot be listed."""
        return self._restore if self.newest is None else "auto"

    @property
    def known_newest(self) -> int | None:
        """As ``newest``; also None if the store cannot be listed."""
        with suppress(StoreError):
            return self.newest
        return None

    @property
    def newest(self) -> int | None:
        """The newest checkpoint of this run in the store; None: there is none. Raises: StoreError."""
        if self._store is None or self._before is None:
            return None
        newest = max(self._store.checkpoints(), default=0)
        return newest if newest > self._before else None


class Attempts:
    """The attempts of one run, and its restarts so far.

    Args:
        policy: decides about restarts.
        began: the time when the run began, by the clock of all other times (microseconds).

    Invariant: between two failures that count as the same, the run completed no checkpoint.
    """

    def __init__(self, policy: Restarts, began: int) -> None:
        self.policy = policy
        self.count = 0
        """The number of attempts so far."""
        self._began = began
        self._listed: deque[Attempt] = deque(maxlen=_KEPT)
        self._failures: deque[AttemptFailure] = deque(maxlen=policy.remembered)
        self._failed = 0
        self._same: tuple[str, type[BaseException]] | None = None
        self._times = 0
        self._newest = 0  # the newest checkpoint at the last failure

    @property
    def listed(self) -> tuple[Attempt, ...]:
        """The last 1,000 attempts, oldest first."""
        return tuple(self._listed)

    @property
    def restarts(self) -> int:
        """How often the job was started again."""
        return max(0, self.count - 1)

    def begin(self, now: int, attempt: Attempt | None = None) -> Attempt:
        """Begin an attempt and return its record."""
        attempt = attempt or Attempt()
        attempt.started = now - self._began
        self._listed.append(attempt)
        self.count += 1
        return attempt

    def end(self, now: int, error: BaseException | None, rows: int = 0) -> None:
        """End the current attempt, in which sources have read ``rows`` rows."""
        attempt = self._listed[-1]
        attempt.ended, attempt.error, attempt.rows_read = now - self._began, error, rows

    def decide(self, error: BaseException, at: FailedAt | None, now: int, newest: int | None) -> RestartAfter | GiveUp:
        """Return what follows after the current attempt, which has ended, failed with ``error``.

        Args:
            error: the error.
            at: where an operator raised it; None: no operator did.
            now: the time.
            newest: the newest checkpoint that the run has completed; None: there is none, or it is not known.
        """
        attempt = self._listed[-1]
        self._failed += 1
        ended = now if attempt.ended is None else self._began + attempt.ended
        self._failures.append(AttemptFailure(self._failed, self._began + attempt.started, ended))
        same = None if at is None else (at.operator, type(error))
        completed = newest is not None and newest > self._newest
        self._times = self._times + 1 if same is not None and same == self._same and not completed else 1
        self._same, self._newest = same, max(self._newest, newest or 0)
        if not may_restart(error):
            return GiveUp(f"a restart does not help against {type(error).__name__}")
        if self.policy.restarts and at is not None and self._times >= _SAME:
            return GiveUp(
                f"{type(error).__name__} was raised {_SAME} times in a row by {at}, and no checkpoint was completed "
                "between; change the function, or leave the row out, and run again with restore='auto'"
            )
        return self.policy.decide(self._failures, now)

    def note_restart(self, notices: Notices, error: BaseException, at: FailedAt | None, delay: int) -> None:
        """Record a warning of a restart after ``error``, raised ``at``, and log the error with its traceback."""
        # as text, because a handler that keeps the record would keep the frames, and so the operators
        text = "".join(traceback.format_exception(error)).rstrip()
        log.warning("the job failed, and restarts in %s:\n%s", duration_text(delay), text)
        notices.add(
            JobRestartedWarning,
            f"the job failed{'' if at is None else f' at operator {at.operator!r}'} after "
            f"{duration_text(self._listed[-1].time)} and was restarted after {duration_text(delay)}: "
            f"{error_line(error)}",
        )

    def note_given_up(self, error: BaseException, why: str) -> None:
        """Add a note to the error of a job that has a policy and is not restarted."""
        if self.policy.restarts:
            after = f" after {self.restarts:,} restart{'s' * (self.restarts != 1)}" if self.restarts else ""
            error.add_note(f"the job was not restarted{after}, because {why}")


def error_line(error: BaseException) -> str:
    """Return the class and the text of an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
