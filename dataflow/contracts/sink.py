"""The contract of sinks with the engine: what a sink guarantees, its writers, and two-phase commits.

A sink is a description, picklable where it can be. ``writer`` makes one `Operator` per subtask, which takes the rows.
A two-phase sink also has one committer per job: the object itself, which publishes what its writers prepared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.contracts.source import Json

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Collector", "Guarantee", "Handle", "Sink", "TakenBack", "TwoPhaseSink", "TwoPhaseWriter"]

Handle = Mapping[str, Json]
"""What a two-phase sink needs to commit a prepared transaction, as JSON; it is stored in the checkpoint."""


class Guarantee(Enum):
    """How often a row counts after a failure, weakest first."""

    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"
    EXACTLY_ONCE = "exactly once"


class Collector(Operator):
    """An operator whose final state is a result of the run; ``RunResult`` shows it under the operator's name."""

    @property
    def full(self) -> bool:
        """Whether it has all the rows it was asked for, so that the job may stop."""
        return False

    def result(self) -> pa.Table:
        """The rows collected so far, restored ones included; read when the job is over."""
        raise NotImplementedError(f"{type(self).__name__} collects nothing: define result()")


class Sink(ABC):
    """Where rows go: a description that makes one writer a subtask."""

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    idempotent: bool = False
    """Whether rows that are written again change nothing that counts. Runners that repeat work refuse other sinks, but
    those that take back what was written."""

    @property
    def target(self) -> str | None:
        """What it writes to, such that two sinks of one target would spoil each other's output; None: nothing shared.

        A graph with two sinks of the same target is refused.
        """
        return None

    @property
    def readable(self) -> str | None:
        """The place where other programs find the committed rows, such as a pattern of files; None: there is none."""
        return None

    def check(self, schema: pa.Schema) -> None:
        """Raise ``SchemaMismatch`` where rows of ``schema`` cannot be written. Called while the graph is built."""

    @abstractmethod
    def writer(self, context: OperatorContext) -> Operator:
        """The writer of one subtask; restored state is in ``context.restored``."""


class TwoPhaseWriter(Operator):
    """A writer whose rows become visible only when a checkpoint completes.

    Calls: ``process`` stages rows; ``prepare(n)`` at barrier n, right before ``snapshot()``, makes everything staged
    since the last ``prepare`` durable and returns the handles of *its* transaction (none where there were no rows).
    The engine stores handles in checkpoint n and in every later one until they are committed.

    Failures: ``prepare`` raises ``StoreError`` for "not now": the checkpoint fails, the job goes on, and the rows are
    part of the next transaction that can be prepared. Any call raises ``SinkBroken`` when staged rows are lost: the
    engine stops the job, and the restart replays them from the last checkpoint.
    """

    @abstractmethod
    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        """Make the rows staged so far durable but invisible."""


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Committed rows that a sink deleted, and the files that held them. A file that no commit lists counts no rows."""

    rows: int
    files: int


class TwoPhaseSink(Sink):
    """A sink that commits with the checkpoints, exactly once. One committer a sink, whatever its parallelism.

    Calls: ``hold`` is entered, then ``begin`` or ``recover``, then any number of ``commit``, perhaps ``sweep``. It is
    left when the job is over, however it ended. One sink may be run several times, also at the same time: what belongs
    to one run is in what ``hold`` returns.

    ``commit`` must be idempotent: after a crash it may be called again for the same checkpoint and handles.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    @abstractmethod
    def writer(self, context: OperatorContext) -> TwoPhaseWriter:
        """The writer of one subtask."""

    def hold(self, run_id: str) -> AbstractContextManager[object]:
        """Keep all other jobs from writing to the target while inside. By default nobody is kept out.

        Entering raises ``DirectoryInUse``, naming the holder, where another job is inside. The right must die with the
        process, so that a restart is not refused.
        """
        return nullcontext()

    def check_handles(self, handles: Sequence[Handle]) -> None:
        """Raise ``CheckpointDamaged`` for handles that this sink cannot have returned.

        Called while a checkpoint is verified, before ``hold``: an older one is then restored instead. It reads and
        changes nothing outside. By default every handle passes, and ``recover`` has to validate them.
        """

    @abstractmethod
    def begin(self) -> None:
        """A fresh start: raise ``OutputExists`` where the target holds another run's output, else make it ready."""

    @abstractmethod
    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Make the transactions of ``handles`` (all up to and including ``checkpoint``) visible. Idempotent."""

    @abstractmethod
    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        """After a restore of ``checkpoint``, before any row: commit ``handles``, delete all else this sink staged.

        What later checkpoints committed must be taken back, for its rows come again: an older checkpoint is restored
        where the newest is damaged, or the user asks for it. Repeated where a crash comes in between.

        Returns: the rows and files that were deleted, of which the run warns; None if there were none.
        """

    def sweep(self) -> None:
        """Delete all that is staged. By default nothing is deleted, and the next ``begin`` or ``recover`` does it.

        Called inside ``hold`` when a job has stopped or finished, after the last ``commit``, by runners that kill
        writers instead of closing them (Spark).
        """
