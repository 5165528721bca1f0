"""The contract of sinks with the engine: guarantees, writers, and two-phase commits.

A sink is a description, picklable where possible. ``writer`` makes one `Operator` per subtask, which takes the rows.
A two-phase sink is also the committer of a job: it makes visible what its writers prepared.
`Sink` and `TwoPhaseSink` have examples.
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
"""The data with which a two-phase sink commits a prepared transaction, as JSON; it is stored in the checkpoint."""


class Guarantee(Enum):
    """How often a row counts after a failure, weakest first.

    >>> [guarantee.value for guarantee in Guarantee]
    ['at most once', 'at least once', 'exactly once']
    """

    AT_MOST_ONCE = "at most once"
    AT_LEAST_ONCE = "at least once"
    EXACTLY_ONCE = "exactly once"


class Collector(Operator):
    """A writer whose final state is a result of the run: ``RunResult.tables`` has it under the operator's name."""

    @property
    def full(self) -> bool:
        """Whether it has all the rows it needs, so that the job may stop."""
        return False

    def result(self) -> pa.Table:
        """Return the rows collected so far, including restored ones; called when the job is over."""
        raise NotImplementedError(f"{type(self).__name__} has no result; define result()")


class Sink(ABC):
    """A description of where rows go; it makes one writer per subtask.

    Attributes:
        guarantee: how often a written row counts after a failure.
        idempotent: whether writing rows again does not change the output. Runners that repeat work refuse other sinks,
            except sinks that can delete what was written.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Printer(flow.Operator):
    ...     def process(self, port, batch, out):
    ...         print(batch.to_pylist())
    >>> class Print(flow.Sink):
    ...     def writer(self, context):
    ...         return Printer(context)
    >>> with flow.Pipeline() as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(Print(), name="print")
    >>> p.run().rows_out
    [{'x': 1}, {'x': 2}]
    {'print': 2}
    """

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    idempotent: bool = False

    @property
    def target(self) -> str | None:
        """The place it writes to, such that two sinks of one target would damage each other's output; None: nothing
        shared.

        A graph with two sinks of the same target is refused.
        """
        return None

    @property
    def readable(self) -> str | None:
        """The place where other programs find the committed rows, such as a pattern of files; None if there is none."""
        return None

    def check(self, schema: pa.Schema) -> None:
        """Check that rows of ``schema`` can be written. By default, all can. Called while the graph is built.

        Args:
            schema: the columns of the stream.

        Raises: SchemaMismatch if they cannot be written.
        """

    @abstractmethod
    def writer(self, context: OperatorContext) -> Operator:
        """Return the writer of one subtask.

        Args:
            context: as for every operator; restored state is in ``context.restored``.
        """


class TwoPhaseWriter(Operator):
    """A writer whose rows become visible only when a checkpoint completes.

    Calls: ``process`` stages rows; ``prepare(n)`` at barrier n, right before ``snapshot()``, makes everything staged
    since the last ``prepare`` durable and returns the handles of this transaction (none if there were no rows).
    The engine stores handles in checkpoint n and in every later one until they are committed.

    Failures: ``prepare`` raises ``StoreError`` for a temporary failure: the checkpoint fails, the job continues, and
    the rows are part of the next transaction that can be prepared. Any call raises ``SinkBroken`` if staged rows are
    lost: the engine stops the job, and the restart replays them from the last checkpoint.

    `TwoPhaseSink` has an example.
    """

    @abstractmethod
    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        """Make the rows staged so far durable but invisible, and return the handles of the transaction.

        Args:
            checkpoint: the id of the checkpoint whose barrier has arrived.

        Raises: StoreError if it may succeed at the next checkpoint; SinkBroken if staged rows are lost.
        """


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Committed rows that a sink deleted, and the files that held them. A file that no commit lists counts no rows."""

    rows: int
    files: int


class TwoPhaseSink(Sink):
    """A sink that commits with the checkpoints, exactly once. It has one committer, at any parallelism.

    Calls: ``hold`` is entered, then ``begin`` or ``recover``, then any number of ``commit``, perhaps ``sweep``.
    ``hold`` is left when the job has ended for any reason. One sink may be run several times, also at the same time:
    the state of one run is in the object that ``hold`` returns.

    ``commit`` must be idempotent: after a crash it may be called again for the same checkpoint and handles.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Staging(flow.TwoPhaseWriter):
    ...     rows = ()
    ...     def process(self, port, batch, out):
    ...         self.rows = (*self.rows, *batch["x"].to_pylist())
    ...     def prepare(self, checkpoint):
    ...         staged, self.rows = self.rows, ()
    ...         return [{"rows": staged}] if staged else []
    >>> class Print(flow.TwoPhaseSink):
    ...     def writer(self, context):
    ...         return Staging(context)
    ...     def begin(self):
    ...         pass
    ...     def commit(self, checkpoint, handles):
    ...         print(checkpoint, [handle["rows"] for handle in handles])
    ...     def recover(self, checkpoint, handles):
    ...         self.commit(checkpoint, handles)
    >>> with flow.Pipeline() as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(Print(), name="print")
    >>> result = p.run(checkpoint=flow.Checkpointing(flow.MemoryStore()))
    1 [(1, 2)]
    """

    guarantee = Guarantee.EXACTLY_ONCE

    @abstractmethod
    def writer(self, context: OperatorContext) -> TwoPhaseWriter:
        """Return the writer of one subtask.

        Args:
            context: as for every operator; restored state is in ``context.restored``.
        """

    def hold(self, run_id: str) -> AbstractContextManager[object]:
        """Return a context manager that keeps all other jobs from writing to the target. By default it excludes none.

        The lock must end with the process, so that a restart is not refused.

        Args:
            run_id: identifies the run, for the messages of other jobs.

        Raises: on entering, DirectoryInUse, naming the holder, if another job is inside.
        """
        return nullcontext()

    def check_handles(self, handles: Sequence[Handle]) -> None:
        """Check handles of a checkpoint. By default every handle passes, and ``recover`` has to validate them.

        Called while a checkpoint is verified, before ``hold``; if it raises, an older checkpoint is restored. It reads
        and changes nothing outside.

        Args:
            handles: the transactions that the checkpoint holds.

        Raises: CheckpointDamaged for handles that this sink cannot have returned.
        """

    @abstractmethod
    def begin(self) -> None:
        """Prepare the target for a fresh start. Raises: ``OutputExists`` if it holds another run's output."""

    @abstractmethod
    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Make the transactions of ``handles`` visible. Idempotent.

        Args:
            checkpoint: the id of the completed checkpoint.
            handles: all that were prepared up to and including ``checkpoint`` and not yet committed.

        Raises: any error; the engine then calls it again later. DirectoryInUse fails the job instead.
        """

    @abstractmethod
    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        """Commit ``handles`` and delete everything else this sink staged; called after a restore, before any row.

        It must also delete what later checkpoints committed, because those rows come again: an older checkpoint is
        restored if the newest is damaged, or if the user asks for it. Called again if a crash interrupts it.

        Args:
            checkpoint: the id of the restored checkpoint.
            handles: the transactions that the checkpoint holds.

        Returns: the rows and files that were deleted, of which the run warns; None if there were none.
        """

    def sweep(self) -> None:
        """Delete everything that is staged. By default nothing is deleted, and the next ``begin`` or ``recover`` does
        it.

        Called inside ``hold`` when a job has stopped or finished, after the last ``commit``, by runners that kill
        writers instead of closing them (Spark).
        """
