"""A pipeline with duplicates in mode "unaligned" for certain, in the process that a comparison kills.

Both subtasks of ``relay`` send rows to both of ``taken``. Whether rows come between two barriers is up to the threads,
so here the subtasks wait for each other:

1. Each subtask of ``taken`` holds a batch until relay 0 has sent the next barrier. So relay 0 has rows left by then.
2. Relay 1 holds a batch, and so its barrier, until ``taken`` has a row that relay 0 sent after its barrier. In mode
   "unaligned" this row is in the snapshot and is read again.
3. In the next checkpoint relay 1 holds its batch for ever: there the process is killed.

In mode "aligned" step 2 would never end. So no subtask waits in another process, such as that of the comparison, where
the warm-up, the undisturbed run and the restored run are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Condition

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow.compare import trial

__all__ = ["pipeline"]

_ROWS = 8_000
_WAITS = getattr(sys.modules["__main__"], "__file__", None) == trial.__file__


class _Progress:
    """How far the subtasks are. ``changed`` guards all attributes."""

    changed = Condition()
    barriers = (0, 0)
    """Barriers that each subtask of ``relay`` sent."""
    red: int | None = None
    """The first row that relay 0 sent after its last barrier."""
    duplicated = 0
    """The first checkpoint with a duplicate; 0: none so far."""


def _wait_for(condition: Callable[[], bool]) -> None:
    if _WAITS:
        with _Progress.changed:
            _Progress.changed.wait_for(condition)


class _Stage(flow.Operator):
    stateless = True
    blocking = True
    barriers = 0

    def snapshot(self) -> flow.Snapshot:
        with _Progress.changed:
            self.barriers += 1
            self.sent()
            _Progress.changed.notify_all()
        return flow.Snapshot()

    def sent(self) -> None:
        """Note that a barrier left."""


class _Relay(_Stage):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        if self.context.subtask == 1:
            _wait_for(lambda: self.barriers < _Progress.duplicated)
        elif self.barriers:
            with _Progress.changed:
                first = batch["x"][0].as_py()
                _Progress.red = first if _Progress.red is None else _Progress.red
        out.emit(batch)

    def sent(self) -> None:
        if self.context.subtask == 0:
            _Progress.barriers, _Progress.red = (self.barriers, _Progress.barriers[1]), None
        else:
            _Progress.barriers = (_Progress.barriers[0], self.barriers)


class _Taken(_Stage):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        _wait_for(lambda: self.barriers < _Progress.barriers[0])
        out.emit(batch)
        with _Progress.changed:
            zero, one = _Progress.barriers
            red = _Progress.red is not None and _Progress.red <= batch["x"][-1].as_py() < _ROWS // 2
            if red and one < zero and not _Progress.duplicated:
                _Progress.duplicated = zero
                _Progress.changed.notify_all()


def pipeline() -> flow.Pipeline:
    """Count by key; relay 0 sends the first half of the rows and relay 1 the second half."""
    numbers = pa.table({"k": [i % 20 for i in range(_ROWS)], "x": range(_ROWS)})
    with flow.Pipeline("held") as p:
        relayed = p.source(op.from_arrow(numbers, splits=2, batch_rows=40), name="numbers").apply(_Relay, name="relay")
        taken = relayed.key_by("k").apply(_Taken, name="taken")
        taken.key_by("k").agg(op.count().alias("n"), emit="updates", name="counts").sink(op.collect(), name="totals")
    return p
