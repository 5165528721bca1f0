"""Rows as they come: the operator at the head of a source's task."""

from __future__ import annotations

import pyarrow as pa

from dataflow.operator import Operator, Out

__all__ = ["PassThrough"]


class PassThrough(Operator):
    """Emits what it takes, whichever columns that has: a source may give fewer than it could."""

    stateless = True

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)
