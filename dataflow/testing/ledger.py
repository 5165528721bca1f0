"""A two-phase sink that outlives crashes and holds the engine to the contract of ``TwoPhaseSink``.

The rows live in a ``Ledger``, which stands for the outside world: a crash of the job does not touch it. Everything the
engine may not do with a two-phase sink raises ``ContractBroken`` here, at the moment it is done.

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
    """The engine did with a two-phase sink what it must never do. Not an ``Exception``: a retry must not hide it."""


@dataclass(frozen=True, slots=True)
class _Transaction:
    """The rows that one subtask prepared at one barrier."""

    prepared: int
    subtask: int
    batches: tuple[pa.RecordBatch, ...]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for batch in self.batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


class Ledger:
    """The world of one sink: what is staged, and what everybody can see.

    Args:
        durable: the checkpoints that exist, asked at every commit; None: not known here.
        fault: called with ``"prepare"`` or ``"commit"`` before each of these (also between the transactions of one
            commit); what it raises is what the sink raises. ``StoreError`` means "not now".
    """

    def __init__(
        self,
        *,
        durable: Callable[[], Collection[int]] | None = None,
        fault: Callable[[str], None] = lambda what: None,
    ) -> None:
        self.durable = durable
        self.fault = fault
        self.life = 0
        """How many jobs began to write here; the writers of all but the last are dead."""
        self._count = 0
        self._staged: dict[str, _Transaction] = {}
        self._visible: dict[str, _Transaction] = {}
        self.rolled_back = 0
        """Rows that were visible and had to be taken back, because an older checkpoint was restored."""

    def rows(self) -> Counter[tuple[Any, ...]]:
        """What is visible, as a multiset of rows."""
        return Counter(row for transaction in self._visible.values() for row in transaction.rows)

    def last(self, keys: int = 1) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The last visible row of each key (the first ``keys`` columns): what a changelog comes to.

        The order is that of the transactions, so all rows of a key must go to the same subtask of the sink.
        """
        order = sorted(self._visible.values(), key=lambda transaction: (transaction.prepared, transaction.subtask))
        return {row[:keys]: row[keys:] for transaction in order for row in transaction.rows}

    @property
    def staged(self) -> int:
        """How many prepared transactions are not visible."""
        return len(self._staged)

    # --- what the sink does

    def begin(self) -> None:
        """A job starts afresh."""
        if self._visible:
            raise OutputExists(f"the ledger shows {self.rows().total()} rows of another run")
        self.life += 1
        self._staged.clear()

    def prepare(self, checkpoint: int, subtask: int, batches: Sequence[pa.RecordBatch]) -> Handle:
        """Keep the rows of a transaction, durably and out of sight."""
        self.fault("prepare")
        self._count += 1
        handle = f"{checkpoint}-{subtask}-{self._count}"
        self._staged[handle] = _Transaction(checkpoint, subtask, tuple(batches))
        return {"transaction": handle}

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Make transactions visible, one after the other."""
        if self.durable is not None and checkpoint > max(self.durable(), default=0):
            raise ContractBroken(f"commit of checkpoint {checkpoint}, but only {sorted(self.durable())} are durable")
        self._show(checkpoint, handles)
        forgotten = {handle: kept.prepared for handle, kept in self._staged.items() if kept.prepared <= checkpoint}
        if forgotten:
            raise ContractBroken(f"commit of checkpoint {checkpoint} leaves out the prepared transactions {forgotten}")

    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        """Go back to what ``checkpoint`` says: its transactions visible, later ones taken back, nothing staged."""
        self.life += 1
        self._show(checkpoint, handles)
        self._staged.clear()
        for handle, transaction in list(self._visible.items()):
            if transaction.prepared > checkpoint:
                self.rolled_back += len(transaction.rows)
                del self._visible[handle]

    def _show(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        names = [str(handle["transaction"]) for handle in handles]
        if len(set(names)) < len(names):
            raise ContractBroken(f"commit of checkpoint {checkpoint}: a handle comes twice in {names}")
        for name in names:
            if name in self._visible:
                continue
            self.fault("commit")
            if name not in self._staged:
                raise ContractBroken(f"commit of checkpoint {checkpoint}: nobody prepared {name!r}, or it was deleted")
            if self._staged[name].prepared > checkpoint:
                raise ContractBroken(f"commit of checkpoint {checkpoint} has {name!r}, prepared at a later barrier")
            self._visible[name] = self._staged.pop(name)


class LedgerSink(TwoPhaseSink):
    """See ``ledger_sink``."""

    def __init__(self, world: Ledger) -> None:
        self._world = world

    def writer(self, context: OperatorContext) -> _LedgerWriter:
        return _LedgerWriter(self._world, context.name, context.subtask)

    def begin(self) -> None:
        self._world.begin()

    def commit(self, checkpoint: int, handles: Sequence[Mapping[str, Any]]) -> None:
        self._world.commit(checkpoint, handles)

    def recover(self, checkpoint: int, handles: Sequence[Mapping[str, Any]]) -> None:
        self._world.recover(checkpoint, handles)


class _LedgerWriter(TwoPhaseWriter):
    """One subtask. What is not prepared is memory, and dies with the job."""

    def __init__(self, world: Ledger, name: str, subtask: int) -> None:
        self._world = world
        self._life = world.life
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
        if self._life != self._world.life:
            raise ContractBroken(f"{self._name}[{self._subtask}]: {what} from a job that is dead")


def ledger_sink(world: Ledger) -> LedgerSink:
    """A sink into ``world``. A world belongs to one sink; keep it over the restarts of a job."""
    return LedgerSink(world)
