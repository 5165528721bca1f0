"""The contract of operators with the engine. Sinks are in ``dataflow.contracts.sink``, sources in ``...source``.

The engine calls, the operator answers; nothing here starts a thread or reads a clock. Everything an operator needs at
birth comes in an ``OperatorContext``, restored state included: **restoring is constructing**. The calls, in order::

    operator = factory(context)          # context.restored holds its snapshot, or None on a fresh start
    operator.open()                      # once, before the first row
    operator.process(port, batch, out)   # any number of these four, never two at a time,
    operator.advance(watermark, out)     # and never between a barrier and the snapshot it asks for
    operator.timer(due, out)
    operator.snapshot()
    operator.finish(out)                 # once, when every input ended; rows may still be emitted
    operator.snapshot()                  # the last checkpoint comes after finish
    operator.close()                     # always, also after an error

``process`` gets batches in slices where it is slow: the engine keeps a step within a budget (10 ms unless told
otherwise), for a barrier waits for the step in progress. What must be seen together belongs into state, or under one
key, never into the cut of a batch.

A call that emits more than one batch returns a generator and yields after each one, so that the engine can wait for
room downstream between them; no barrier is taken while one is pending.

No two calls run at a time. One thing does run beside them: a reader among the tables of a ``Snapshot`` is read on the
thread that writes the checkpoint (see there). An operator that gives tables only needs no thought for threads.

Emitted batches must match the schema declared in ``apply``: columns are found by name, and a batch with other columns
or types is refused with the operator's name. So is a tag that ``apply(sides=)`` does not declare.

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
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dataflow.clock import Clock
from dataflow.contracts.row_errors import RowTally
from dataflow.contracts.source import Json, LiveSplits

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Operator", "OperatorContext", "OperatorFactory", "Out", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An operator's state at a barrier: nothing the operator does later may show through.

    ``values`` holds small things as JSON; ``tables`` holds columns. A table that is a ``pa.Table`` owns its memory:
    numpy memory must be *copied* into it (``pa.array(numpy_array)`` shares it).

    State that takes long to copy is given as a ``pa.RecordBatchReader``. It is read once, to its end, on the thread
    that writes the checkpoint, *while the operator goes on*, and must give the state as it was when ``snapshot``
    returned. Readers are read one after the other, in the order of ``tables``; that may be some checkpoints later where
    the disk is slow, so several may wait at a time. A checkpoint that is given up drops its readers unread or half
    read, and what they hold must go with them. After a restore ``context.restored.tables`` has a ``pa.Table`` for each.
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    tables: Mapping[str, pa.Table | pa.RecordBatchReader] = field(default_factory=dict)


class Out(Protocol):
    """Where an operator sends its rows. The batch belongs to the engine from then on: never write into it again."""

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        """Send ``batch`` downstream; ``tag`` names a side output (None: the main one). Empty batches are dropped.

        Raises: SchemaMismatch for columns or types that were not declared (their order is free); ContractViolation for
        a tag that was not declared, or for anything but a record batch.
        """
        ...

    def watermark(self, time: int) -> None:
        """Say that no row before ``time`` (microseconds) is expected any more; for operators that ``make_time``."""
        ...

    def idle(self) -> None:
        """Say that nothing is known about time until the next row or watermark; for operators that ``make_time``."""
        ...


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator is born with.

    ``name`` is the operator's stable name and ``subtask`` its index below ``parallelism``. ``input_schemas`` has one
    schema a port. ``key_groups`` is the range of key groups (out of ``max_key_groups``) whose keys come here.
    ``restored`` is this subtask's own snapshot, or None. ``schedule(due)`` asks for one call of ``timer(due, out)`` at
    or after ``due`` (microseconds of ``clock``); timers are not in the snapshot: ask again in ``open``. ``tally``
    counts the rows that the operator does not pass on. ``splits`` tells of the source that feeds it; None: its rows
    come from another task. ``repeats`` says that rows which are in a snapshot may come again after it is restored: the
    checkpoints are of mode "unaligned".
    """

    name: str
    subtask: int
    parallelism: int
    input_schemas: tuple[pa.Schema, ...]
    output_schema: pa.Schema
    key_groups: range
    max_key_groups: int
    restored: Snapshot | None
    clock: Clock
    schedule: Callable[[int], None]
    run_id: str = "run"
    tally: RowTally = field(default_factory=RowTally)
    splits: LiveSplits | None = None
    repeats: bool = False


class Operator:
    """A piece of a pipeline that takes batches and emits batches. See the module's text for the order of calls.

    ``stateless`` says that what comes out depends on the batch that went in and nothing else; it decides the colour of
    emitted rows, so when in doubt leave it False. Downstream of an operator that is not stateless the report of a
    restore in mode "unaligned" may be too low, because rows may be held in the operator's state.
    ``blocking`` says that a call may wait for something outside (a disk, a socket): its task gets a thread of its own.
    ``makes_time`` says that it gives watermarks of its own (``out.watermark``), which take the place of those that come
    in; the last one, behind every time, is passed on by the engine.
    ``watermark_delay`` (microseconds) says how far the operator's time lags its input's: the engine subtracts it
    from each watermark before it calls ``advance`` and passes the watermark on. It is fixed before ``open``. The last
    watermark, behind every time, is not reduced.
    """

    stateless: ClassVar[bool] = False
    blocking: ClassVar[bool] = False
    makes_time: ClassVar[bool] = False
    watermark_delay: int = 0

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

    def open(self) -> None:
        """Acquire resources. Called once, after construction and before any row."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None] | None:
        """Take a batch that came in on input ``port``."""
        raise NotImplementedError(f"{type(self).__name__} takes no rows: define process(port, batch, out)")

    def advance(self, watermark: int, out: Out) -> Iterator[None] | None:
        """The merged watermark (microseconds) moved; the engine forwards it downstream after this call."""

    def timer(self, due: int, out: Out) -> Iterator[None] | None:
        """A time asked for through ``context.schedule`` has come."""

    def finish(self, out: Out) -> Iterator[None] | None:
        """Every input ended: emit what is left."""

    def snapshot(self) -> Snapshot:
        """The state now, in memory of its own."""
        return Snapshot()

    def close(self) -> None:
        """Release resources. Called once, whatever happened."""


OperatorFactory = Callable[[OperatorContext], Operator]
