"""Operators of keyed tasks that stay in the memory of a Python worker between two micro-batches.

Restoring an operator costs as much as its whole state, even if a micro-batch has one row for it. So a worker keeps the
operators of the tasks that it ran last. Spark may call another worker for the task's next micro-batch, or repeat this
one after a failure. So operators go on only if the state in Spark has the token that they were kept with; otherwise
they are dropped, and the state is restored from Spark.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dataflow.runners.spark.task_host import MicroBatchClock
from dataflow.runtime.task.chain import ChainNode
from dataflow.runtime.task.log_chain import LogChain

__all__ = ["LIVE", "LiveOperators", "LiveTask"]

Task = tuple[Path, str, str]
"""The directory of the job, the run and the task."""


@dataclass(frozen=True, slots=True)
class LiveTask:
    """The operators of a task in memory, as ``TaskHost.keep`` returned them, and their clock.

    ``token`` identifies their state in Spark, and ``logs`` are the objects in which it is stored there. ``size`` is an
    estimate of the bytes that the operators take.
    """

    nodes: Mapping[int, ChainNode]
    logs: LogChain
    token: str
    size: int
    clock: MicroBatchClock

    def drop(self) -> None:
        """Free the memory of the operators. They refer to their nodes, so Python would free both only much later."""
        for node in self.nodes.values():
            node.free()


@dataclass(slots=True)
class LiveOperators:
    """The most recently run tasks; together they have at most as many bytes as ``keep`` says.

    None of their operators has to be closed, so they are just dropped.
    """

    _tasks: OrderedDict[Task, LiveTask] = field(default_factory=OrderedDict)
    _size: int = 0

    def take(self, task: Task, token: str) -> LiveTask | None:
        """Remove a task and return it; None: it is not here, or it was kept with another token."""
        live = self._tasks.pop(task, None)
        if live is None:
            return None
        self._size -= live.size
        if live.token == token:
            return live
        live.drop()
        return None

    def keep(self, task: Task, live: LiveTask, most: int) -> None:
        """Keep a task that is not here; drop the least recently run ones, until all have at most ``most`` bytes."""
        assert task not in self._tasks, f"{task} is kept twice; take it first"
        self._tasks[task] = live
        self._size += live.size
        while self._size > most:
            _, dropped = self._tasks.popitem(last=False)
            self._size -= dropped.size
            dropped.drop()


LIVE = LiveOperators()
"""Those of this process, which runs one task at a time."""
