"""A two-phase sink for tests, which checks that the engine keeps the contract of ``TwoPhaseSink``.

The rows are in a ``Ledger``, which models the outside world: a crash of the job does not affect it. Every forbidden
call of the engine raises ``ContractBroken`` immediately.

>>> import pyarrow as pa, dataflow as flow, operators as op
>>> world = Ledger()
>>> with flow.Pipeline("x") as p:
...     p.source(op.from_arrow(pa.table({"a": [1, 2, 2]}))).sink(ledger_sink(world), name="out")
>>> run = p.run("simulated", checkpoint=flow.Checkpointing(flow.MemoryStore()))
>>> sorted(world.rows().elements())
[(1,), (2,), (2,)]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.sink import Handle, TwoPhaseSink, TwoPhaseWriter
from dataflow.errors import OutputExists

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ContractBroken", "Ledger", "LedgerSink", "ledger_sink"]


class ContractBroken(BaseException):
    """The engine broke the contract of a two-phase sink. Not an ``Exception``, so that no retry hides it.

    >>> Ledger().commit(1, [{"transaction": "1-0-1"}])
    Traceback (most recent call last):
    dataflow.testing.ledger.ContractBroken: commit of checkpoint 1: '1-0-1' was never prepared, or was deleted
    """


@dataclass(frozen=True, slots=True)
class _Transaction:
    """The rows that one subtask prepared at one barrier."""

    prepared: int
    subtask: int
    batches: tuple[pa.RecordBatch, ...]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of all batches, as tuples."""
        return [row for batch in self.batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


class Ledger:
    """The external state of one sink: staged and visible transactions.

    Args:
        durable: called at every commit, returns the ids of the durable checkpoints. None: commits are not checked
            against them.
        fault: called with ``"prepare"`` or ``"commit"`` before each prepare and before each transaction of a commit.
            The sink raises what it raises; ``StoreError`` means that the sink is temporarily unavailable.

    Attributes:
        jobs: the number of jobs that have begun to write here; only the writers of the last one are valid.
        rolled_back: the number of visible rows that were taken back because an older checkpoint was restored.

    >>> import pyarrow as pa
    >>> world = Ledger()
    >>> handle = world.prepare(1, 0, [pa.record_batch({"x": [7]})])
    >>> world.staged, world.rows()
    (1, Counter())
    >>> world.commit(1, [handle])
    >>> world.staged, world.rows()
    (0, Counter({(7,): 1}))
    """

    def __init__(
        self,
        *,
        durable: Callable[[], Collection[int]] | None = None,
        fault: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.durable = durable
        self.fault = fault
        self.jobs = 0
        self._count = 0
        self._staged: dict[str, _Transaction] = {}
        self._visible: dict[str, _Transaction] = {}
        self.rolled_back = 0

    def rows(self) -> Counter[tuple[Any, ...]]:
        """Return the visible rows as a multiset."""
        return Counter(row for transaction in self._visible.values() for row in transaction.rows)

    def last(self, keys: int = 1) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """Return the last visible row of each key: the table that a changelog results in.

        Rows are in the order of transactions, so all rows of a key must be written by the same subtask of the sink.

        Args:
            keys: the number of key columns, which are the first ones.

        Returns: for each key, the other columns of its last row.
        """
        order = sorted(self._visible.values(), key=lambda transaction: (transaction.prepared, transaction.subtask))
        return {row[:keys]: row[keys:] for transaction in order for row in transaction.rows}

    @property
    def staged(self) -> int:
        """The number of prepared transactions that are not visible."""
        return len(self._staged)

    # --- called by the sink

    def begin(self) -> None:
        """Begin a job without a checkpoint. Raises: OutputExists if there are visible rows."""
        if self._visible:
            raise OutputExists(f"the ledger has {self.rows().total()} visible rows of another run; use a new Ledger()")
        self.jobs += 1
        self._staged.clear()

    def prepare(self, checkpoint: int, subtask: int, batches: Sequence[pa.RecordBatch]) -> Handle:
        """Stage the rows of a transaction, durable and invisible, and return its handle."""
        self.fault("prepare")
        self._count += 1
        handle = f"{checkpoint}-{subtask}-{self._count}"
        self._staged[handle] = _Transaction(checkpoint, subtask, tuple(batches))
        return {"transaction": handle}

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Make transactions visible, one after the other. Raises: ContractBroken for a forbidden commit."""
        if self.durable is not None and checkpoint > max(self.durable(), default=0):
            raise ContractBroken(f"commit of checkpoint {checkpoint}, but only {sorted(self.durable())} are durable")
        self._show(checkpoint, handles)
        omitted = {handle: one.prepared for handle, one in self._staged.items() if one.prepared <= checkpoint}
        if omitted:
            raise ContractBroken(f"commit of checkpoint {checkpoint} leaves out the prepared transactions {omitted}")

    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Restore ``checkpoint``: make its transactions visible, take back later ones, drop staged ones."""
        self.jobs += 1
        self._show(checkpoint, handles)
        self._staged.clear()
        for handle, transaction in list(self._visible.items()):
            if transaction.prepared > checkpoint:
                self.rolled_back += len(transaction.rows)
                del self._visible[handle]

    def _show(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        names = [str(handle["transaction"]) for handle in handles]
        if len(set(names)) < len(names):
            raise ContractBroken(f"commit of checkpoint {checkpoint}: duplicate handle in {names}")
        for name in names:
            if name in self._visible:
                continue
            self.fault("commit")
            if name not in self._staged:
                raise ContractBroken(f"commit of checkpoint {checkpoint}: {name!r} was never prepared, or was deleted")
            if self._staged[name].prepared > checkpoint:
                raise ContractBroken(f"commit of checkpoint {checkpoint} has {name!r}, prepared at a later barrier")
            self._visible[name] = self._staged.pop(name)


class LedgerSink(TwoPhaseSink):
    """The sink that ``ledger_sink`` returns.

    >>> world = Ledger()
    >>> ledger_sink(world).begin()
    >>> world.jobs
    1
    """

    def __init__(self, world: Ledger) -> None:
        self._world = world

    def writer(self, context: OperatorContext) -> _LedgerWriter:
        """Return the writer of one subtask."""
        return _LedgerWriter(self._world, context.name, context.subtask)

    def begin(self) -> None:
        """Begin a job without a checkpoint; see ``Ledger.begin``."""
        self._world.begin()

    def commit(self, checkpoint: int, handles: Sequence[Mapping[str, Any]]) -> None:
        """Make transactions visible; see ``Ledger.commit``."""
        self._world.commit(checkpoint, handles)

    def recover(self, checkpoint: int, handles: Sequence[Mapping[str, Any]]) -> None:
        """Restore the ledger to a checkpoint; see ``Ledger.recover``."""
        self._world.recover(checkpoint, handles)


class _LedgerWriter(TwoPhaseWriter):
    """The writer of one subtask. Rows that are not prepared are in memory, and are lost with the job."""

    def __init__(self, world: Ledger, name: str, subtask: int) -> None:
        self._world = world
        self._job = world.jobs
        self._name = name
        self._subtask = subtask
        self._batches: list[pa.RecordBatch] = []
        self._finished = False
        self._last = 0

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        self._check("a row")
        if self._finished:
            raise ContractBroken(f"{self._name}[{self._subtask}]: a row after finish()")
        self._batches.append(batch)

    def finish(self, out: Out) -> None:
        self._check("finish()")
        if self._finished:
            raise ContractBroken(f"{self._name}[{self._subtask}]: finish() a second time")
        self._finished = True

    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        self._check(f"prepare({checkpoint})")
        if checkpoint <= self._last:
            raise ContractBroken(f"{self._name}[{self._subtask}]: prepare({checkpoint}) after prepare({self._last})")
        self._last = checkpoint
        if not self._batches:
            return []
        handle = self._world.prepare(checkpoint, self._subtask, self._batches)
        self._batches = []
        return [handle]

    def _check(self, what: str) -> None:
        if self._job != self._world.jobs:
            raise ContractBroken(f"{self._name}[{self._subtask}]: {what} from a job that has ended")


def ledger_sink(world: Ledger) -> LedgerSink:
    """Return a sink that writes into ``world``.

    Args:
        world: the ledger. It belongs to one sink; use the same ledger for all restarts of a job.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> world = Ledger()
    >>> with flow.Pipeline("x") as p:
    ...     p.source(op.from_arrow(pa.table({"a": [1, 2]}))).sink(ledger_sink(world), name="out")
    >>> p.run("simulated", checkpoint=flow.Checkpointing(flow.MemoryStore())).rows_out, world.rows().total()
    ({'out': 2}, 2)
    """
    return LedgerSink(world)
