"""What a subtask reports to the driver after a micro-batch, with the rows that it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dataflow.contracts.operator_metrics import OperatorMetrics
from dataflow.runtime.task.notices import Packed

__all__ = ["TaskReport", "TaskTime", "TaskWork"]


class TaskTime(NamedTuple):
    """A watermark: of the task's input (``operator`` is None), or of an operator that makes time.

    ``split``: the split that holds it back; None: none does, or that is not known.
    """

    operator: str | None
    time: int
    split: str | None = None


class TaskWork(NamedTuple):
    """What one subtask did, for its events: in a micro-batch, or since its host was made.

    ``rows_in`` are the rows that its first operator received, ``rows_out`` those that it sent to other tasks, ``busy``
    the microseconds that it worked.
    """

    subtask: int
    rows_in: int
    rows_out: int
    busy: int
    times: Sequence[TaskTime] = ()

    def since(self, before: TaskWork) -> TaskWork:
        """Return what it did after ``before``, which is an earlier state of the same work."""
        rows_in, rows_out = self.rows_in - before.rows_in, self.rows_out - before.rows_out
        return TaskWork(self.subtask, rows_in, rows_out, self.busy - before.busy, self.times)


@dataclass(frozen=True)
class TaskReport:
    """The work of a subtask in a micro-batch: the metrics of its operators, and the transactions they staged.

    ``busy``: microseconds from the restore to the snapshot, operators included.
    ``notices``: events that the user is warned of.
    ``taken``: in a batch, the attempts that it has taken rows of, as link, subtask and number of the attempt.
    ``read``, ``written``, ``late``: rows read from a source, rows given to sinks, late rows.
    ``state``, ``state_rows``: of keyed state, the bytes that are stored, and its keys with their rows.
    ``lag``: microseconds that its watermark is behind the clock; None: it has none, or the input has ended, or a
    repeated attempt would have another one.
    ``awaited``: of splits that time waits for, the number and some names; None: it knows no splits.
    ``work``: what the subtask did, for events; of each subtask, in the report of several.
    """

    task: str
    operators: Sequence[OperatorMetrics]
    handles: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    busy: int = 0
    notices: Sequence[Packed] = ()
    taken: Sequence[tuple[int, int, int]] = ()
    read: int = 0
    written: int = 0
    late: int = 0
    state: int = 0
    lag: int | None = None
    state_rows: int = 0
    awaited: tuple[int, list[str]] | None = None
    work: Sequence[TaskWork] = ()
