"""An operator that emits its input unchanged: the first operator of a source's task."""

from __future__ import annotations

import pyarrow as pa

from dataflow.contracts.operator import Operator, Out

__all__ = ["PassThrough"]


class PassThrough(Operator):
    """Emits its input, whatever its columns: a source may read only some of them."""

    stateless = True

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)
