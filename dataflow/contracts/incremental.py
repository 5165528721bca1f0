"""The contract of state whose checkpoints hold what changed: a base, and then deltas.

An operator returns such an object in ``Snapshot.logs``. The engine calls ``freeze`` at the barrier, writes what the
readers return, and calls ``durable`` when that checkpoint exists. After a restore the operator finds the parts that it
needs in ``context.restored.logs``: the base, then the deltas, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Incremental"]


class Incremental(Protocol):
    """State that can say what changed since an earlier checkpoint."""

    def freeze(self, checkpoint: int, since: int | None) -> Mapping[str, pa.RecordBatchReader]:
        """Return readers of the state of this moment, in constant time.

        Args:
            checkpoint: the id of the checkpoint that they are for; each call has a higher one.
            since: the id of a durable checkpoint of this state: the readers have what changed since. None: all.

        Returns: a reader for each table. They are read once, one after the other in the order of the tables, on the
        thread that writes the checkpoint, while the operator continues.
        """

    def durable(self, checkpoint: int) -> None:
        """Take note that ``checkpoint`` exists; later calls of ``freeze`` may have it as ``since``."""
