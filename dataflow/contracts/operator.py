"""The contract of operators with the engine. Sinks: ``dataflow.contracts.sink``; sources:
``dataflow.contracts.source``.

The engine calls the operator; the operator starts no thread and reads no clock. Its constructor gets everything it
needs in an ``OperatorContext``, including restored state: **restoring is constructing**. The calls, in order::

    operator = factory(context)          # context.restored holds its snapshot, or None on a fresh start
    operator.open()                      # once, before the first row
    operator.process(port, batch, out)   # any number of these six, never two at a time,
    operator.advance(watermark, out)     # and never between a barrier and the snapshot it asks for
    operator.held(watermark)             # directly after the last batch of advance; not for the last watermark
    operator.timer(due, out)
    operator.snapshot()
    operator.ended(port, out)            # once per port, when all its channels have ended
    operator.advance(2**63 - 1, out)     # once: the last watermark, when all ports that count for time have ended
    operator.finish(out)                 # once, when every input ended; rows may still be emitted
    operator.snapshot()                  # the last checkpoint comes after finish
    operator.close()                     # always, also after an error

If ``process`` is slow, it gets batches in slices: a barrier waits for the step in progress, so the engine limits a step
to a budget (10 ms by default). Keep rows that belong together in state, or under one key; never rely on where a batch
is cut.

The end of an input comes in this order: the rows that upstream operators emit in ``finish``, then ``ended``, then
``advance`` with the watermark that counts without this port, if that is a higher one, and after the last port
``finish``. If a port is broadcast and another one is not, the broadcast port does not count for time: ``advance`` gets
the minimum of the others, and the last watermark while rows may still come on it. Rows of a broadcast port and of
others have no order between them, and neither waits for the other.

A call that emits more than one batch returns a generator and yields after each one, so that the engine can wait for
room downstream between them; no barrier is taken while one is pending.

No two calls run at a time. One exception: a reader among the tables of a ``Snapshot`` is read on the thread that
writes the checkpoint (see there). An operator whose snapshots hold only tables need not consider threads.

An operator that extends ``Stateful`` (``dataflow.contracts.declared_state``) names its state instead of writing
``snapshot`` and reading ``context.restored``: the engine restores it after the constructor, before ``open``.

Emitted batches must match the schema declared in ``apply`` or ``then``: columns are found by name, and a batch with
other columns or types is refused with the operator's name. So is a tag that ``sides=`` does not declare.

>>> import pyarrow as pa, pyarrow.compute as pc
>>> import dataflow as flow, operators as op
>>> class Doubler(flow.Operator):
...     stateless = True
...
...     def process(self, port, batch, out):
...         out.emit(pa.record_batch({"x": pc.multiply(batch["x"], 2)}))
>>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2, 3]})))
>>> numbers.apply(Doubler).collect()["x"].to_pylist()
[2, 4, 6]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import msgspec

from dataflow.clock import OperatorClock
from dataflow.contracts.emitted_rows import UNWATCHED, Unwatched
from dataflow.contracts.execution import Spill
from dataflow.contracts.incremental import Incremental
from dataflow.contracts.live_splits import LiveSplits
from dataflow.contracts.row_errors import RowTally
from dataflow.contracts.source import Json
from dataflow.untrusted import Time

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.rescale import RescaleContext, StatePart

__all__ = ["Operator", "OperatorContext", "OperatorFactory", "Out", "Rule", "Snapshot"]


class Rule(msgspec.Struct, frozen=True, omit_defaults=True, repr_omit_defaults=True):
    """How a reader of checkpoints divides and merges a piece of state, without its operator.

    Attributes:
        kind: what the piece is; see `dataflow.contracts.declared_state`.
        keys: of a log or a table, the first columns, which decide the key group of a row; 0: rows belong
            to no key, and each is kept in exactly one subtask.
        shared: of a log: all subtasks have equal rows.
        low: of a log: a column of numbers, and the least number that counts.
        owners: of a log or a table: the columns of each aggregate (by `Aggregation.identity`), or of each state that a
            process function declares. Several may have a column together. Other columns are the operator's own.
        how: of a value: how those of several subtasks become one.
        waiting: the value that a split without an entry takes.
    """

    kind: Literal["log", "table", "value", "passed", "fixed"]
    keys: Annotated[int, msgspec.Meta(ge=0)] = 0
    shared: bool = False
    low: tuple[str, Time] | None = None
    owners: Mapping[str, Sequence[str]] = msgspec.field(default_factory=dict)
    how: Literal["", "equal", "greatest", "least", "all", "split"] = ""
    waiting: str = ""

    def __str__(self) -> str:
        """Return the rule in a few words.

        >>> str(Rule("log", keys=1, low=("n", 7))), str(Rule("value", how="greatest")), str(Rule("passed"))
        ('log (keys=1, n >= 7)', 'value (greatest)', 'passed')
        """
        found = [f"keys={self.keys}"] if self.kind in ("log", "table") else []
        found += ["shared"] * self.shared + ([] if self.low is None else [f"{self.low[0]} >= {self.low[1]}"])
        found += [self.how] * bool(self.how) + [f"waiting={self.waiting}"] * bool(self.waiting)
        return f"{self.kind} ({', '.join(found)})" if found else self.kind


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An operator's state at a barrier. Later actions of the operator must not change it.

    ``values`` holds small things as JSON; ``tables`` holds columns. A table that is a ``pa.Table`` owns its memory:
    numpy memory must be *copied* into it (``pa.array(numpy_array)`` shares it).

    State that takes long to copy is given as a ``pa.RecordBatchReader``. It is read once, to its end, on the thread
    that writes the checkpoint, *while the operator continues*, and must return the state as it was when ``snapshot``
    returned. Readers are read one after the other, in the order of ``tables``. If the disk is slow, that may be some
    checkpoints later, so several may wait at a time. A checkpoint that is aborted drops its readers unread or half
    read, and must thereby free what they hold. After a restore ``context.restored.tables`` has a ``pa.Table`` for each.

    Large state of which little changes from checkpoint to checkpoint belongs in ``logs``: the objects that are this
    state, by name, see `Incremental`. After a restore ``context.restored.logs`` has the parts of each: a base, then
    deltas, each with its tables by name.

    ``rules`` has a rule for each piece of the state of an operator that declares it (`Stateful`). ``added`` names the
    owners (see `Rule`) that the operator has and the restored checkpoint lacks: they start empty. Of a sink it names
    the columns that a restore lets change.

    >>> import pyarrow as pa
    >>> Snapshot({"seen": 3}, {"rows": pa.table({"x": [1, 2]})}).values["seen"]
    3
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    tables: Mapping[str, pa.Table | pa.RecordBatchReader] = field(default_factory=dict)
    logs: Mapping[str, Incremental | Sequence[Mapping[str, pa.Table]]] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    added: Sequence[str] = ()


class Out(Protocol):
    """The output of an operator.

    An emitted batch belongs to the engine: never write into its memory again. ``pa.array(numpy_array)`` shares the
    memory of the array, so copy a buffer that you fill again for each batch: ``pa.array(buffer.copy())``. Otherwise
    rows change that later operators and sinks still hold. The simulated runner raises ContractViolation for it.

    In a test of an operator by itself, a subclass can take the place of the engine:

    >>> import pyarrow as pa, dataflow as flow
    >>> class Printed(flow.Out):
    ...     def emit(self, batch, tag=None):
    ...         print(batch.to_pylist())
    >>> class First(flow.Operator):
    ...     def process(self, port, batch, out):
    ...         out.emit(batch.slice(0, 1))
    >>> First().process(0, pa.record_batch({"x": [1, 2]}), Printed())
    [{'x': 1}]
    """

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        """Send ``batch`` downstream. Empty batches are dropped.

        Args:
            batch: a ``pa.RecordBatch`` with the declared columns, in any order. Its memory must not change afterwards.
            tag: the name of a side output; None: the main one.

        Raises: SchemaMismatch for columns or types that were not declared; ContractViolation for a tag that was not
            declared, for anything but a record batch, and on the simulated runner for a batch that changed afterwards.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Split(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         out.emit(batch.filter(flow.col("x").evaluate(batch)))
        ...         out.emit(batch, tag="all")
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [True, False]})))
        >>> split = rows.apply(Split, sides={"all": None})
        >>> split.collect()["x"].to_pylist(), split.side("all").collect()["x"].to_pylist()
        ([True], [True, False])
        """
        ...

    def watermark(self, time: int) -> None:
        """Declare that no row before ``time`` is expected; for operators with ``makes_time``.

        Args:
            time: microseconds since 1970.

        Raises: ContractViolation if the operator does not set ``makes_time``, or ``time`` is no integer.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Timed(flow.Operator):
        ...     makes_time = True
        ...     def process(self, port, batch, out):
        ...         out.watermark(7)
        >>> class Print(flow.Operator):
        ...     def advance(self, watermark, out):
        ...         print("last" if watermark == 2**63 - 1 else watermark)
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).apply(Timed).apply(Print).collect()
        7
        last
        """
        ...

    def idle(self) -> None:
        """Declare that event time is unknown until the next row or watermark; for operators with ``makes_time``.

        Operators after it then take their time from their other inputs.

        Raises: ContractViolation if the operator does not set ``makes_time``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Quiet(flow.Operator):
        ...     makes_time = True
        ...     def process(self, port, batch, out):
        ...         out.emit(batch)
        ...         out.idle()
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).apply(Quiet).collect()["x"].to_pylist()
        [1]
        """
        ...


def _not_scheduled(due: int) -> None:
    raise NotImplementedError("this context was built without schedule_at=, so nothing calls a timer")


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The arguments of an operator's constructor.

    Attributes:
        name: the operator's stable name.
        subtask: its index, below ``parallelism``.
        input_schemas: one schema per port.
        output_schema: the schema of the main output.
        key_groups: the range of key groups (of ``max_key_groups``) whose keys this subtask processes.
        restored: this subtask's own snapshot; None on a fresh start.
        clock: the clock of the run. ``clock.now()`` measures how long something takes. ``clock.time()`` is time by the
            clock, in microseconds since 1970: it is the same for all operators of a job, goes on where a restored
            checkpoint was taken, follows the wall clock, and never goes back.
        schedule: ``schedule(due)`` asks for one call of ``timer(due, out)`` at or after ``due`` (microseconds of
            ``clock.now()``). Timers are not in the snapshot: schedule them again in ``open``.
        run_id: identifies the run.
        tally: counts the rows that the operator does not pass on.
        splits: the splits of the source that feeds it; None: its rows come from another task.
        repeats: whether rows that are in a snapshot may come again after it is restored, because the checkpoints are of
            mode "unaligned".
        repeated: whether rows may have come twice, or will in this run: the restored checkpoint, or one before it, has
            duplicates to report. It is a fact of the state, whatever the mode is now.
        spill: where rows of a batch are sorted if they are too many for memory.
        emitted: takes note of batches of a user's function that wait here before they are emitted: see
            ``dataflow.contracts.emitted_rows``.
        schedule_at: ``schedule_at(due)`` does as ``schedule``, for microseconds of ``clock.time()``.
        watermark: the last watermark that the operator had passed on when the restored checkpoint was taken, in
            microseconds since 1970; None: none.
        time_restarts: whether the job was restored with another parallelism, so that the time of all later tasks starts
            again: an operator that makes time emits its watermark again.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Named(flow.Operator):
    ...     def __init__(self, context):
    ...         self.name = f"{context.name}[{context.subtask}]"
    ...     def process(self, port, batch, out):
    ...         out.emit(batch.append_column("by", pa.array([self.name] * batch.num_rows)))
    >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]})), name="in")
    >>> named = rows.apply(Named, schema=pa.schema({"x": pa.int64(), "by": pa.string()}), name="named")
    >>> named.collect().to_pylist()
    [{'x': 1, 'by': 'named[0]'}]
    """

    name: str
    subtask: int
    parallelism: int
    input_schemas: tuple[pa.Schema, ...]
    output_schema: pa.Schema
    key_groups: range
    max_key_groups: int
    restored: Snapshot | None
    clock: OperatorClock
    schedule: Callable[[int], None]
    run_id: str = "run"
    tally: RowTally = field(default_factory=RowTally)
    splits: LiveSplits | None = None
    repeats: bool = False
    repeated: bool = False
    spill: Spill = field(default_factory=Spill)
    emitted: Unwatched = UNWATCHED
    schedule_at: Callable[[int], None] = _not_scheduled
    watermark: int | None = None
    time_restarts: bool = False


class Operator:
    """The base class of operators, which take batches and emit batches. The module has the order of calls.

    Attributes:
        stateless: whether the output depends only on the batch at hand. It decides the colour of emitted rows, so leave
            it False if in doubt. After an operator that is not stateless, the report of a restore in mode "unaligned"
            may be too low, because rows may be held in the operator's state.
        blocking: whether a call may wait for something outside (a disk, a socket): its task gets a thread of its own.
        makes_time: whether it emits watermarks (``out.watermark``), which replace those of its inputs. The engine
            passes on the last one, which is after every time, and does not ask ``held``. Until a subtask has had a row
            or emitted a watermark, it passes on the idleness of its inputs; after that only ``out.idle`` counts.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Count(flow.Operator):
    ...     def __init__(self, context):
    ...         self.rows = context.restored.values["rows"] if context.restored else 0
    ...     def process(self, port, batch, out):
    ...         self.rows += batch.num_rows
    ...     def finish(self, out):
    ...         out.emit(pa.record_batch({"rows": [self.rows]}))
    ...     def snapshot(self):
    ...         return flow.Snapshot({"rows": self.rows})
    >>> stream = flow.Pipeline().source(op.from_arrow(pa.table({"x": ["a", "b"]})))
    >>> stream.apply(Count, schema=pa.schema({"rows": pa.int64()})).collect()["rows"].to_pylist()
    [2]
    """

    stateless: ClassVar[bool] = False
    blocking: ClassVar[bool] = False
    makes_time: ClassVar[bool] = False

    context: OperatorContext
    """The context that the operator was built with. Set only by the constructor below."""

    def __init__(self, context: OperatorContext | None = None) -> None:
        """Keep ``context``. A subclass may have a constructor of its own, and need not call this one."""
        if context is not None:
            self.context = context

    @property
    def kernels(self) -> Sequence[str]:
        """The modules to import before the first row, because importing them compiles or loads code for this operator.

        The local and the simulated runner import them before the job reads a row, takes a checkpoint or measures a
        step, and before a restore, if this is a class attribute or the operator is one of the library. Operators import
        such a module in the function that calls it, so that building a pipeline stays fast.
        """
        return ()

    @classmethod
    def show(cls, spec: Any, snapshot: Snapshot, inputs: Sequence[pa.Schema], output: pa.Schema) -> Snapshot:
        """Return the state as `CheckpointState` shows it to predicates: by default, as it was stored.

        Args:
            spec: the settings of the operator, as in the pipeline.
            snapshot: the state of one subtask, read from a checkpoint.
            inputs: the schema of each input.
            output: the schema of the main output.
        """
        return snapshot

    @classmethod
    def rescale(cls, parts: Sequence[StatePart], context: RescaleContext) -> Snapshot:
        """Return the state of one new subtask, made of what all old ones saved by hand; called for each new subtask.

        Operators that declare their state (`flow.Stateful`) need none. Without it, a checkpoint with the state of this
        operator is refused at another parallelism.

        Args:
            parts: what each old subtask saved, by ascending number. Their tables are shared: never write into them.
            context: the new subtask.

        Returns: what the new subtask finds in ``context.restored``.

        Raises: NotImplementedError, unless a subclass defines it.

        >>> import pyarrow as pa, dataflow as flow
        >>> class Sums(flow.Operator):
        ...     @classmethod
        ...     def rescale(cls, parts, context):
        ...         rows = pa.concat_tables([part.snapshot.tables["sums"] for part in parts])
        ...         return flow.Snapshot(tables={"sums": context.owned(rows)})
        >>> saved = flow.Snapshot(tables={"sums": pa.table({"k": [1, 2, 3], "sum": [10, 20, 30]})})
        >>> new = flow.RescaleContext("sums", 0, 1, 2, range(128), 128, ["k"])
        >>> Sums.rescale([flow.StatePart(0, saved, range(64), None)], new).tables["sums"].num_rows
        3
        """
        raise NotImplementedError(f"{cls.__name__} has no rescale(parts, context)")

    def open(self) -> None:
        """Acquire resources. Called once, after construction and before any row.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Named(flow.Operator):
        ...     def open(self):
        ...         self.names = {1: "one", 2: "two"}  # as a lookup in a database would return
        ...     def process(self, port, batch, out):
        ...         out.emit(pa.record_batch({"x": [self.names[x] for x in batch["x"].to_pylist()]}))
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"x": [2, 1]})))
        >>> rows.apply(Named, schema=pa.schema({"x": pa.string()})).collect()["x"].to_pylist()
        ['two', 'one']
        """

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        """Process a batch.

        Args:
            port: the number of the input that the batch came from.
            batch: its rows; shared, so never write into its memory.
            out: takes the rows to emit.

        Returns: None, or a generator that yields after each emitted batch.

        Raises: NotImplementedError, unless a subclass defines it. An error of the operator fails the job, with the
            operator, subtask and a sample of the batch as notes.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Twice(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         for _ in range(2):
        ...             out.emit(batch)
        ...             yield
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).apply(Twice).collect()["x"].to_pylist()
        [1, 1]
        """
        raise NotImplementedError(f"{type(self).__name__} cannot take rows; define process(port, batch, out)")

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """Handle a new watermark. After this call the engine passes on what ``held`` returns for it.

        Args:
            watermark: the merged watermark of all inputs, microseconds since 1970: no earlier row is expected. The last
                one, before ``finish``, is after every time: 2**63 - 1. Watermarks rise; none is given twice.
            out: takes the rows to emit.

        Returns: None, or a generator that yields after each emitted batch.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Print(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         print("rows", batch["at"].cast("int64").to_pylist())
        ...     def advance(self, watermark, out):
        ...         print("last" if watermark == 2**63 - 1 else watermark)
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"at": pa.array([3, 9], pa.timestamp("us"))})))
        >>> printed = rows.with_watermark("at", delay="2us").apply(Print).collect()
        rows [3, 9]
        7
        last
        """

    def held(self, watermark: int) -> int:
        """Return the watermark to pass on instead of ``watermark``: by default, the same.

        An operator that keeps rows, or will emit rows of earlier times, holds the watermark back, so that these rows
        are not late downstream. It is asked after ``advance`` and all rows that this emitted. A value that is not above
        the last one passed on changes nothing downstream, and a restored operator passes on nothing that it passed on
        before its snapshot. It is not asked about the last watermark, 2**63 - 1, which is passed on unchanged, as
        idleness is; nor if the operator sets ``makes_time``.

        Args:
            watermark: the one that ``advance`` was just given.

        Returns: microseconds since 1970, at most ``watermark``; more is a ContractViolation.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Behind(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         out.emit(batch)
        ...     def held(self, watermark):
        ...         return watermark - 5
        >>> class Print(flow.Operator):
        ...     def advance(self, watermark, out):
        ...         print("last" if watermark == 2**63 - 1 else watermark)
        ...     def process(self, port, batch, out): ...
        >>> rows = flow.Pipeline().source(op.from_arrow(pa.table({"at": pa.array([30], pa.timestamp("us"))})))
        >>> printed = rows.with_watermark("at").apply(Behind).apply(Print).collect()
        25
        last
        """
        return watermark

    def ended(self, port: int, out: Out) -> Iterator[None] | None:
        """Handle the end of a port: no row comes from it any more. By default, nothing is done.

        It is called once for each port, before a watermark that moves because the port does not hold it back any more.
        After a restore it is not called again for a port that had ended before the snapshot. In mode "unaligned" a
        restore may still repeat rows of such a port.

        Args:
            port: the number of the input, from 0.
            out: takes the rows to emit.

        Returns: None, or a generator that yields after each emitted batch.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Print(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         print("rows of port", port)
        ...     def ended(self, port, out):
        ...         print("end of port", port)
        ...     def finish(self, out):
        ...         print("end of all")
        >>> printed = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).apply(Print).collect()
        rows of port 0
        end of port 0
        end of all
        """

    def timer(self, due: int, out: Out) -> Iterator[None] | None:
        """Handle a timer. It is not called if every input ends before ``due``: emit the rest in ``finish``.

        Args:
            due: the time given to ``context.schedule``, microseconds of the clock.
            out: takes the rows to emit.

        Returns: None, or a generator that yields after each emitted batch.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Later(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         self.batch = batch
        ...         self.context.schedule(self.context.clock.now())
        ...     def timer(self, due, out):
        ...         out.emit(self.batch)
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).apply(Later).collect()["x"].to_pylist()
        [1]
        """

    def finish(self, out: Out) -> Iterator[None] | None:
        """Emit what is left, because every input ended.

        Args:
            out: takes the rows to emit.

        Returns: None, or a generator that yields after each emitted batch.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Last(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         self.row = batch.slice(batch.num_rows - 1)
        ...     def finish(self, out):
        ...         out.emit(self.row)
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]}))).apply(Last).collect()["x"].to_pylist()
        [2]
        """

    def snapshot(self) -> Snapshot:
        """Return the state now, in memory of its own. By default, there is none.

        >>> import pyarrow as pa, dataflow as flow
        >>> class Largest(flow.Operator):
        ...     largest = 0
        ...     def process(self, port, batch, out):
        ...         self.largest = max(self.largest, *batch["x"].to_pylist())
        ...     def snapshot(self):
        ...         return flow.Snapshot({"largest": self.largest})
        >>> operator = Largest()
        >>> operator.process(0, pa.record_batch({"x": [3, 2]}), out=None)
        >>> operator.snapshot().values  # the constructor of a restored one finds it in context.restored
        {'largest': 3}
        """
        return Snapshot()

    def close(self) -> None:
        """Release resources. Called once, also after an error. What it raises is a ``CleanupFailedWarning``.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> class Copy(flow.Operator):
        ...     def process(self, port, batch, out):
        ...         out.emit(batch)
        ...     def close(self):
        ...         print("closed")
        >>> flow.Pipeline().source(op.from_arrow(pa.table({"x": [1]}))).apply(Copy).collect()["x"].to_pylist()
        closed
        [1]
        """


OperatorFactory = Callable[[OperatorContext], Operator]
