"""Operators, sources and sinks that misbehave on purpose; each says how in its name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Literal

import pyarrow as pa

import dataflow as flow
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import END, EndOfSplit, Json, SourceContext

__all__ = ["CountingSource", "FlakySink", "Gatekeeper", "SilentSource"]


class CountingSource(flow.Source):
    """``batches`` batches of ten ascending numbers in ``n``; None: no end. ``raising`` is called before each poll."""

    def __init__(self, batches: int | None = None, raising: Callable[[int], None] = lambda batch: None) -> None:
        self.bounded = batches is not None
        self._batches = batches
        self._raising = raising

    @property
    def schema(self) -> pa.Schema:
        return pa.schema({"n": pa.int64()})

    def splits(self) -> Sequence[flow.Split]:
        return (flow.Split("numbers"),)

    def reader(self, split: flow.Split, offset: Json, context: SourceContext) -> flow.SplitReader:
        assert offset is None or isinstance(offset, int)
        return _CountingReader(offset or 0, self._batches, self._raising)


class _CountingReader(flow.SplitReader):
    def __init__(self, at: int, batches: int | None, raising: Callable[[int], None]) -> None:
        self._at = at
        self._batches = batches
        self._raising = raising

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        self._raising(self._at)
        if self._batches is not None and self._at >= self._batches:
            return END
        self._at += 1
        return pa.record_batch({"n": pa.array(range(self._at * 10 - 10, self._at * 10), pa.int64())})

    @property
    def offset(self) -> Json:
        return self._at


class SilentSource(CountingSource):
    """It never has anything to give."""

    def reader(self, split: flow.Split, offset: Json, context: SourceContext) -> flow.SplitReader:
        return _SilentReader()


class _SilentReader(flow.SplitReader):
    def poll(self, max_rows: int) -> None:
        return None

    @property
    def offset(self) -> Json:
        return 0


class Gatekeeper:
    """A function for ``map_batches`` that waits, from the batch numbered ``first`` on, until it is let through."""

    def __init__(self, first: int = 0) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()
        self._left = first

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self._left == 0:
            self.reached.set()
            assert self.open.wait(60), "nobody opened the gate"
        else:
            self._left -= 1
        return batch


class FlakySink(flow.TwoPhaseSink):
    """Keeps rows in memory in two phases; ``commit`` asks ``failing(attempt)`` first, which may raise."""

    def __init__(self, failing: Callable[[int], None] = lambda attempt: None) -> None:
        self.committed: dict[str, list[int]] = {}
        self.staged: dict[str, list[int]] = {}
        self.attempts = 0
        self._failing = failing

    @property
    def rows(self) -> list[int]:
        """All committed rows."""
        return sorted(n for rows in self.committed.values() for n in rows)

    def writer(self, context: flow.OperatorContext) -> flow.TwoPhaseWriter:
        return _FlakyWriter(self, context.subtask)

    def begin(self) -> None:
        self.staged.clear()

    def commit(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        self.attempts += 1
        self._failing(self.attempts)
        for handle in handles:
            name = str(handle["name"])
            self.committed.setdefault(name, self.staged.get(name, []))  # an earlier sink's rows are its own

    def recover(self, checkpoint: int, handles: Sequence[Handle]) -> None:
        self.commit(checkpoint, handles)


class _FlakyWriter(flow.TwoPhaseWriter):
    def __init__(self, sink: FlakySink, subtask: int) -> None:
        self._sink = sink
        self._subtask = subtask
        self._rows: list[int] = []

    def process(self, port: int, batch: pa.RecordBatch, out: Any) -> None:
        self._rows += batch["n"].to_pylist()

    def prepare(self, checkpoint: int) -> Sequence[Handle]:
        name = f"{checkpoint}-{self._subtask}"
        self._sink.staged[name], self._rows = self._rows, []
        return [{"name": name}]
