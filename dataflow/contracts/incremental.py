"""State whose checkpoints hold what changed: a log of rows.

A base holds the whole state, a delta what changed since an older checkpoint. A restore gets a base and then deltas, in
order. What a row of a delta means is up to the state: a row appended, or a new value that replaces an older one.

The order of calls on the thread of the task, for checkpoints n1 < n2 < ...::

    freeze(n1, None)        # a base
    freeze(n2, None)        # n1 is not durable yet, so n2 is a base, too
    durable(n1)
    freeze(n3, n1)          # what changed since freeze(n1), also if n2 has it
    freeze(n4, None)        # a base: a savepoint, or the deltas have become large

``durable`` comes before the first ``freeze`` that names the checkpoint as ``since``, with increasing ids, and is not
called for every checkpoint. After a restore it may name the restored checkpoint, for which this object was never asked
to freeze: then a delta holds what changed since construction. A checkpoint that failed, was aborted, or is still
pending is never named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Counted", "Incremental"]


@runtime_checkable
class Incremental(Protocol):
    """State whose checkpoints hold what changed: a base, then deltas. See the module for the order of calls.

    An operator returns it in ``Snapshot.logs``; a restored operator finds the tables of the base and of the deltas
    there.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> class Seen(flow.Operator):  # itself the state: all rows so far
    ...     def __init__(self, context):
    ...         parts = context.restored.logs["seen"] if context.restored else []
    ...         self.rows = [batch for part in parts for batch in part["rows"].to_batches()]
    ...         self.lengths = {}
    ...     def process(self, port, batch, out):
    ...         self.rows.append(batch)
    ...     def snapshot(self):
    ...         return flow.Snapshot(logs={"seen": self})
    ...     def freeze(self, checkpoint, since):
    ...         self.lengths[checkpoint] = len(self.rows)
    ...         new = self.rows[self.lengths.get(since, 0):] if since else list(self.rows)
    ...         return {"rows": pa.RecordBatchReader.from_batches(pa.schema({"x": pa.int64()}), new)}
    ...     def durable(self, checkpoint):
    ...         self.lengths = {n: length for n, length in self.lengths.items() if n >= checkpoint}
    >>> numbers = flow.Pipeline().source(op.from_arrow(pa.table({"x": [1, 2]})), name="numbers")
    >>> store = flow.MemoryStore()
    >>> rows = numbers.apply(Seen, name="seen").collect(checkpoint=flow.Checkpointing(store))
    >>> [(part.task, part.part) for part in store.manifest(1).parts]
    [('numbers[0]', 0), ('numbers[0]', 1)]
    """

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return the rows of ``checkpoint`` by table name, as readers that later changes do not affect; it is fast.

        The readers are read once, on the thread that writes the checkpoint, while the task continues; see `Snapshot`.

        Args:
            checkpoint: the id of the checkpoint that is being taken.
            since: the checkpoint on which a delta builds; None: return a base, with the whole state.
        """
        ...

    def durable(self, checkpoint: int) -> None:
        """Note that ``checkpoint`` exists: later calls of ``freeze`` name it, or a later one, as ``since``.

        Args:
            checkpoint: its id; what is only needed for deltas since older ones can be dropped.
        """
        ...


@runtime_checkable
class Counted(Protocol):
    """State that knows how many keys and rows it has."""

    @property
    def entries(self) -> int:
        """The number of its keys, and of its rows beside them."""
        ...
