"""Operators as users write them, made from a few functions, and a job that runs one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op

__all__ = [
    "AWB",
    "ROWS",
    "RUNNERS",
    "TWICE",
    "checkpoints",
    "doing",
    "emitting",
    "everywhere",
    "failing",
    "run",
    "said",
]

ROWS = pa.table({"a": [1, 2, 3, 4], "b": [10, 20, 30, 40], "w": [7, 7, 8, 8]})
AWB = pa.schema({"a": pa.int64(), "w": pa.int64(), "b": pa.int64()})
TWICE = pa.schema([("a", pa.int64()), ("a", pa.int64())])
RUNNERS = ["local", "simulated"]
everywhere = pytest.mark.parametrize("runner", RUNNERS)


def checkpoints() -> flow.Checkpointing:
    return flow.Checkpointing(flow.MemoryStore(), every="1ms")


def doing(**methods: Callable[..., Any]) -> type[flow.Operator]:
    """An operator class with these methods; it passes rows on where they do not say otherwise."""
    passing = {"process": lambda self, port, batch, out: out.emit(batch)}
    return type("Mine", (flow.Operator,), {**passing, **methods})


def emitting(make: Callable[[pa.RecordBatch], Any], tag: str | None = None) -> type[flow.Operator]:
    """An operator class that emits what ``make`` returns for each batch."""
    return doing(process=lambda self, port, batch, out: out.emit(make(batch), tag))


def run(operator: Any, runner: str = "local", schema: pa.Schema | None = None, **options: Any) -> pa.Table:
    """Run a job that passes ``ROWS`` through an operator called "mine"; return what comes out."""
    rows = flow.Pipeline().source(op.from_arrow(ROWS, batch_rows=2), name="in")
    return rows.apply(operator, schema=schema, name="mine").collect(runner=runner, **options)


def said(error: BaseException) -> str:
    """The message of an error with its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def failing(*_: Any) -> Any:
    raise ValueError("no")
