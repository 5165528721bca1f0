"""A node of a chain that looks for rows of a user's operator that change after they were emitted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataflow.runtime.task.chain import ChainNode

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.emitted_rows import Unwatched

__all__ = ["WatchedNode"]


class WatchedNode(ChainNode):
    """Checks what was emitted after each call of the operator, which may have written into it."""

    emitted: Unwatched

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        self.emitted.add(batch)
        super().emit(batch, tag)

    def work(self) -> None:
        super().work()
        self.emitted.check()

    def ring(self, due: int, number: int = 0) -> None:
        super().ring(due, number)
        self.emitted.check()
