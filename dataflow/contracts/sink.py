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
from typing import TYPE_CHECKING, Any

from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.contracts.source import Json
from dataflow.contracts.updates import Changes
from dataflow.errors import CheckpointMismatch

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Collector",
    "FrameSink",
    "Guarantee",
    "Handle",
    "Sink",
    "SparkBatch",
    "TakenBack",
    "TwoPhaseSink",
    "TwoPhaseWriter",
]

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


@dataclass(frozen=True, slots=True)
class SparkBatch:
    """What a function of ``op.foreach_batch`` is called for.

    Attributes:
        id: the number of the micro-batch, from 0 on, which grows by 1; in a batch 0.
        app: the same text in all runs of a job in one directory, for one sink: a UUID, and the name of the sink. A new
            directory is a new app.

    >>> SparkBatch(7, "4d0ae6a1-5f0e-4a39-9a0c-0f2f6f6a4ad1/out").id
    7
    """

    id: int
    app: str


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
        blocking: whether a writer may wait for something outside (a disk, a socket), so that its tasks get threads of
            their own.
        only_on: the name of the only runner that can write to it, such as ``"spark"``; "": any runner can.

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
    blocking: bool = True
    only_on: str = ""

    @property
    def target(self) -> str | None:
        """The place it writes to, such that two sinks of one target would damage each other's output; None: nothing
        shared.

        A graph with two sinks of the same target is refused. Checkpoints store the targets of two-phase sinks, and a
        restore compares them: see `TwoPhaseSink`.
        """
        return None

    @property
    def readable(self) -> str | None:
        """The place where other programs find the committed rows, such as a pattern of files; None if there is none."""
        return None

    @property
    def read_hint(self) -> Sequence[str]:
        """How other programs read rows whose columns changed at a restore, as lines for people; none: as any rows."""
        return ()

    @property
    def fixed_settings(self) -> Mapping[str, Json]:
        """The settings, by parameter, that a restore must not change; {}: it may change all.

        A checkpoint stores them, and a pipeline with other values does not fit it. Leave out defaults, so that a new
        setting does not refuse older checkpoints.

        >>> import operators as op
        >>> op.write_parquet("out", partition_by="day").fixed_settings
        {'partition_by': ['day']}
        """
        return {}

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which rows must meet in one writer; (): any writer may take any row.

        >>> import operators as op
        >>> op.collect().keys
        ()
        """
        return ()

    def check_changes(self, changes: Changes) -> None:
        """Check that rows of this meaning can be written. By default, all can. Called while the graph is built.

        Args:
            changes: the meaning of the rows, as `Stream.changes` has it.

        Raises: GraphError if the sink would miscount them.

        >>> import operators as op
        >>> op.collect(net=True).check_changes("updates")
        Traceback (most recent call last):
        dataflow.errors.GraphError: collect(net=True) counts rows, and updates are none; write emit="changes" ...
        """

    def present(self, table: pa.Table, changes: Changes) -> pa.Table:
        """Return the result of the run from the rows that all writers collected (see `Collector`); by default, all.

        Args:
            table: the rows of all subtasks.
            changes: the meaning of the rows, as `Stream.changes` has it.

        Raises: any error, which fails the run after all rows were written.

        >>> import pyarrow as pa, operators as op
        >>> changes = pa.table({"x": [5, 7, 5], "change": pa.array([1, 1, -1], pa.int8())})
        >>> op.collect(net=True).present(changes, "signed").to_pylist()
        [{'x': 7}]
        """
        return table

    def present_repeated(self, table: pa.Table, changes: Changes) -> pa.Table:
        """Return the result of a run in which rows may have come twice; by default, as ``present`` does.

        It is called instead of ``present`` if a restore reported duplicates, in this run or before its checkpoint.

        Args:
            table: the rows of all subtasks.
            changes: the meaning of the rows, as `Stream.changes` has it.

        Raises: any error, which fails the run after all rows were written.

        >>> import pyarrow as pa, operators as op
        >>> changes = pa.table({"x": [5, 7, 7], "change": pa.array([1, -1, -1], pa.int8())})
        >>> op.collect(net=True).present_repeated(changes, "signed").to_pylist()
        [{'x': 5}]
        """
        return self.present(table, changes)

    def check(self, schema: pa.Schema) -> None:
        """Check that rows of ``schema`` can be written. By default, all can. Called while the graph is built.

        Args:
            schema: the columns of the stream.

        Raises: SchemaMismatch if they cannot be written.

        >>> import pyarrow as pa, operators as op
        >>> op.write_csv("prices").check(pa.schema({"price": pa.float64()}))
        >>> op.write_csv("prices").check(pa.schema({"price": pa.list_(pa.float64())}))  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dataflow.errors.SchemaMismatch: write_csv('prices'): CSV cannot hold column 'price' of type list<...
        """

    def check_columns(self, before: Sequence[str], after: Sequence[str]) -> None:
        """Check that a restore may add columns, remove some, or change their order. By default, it may not.

        Called before a restore changes anything, and only if the columns are others. The rows that were written or
        staged keep their columns.

        Args:
            before: the columns of the rows that were written before the checkpoint.
            after: the columns of the rows to come.

        Raises: CheckpointMismatch, with the reason and what to do, if rows of other columns cannot follow.

        >>> import operators as op
        >>> op.write_parquet("out").check_columns(["k", "n"], ["k", "n", "average"])
        >>> op.write_csv("out", header=False).check_columns(["k", "n"], ["k", "n", "average"])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dataflow.errors.CheckpointMismatch: write_csv('out') writes files without a header, ...
        """
        raise CheckpointMismatch(
            f"{self!r} takes rows of the same columns only, and a restore would change {[*before]} to {[*after]}; keep "
            "the columns with select(), or give the rows to another sink with a name of its own"
        )

    @abstractmethod
    def writer(self, context: OperatorContext) -> Operator:
        """Return the writer of one subtask.

        Args:
            context: as for every operator. A writer with state declares it (`Stateful`), or finds what its ``snapshot``
                returned in ``context.restored``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Count(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         print(f"{self.context.name}[{self.context.subtask}]: {batch.num_rows} rows")
        >>> class Counted(flow.Sink):
        ...     def writer(self, context):
        ...         return Count(context)
        >>> with flow.Pipeline() as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(Counted(), name="out")
        >>> result = p.run()
        out[0]: 2 rows
        """


class FrameSink(Sink):
    """A sink whose rows are given to Spark's driver as a DataFrame; `operators.foreach_batch` makes one."""

    only_on = "spark"

    @abstractmethod
    def write(self, frame: Any, batch: SparkBatch) -> None:
        """Write the rows of a batch, which may be called again for it.

        Args:
            frame: the ``pyspark.sql.DataFrame`` of the rows.
            batch: what it is called for.
        """

    def writer(self, context: OperatorContext) -> Operator:
        raise AssertionError(f"{self!r} has no writers: Spark's driver calls write")


class TwoPhaseWriter(Operator):
    """A writer whose rows become visible only when a checkpoint completes.

    Calls: ``process`` stages rows; ``prepare(n)`` at barrier n, right before ``snapshot()``, makes everything staged
    since the last ``prepare`` durable and returns the handles of this transaction (none if there were no rows).
    The engine stores handles in checkpoint n and in every later one until they are committed.

    Failures: ``prepare`` raises ``StoreError`` for a temporary failure: the checkpoint fails, the job continues, and
    the rows are part of the next transaction that can be prepared. Any call raises ``SinkBroken`` if staged rows are
    lost: the engine stops the job, and the restart replays them from the last checkpoint.

    `TwoPhaseSink` has an example with its sink. By itself, a writer is an operator that emits nothing:

    >>> import pyarrow as pa, dataflow as flow
    >>> class Staging(flow.TwoPhaseWriter):
    ...     rows = ()
    ...     def process(self, port, batch, out):
    ...         self.rows = (*self.rows, *batch["x"].to_pylist())
    ...     def prepare(self, checkpoint):
    ...         staged, self.rows = self.rows, ()
    ...         return [{"rows": staged}] if staged else []
    >>> writer = Staging()
    >>> writer.process(0, pa.record_batch({"x": [1, 2]}), out=None)
    >>> writer.prepare(1), writer.prepare(2)
    ([{'rows': (1, 2)}], [])
    """

    @abstractmethod
    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        """Make the rows staged so far durable but invisible, and return the handles of the transaction.

        Args:
            checkpoint: the id of the checkpoint whose barrier has arrived.

        Returns: the handles of the rows since the last call, as JSON; none if there were no rows.

        Raises: StoreError if it may succeed at the next checkpoint; SinkBroken if staged rows are lost.

        >>> import pyarrow as pa, dataflow as flow
        >>> from types import SimpleNamespace
        >>> from dataflow.testing import Ledger, ledger_sink
        >>> world = Ledger()
        >>> writer = ledger_sink(world).writer(SimpleNamespace(name="out", subtask=0))
        >>> writer.process(0, pa.record_batch({"x": [1, 2]}), out=None)
        >>> writer.prepare(7), world.staged, len(world.rows())
        ([{'transaction': '7-0-1'}], 1, 0)
        """


@dataclass(frozen=True, slots=True)
class TakenBack:
    """Committed rows that a sink deleted, and the files that held them. A file that no commit lists counts no rows."""

    rows: int
    files: int


class TwoPhaseSink(Sink):
    """A sink that commits with the checkpoints, exactly once. It has one committer, at any parallelism.

    Calls: ``hold`` is entered, then ``check_target`` and ``begin``, or ``recover``, then any number of ``commit``,
    perhaps ``sweep``. ``hold`` is left when the job has ended for any reason. One sink may be run several times, also
    at the same time: the state of one run is in the object that ``hold`` returns.

    A restore compares ``target`` with the one that the checkpoint stores. First it checks all sinks, then it starts
    them, so a restore that one sink refuses has changed none:

    ===========================================  =======================================================  ===========
    target                                       check                                                    start
    ===========================================  =======================================================  ===========
    the stored one; or one of both is unknown    ``would_take_back`` if the checkpoint is not of the      ``recover``
                                                 job's own directory, and ``target`` is not None
    another one                                  ``uncommitted`` with the stored one, ``check_target``    ``begin``
    ===========================================  =======================================================  ===========

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
            context: as for every operator. A writer with state declares it (`Stateful`), or finds what its ``snapshot``
                returned in ``context.restored``.

        >>> import dataflow as flow
        >>> from types import SimpleNamespace
        >>> from dataflow.testing import Ledger, ledger_sink
        >>> writer = ledger_sink(Ledger()).writer(SimpleNamespace(name="out", subtask=0))
        >>> isinstance(writer, flow.TwoPhaseWriter), writer.prepare(1)
        (True, [])
        """

    def hold(self, run_id: str) -> AbstractContextManager[object]:
        """Return a context manager that keeps all other jobs from writing to the target. By default it excludes none.

        The lock must end with the process, so that a restart is not refused.

        Args:
            run_id: identifies the run, for the messages of other jobs.

        Raises: on entering, DirectoryInUse, naming the holder, if another job is inside.

        >>> import tempfile
        >>> import operators as op
        >>> from dataflow.errors import DirectoryInUse
        >>> with tempfile.TemporaryDirectory() as directory, op.write_parquet(directory).hold("monday"):
        ...     try:
        ...         op.write_parquet(directory).hold("tuesday").__enter__()
        ...     except DirectoryInUse as error:
        ...         print("run 'monday'" in str(error))
        True
        """
        return nullcontext()

    def check_handles(self, handles: Sequence[Handle]) -> None:
        """Check handles of a checkpoint. By default every handle passes, and ``recover`` has to validate them.

        Called while a checkpoint is verified, before ``hold``; if it raises, an older checkpoint is restored. It reads
        and changes nothing outside.

        Args:
            handles: the transactions that the checkpoint holds.

        Raises: CheckpointDamaged for handles that this sink cannot have returned.

        >>> import operators as op
        >>> op.write_csv("prices").check_handles([{"path": "prices.csv"}])  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        dataflow.errors.CheckpointDamaged: a transaction of prices: ...
        """

    def check_target(self, schema: pa.Schema) -> None:
        """Check that a fresh start may write rows to the target as it is now. By default nothing is checked.

        Called inside ``hold`` before ``begin`` of any sink of the job, not before ``recover``. It changes nothing.

        Args:
            schema: the columns of the rows.

        Raises: SchemaMismatch, OutputExists if they do not fit what is there.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with flow.Pipeline("first") as p:
        ...         p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.write_csv(directory))
        ...     result = p.run()
        ...     op.write_csv(directory, if_exists="append").check_target(pa.schema({"y": pa.int64()}))
        Traceback (most recent call last):
        dataflow.errors.SchemaMismatch: write_csv('...', if_exists='append'): ...
        """

    @abstractmethod
    def begin(self) -> None:
        """Prepare the target for a fresh start.

        Raises: OutputExists if it holds another run's output.

        >>> import pyarrow as pa
        >>> from dataflow.testing import Ledger, ledger_sink
        >>> world = Ledger()
        >>> sink = ledger_sink(world)
        >>> sink.begin()
        >>> sink.commit(1, [world.prepare(1, 0, [pa.record_batch({"x": [7]})])])
        >>> sink.begin()
        Traceback (most recent call last):
        dataflow.errors.OutputExists: the ledger has 1 visible rows of another run; use a new Ledger()
        """

    @abstractmethod
    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Make the transactions of ``handles`` visible. Idempotent.

        Args:
            checkpoint: the id of the completed checkpoint.
            handles: all that were prepared up to and including ``checkpoint`` and not yet committed.

        Raises: any error; the engine then calls it again later. DirectoryInUse, and on Spark any error, fails the job
            instead.

        >>> import pyarrow as pa
        >>> from dataflow.testing import Ledger, ledger_sink
        >>> world = Ledger()
        >>> sink = ledger_sink(world)
        >>> handles = [world.prepare(1, 0, [pa.record_batch({"x": [7]})])]  # as prepare(1) of a writer does
        >>> for attempt in range(2):
        ...     sink.commit(1, handles)
        >>> world.rows()
        Counter({(7,): 1})
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

        Raises: any error, which fails the start of the job.

        >>> import pyarrow as pa
        >>> from dataflow.testing import Ledger, ledger_sink
        >>> world = Ledger()
        >>> sink = ledger_sink(world)
        >>> handles = {n: [world.prepare(n, 0, [pa.record_batch({"x": [n]})])] for n in (1, 2)}
        >>> sink.commit(1, handles[1])
        >>> sink.commit(2, handles[2])
        >>> sink.recover(1, handles[1])  # checkpoint 2 is damaged: its rows come again
        >>> world.rows()
        Counter({(1,): 1})
        """

    def change_columns(self, checkpoint: int, columns: Sequence[str]) -> None:
        """Take note that rows after a checkpoint have other columns. By default, nothing is noted.

        Called after ``recover``, if ``check_columns`` let the columns change. Called again after a crash.

        Args:
            checkpoint: the id of the restored checkpoint.
            columns: the columns of the rows to come.

        >>> import json, tempfile
        >>> from pathlib import Path
        >>> import operators as op
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     sink = op.write_parquet(directory)
        ...     sink.begin()
        ...     sink.change_columns(7, ["k", "n", "average"])
        ...     json.loads(Path(directory, "_commits", "columns.json").read_text())["changes"]
        [{'first': 8, 'columns': ['k', 'n', 'average']}]
        """

    def would_take_back(self, checkpoint: int, handles: Sequence[Handle]) -> TakenBack | None:
        """Return what ``recover`` would delete of the rows that later checkpoints committed. Changes nothing.

        Called inside ``hold`` before ``recover`` of any sink, if a job starts from a checkpoint outside of its own
        directory: the job that took it may have continued, so its later rows are deleted only with
        ``run(take_back=True)``. By default it is not known, and such a start is refused without ``take_back=True``.

        Args:
            checkpoint: the id of the checkpoint.
            handles: the transactions that the checkpoint holds; ``recover`` will commit them.

        Returns: the rows and files; None if there are none.

        Raises: what ``recover`` would raise for ``handles``, such as StoreError if staged rows are gone.
            NotImplementedError if the sink cannot tell.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with flow.Pipeline("later") as p:
        ...         p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.write_csv(directory), name="out")
        ...     result = p.run(checkpoint=flow.Checkpointing(flow.MemoryStore()))  # commits with checkpoint 1
        ...     sink = op.write_csv(directory)
        ...     sink.would_take_back(1, []), sink.would_take_back(0, []), op.read_committed(directory).num_rows
        (None, TakenBack(rows=2, files=1), 2)
        """
        raise NotImplementedError(f"{type(self).__name__} does not define would_take_back()")

    def uncommitted(self, target: str, handles: Sequence[Handle]) -> Sequence[Handle] | None:
        """Return the handles that are not committed at another ``target``, whose rows a restore would lose.

        Called inside ``hold`` before ``begin`` or ``recover`` of any sink, if this one had another target when the
        checkpoint was taken. It changes nothing. By default it is not known.

        Args:
            target: what ``target`` was when the checkpoint was taken. A checkpoint is an untrusted document.
            handles: the transactions that the checkpoint holds.

        Returns: those that are not committed there; None if that cannot be known. Then the restore is refused, unless
            there are no handles, or the checkpoint is an exported savepoint, whose handles were all committed.

        >>> import tempfile, pyarrow as pa, dataflow as flow, operators as op
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     with flow.Pipeline("first") as p:
        ...         p.source(op.from_arrow(pa.table({"x": [1, 2]}))).sink(op.write_csv(directory), name="out")
        ...     store = flow.MemoryStore()
        ...     result = p.run(checkpoint=flow.Checkpointing(store))
        ...     handles = store.manifest(1).transactions["out"]
        ...     sink = op.write_csv("other")
        ...     sink.uncommitted(directory, handles), sink.uncommitted("gone", handles)
        ([], None)
        """
        return None

    def sweep(self) -> None:
        """Delete everything that is staged. By default nothing is deleted, and the next ``begin`` or ``recover`` does
        it.

        Called inside ``hold`` when a job has stopped or finished, after the last ``commit``, by runners that kill
        writers instead of closing them (Spark).

        >>> import tempfile
        >>> from pathlib import Path
        >>> import operators as op
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     sink = op.write_parquet(directory)
        ...     sink.begin()
        ...     staged = Path(directory, "_staging", "of-a-killed-writer.staged")
        ...     staged.touch()
        ...     sink.sweep()
        ...     staged.exists()
        False
        """
