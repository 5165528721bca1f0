"""What comes of a task's copy of its state: a part of a checkpoint, written in the background while the task goes on.

The queue in front of the writer is bounded: a part that nobody wants any more is let go at once, state and all, so of
one task no more parts wait than there may be checkpoints under way.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dataflow.errors import StoreError
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.messages import Acknowledged, Crashed, Declined, TaskStats
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.services import Services

__all__ = ["PartWriter"]


class PartWriter:
    """Writes the parts of one task and tells the job what came of each: acknowledged, declined, or a crash.

    Invariant: a part is acknowledged only when it is durable.
    """

    def __init__(
        self,
        task: str,
        services: Services,
        keep_duplicates: Literal["sample", "rows"] = "sample",
    ) -> None:
        self._task = task
        self._services = services
        self._keep_duplicates = keep_duplicates
        # By checkpoint, what waits to be written. Single operations on it are atomic: the task adds and drops, and the
        # writer takes out what it begins to write.
        self._waiting: dict[int, tuple[TaskState, TaskStats, int]] = {}

    def write(self, checkpoint: int, state: TaskState, stats: TaskStats) -> None:
        """Have ``state`` written. It owns its memory, or is read as it was at the barrier."""
        duplicated: dict[str, int] = {}
        for d in state.duplicates:
            duplicated[d.operator] = duplicated.get(d.operator, 0) + d.rows
        stats = replace(
            stats,
            duplicated=duplicated,
            in_flight_rows=sum(channel.rows for channel in state.in_flight),
            in_flight_bytes=sum(channel.bytes for channel in state.in_flight),
        )
        self._waiting[checkpoint] = (state, stats, self._services.clock.now())
        self._services.submit(self._task, lambda: self._write(checkpoint))

    def drop(self, checkpoint: int) -> None:
        """Nobody wants the part any more; one that is being written is written all the same."""
        self._waiting.pop(checkpoint, None)

    def _write(self, checkpoint: int) -> None:
        """Runs in the background: it touches nothing but what it was given, the store and the mailbox."""
        waited = self._waiting.pop(checkpoint, None)
        if waited is None:
            return
        state, stats, submitted = waited
        started = self._services.clock.now()
        try:
            self._services.probe(Point.WRITE)
            data = state.encode(self._keep_duplicates)
            part = self._services.store.write(checkpoint, self._task, data)
            self._services.probe(Point.WRITTEN)
        except (StoreError, OSError) as error:
            self._services.mailbox.put(Declined(self._task, checkpoint, FailureReason.IO, str(error)))
        except Exception as error:
            error.add_note(f"while the state of {self._task} was written for checkpoint {checkpoint}")
            self._services.mailbox.put(Crashed(self._task, error))
        else:
            stats = replace(
                stats, queued=started - submitted, write=self._services.clock.now() - started, size=part.size
            )
            self._services.mailbox.put(Acknowledged(self._task, checkpoint, part, state.transactions, stats))
