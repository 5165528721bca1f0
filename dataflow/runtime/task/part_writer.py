"""Write the copied state of a task as a part of a checkpoint, in the background, while the task continues.

The queue of the writer is bounded: the part of an aborted checkpoint is dropped at once, together with its state. So at
most as many parts of a task wait as there may be checkpoints under way.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Literal

from dataflow.errors import StoreError
from dataflow.events.kinds import Kind
from dataflow.events.recorder import Weight
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.runtime.task.crash_points import Point
from dataflow.runtime.task.log_chain import LogChain
from dataflow.runtime.task.messages import Acknowledged, Crashed, Declined, TaskStats
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.services import Services
from dataflow.store.manifest import LOG, PartHandle

__all__ = ["PartWriter"]


class PartWriter:
    """Writes the parts of one task and reports each outcome to the job: acknowledged, declined, or a crash.

    Invariant: a part is acknowledged only when it is durable.
    """

    def __init__(
        self,
        task: str,
        services: Services,
        logs: LogChain,
        keep_duplicates: Literal["sample", "rows"] = "sample",
    ) -> None:
        self._task = task
        self._services = services
        self._logs = logs
        self._keep_duplicates = keep_duplicates
        # Never changes. One thread at a time records: the parts of a task are written one after the other.
        self._events = services.recorder.writer(task, Weight(facts=1, samples=0))
        # The parts that wait to be written, by checkpoint. Single operations on it are atomic: the task adds and drops
        # parts, and the writer takes a part out when it begins to write it.
        self._waiting: dict[int, tuple[TaskState, TaskStats, int]] = {}

    def write(self, checkpoint: int, state: TaskState, stats: TaskStats) -> None:
        """Write ``state`` in the background. It owns its memory, or reads as it was at the barrier."""
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
        """Drop the part of an aborted checkpoint; a part that is being written is still finished."""
        self._waiting.pop(checkpoint, None)

    def _write(self, checkpoint: int) -> None:
        """Write a part. Runs in the background, so it uses only the part, the store and the mailbox."""
        waiting = self._waiting.pop(checkpoint, None)
        if waiting is None:
            return
        state, stats, submitted = waiting
        clock = self._services.clock
        started, cpu = clock.now(), clock.cpu()
        try:
            self._services.probe(Point.WRITE)
            parts = self._write_parts(checkpoint, state)
            self._services.probe(Point.WRITTEN)
        except (StoreError, OSError) as error:
            self._services.mailbox.put(Declined(self._task, checkpoint, FailureReason.IO, str(error)))
        except Exception as error:
            error.add_note(f"raised while the state of {self._task} was written for checkpoint {checkpoint}")
            self._services.mailbox.put(Crashed(self._task, error))
        else:
            size = sum(part.size for part in parts if not part.checkpoint)
            now = clock.now()
            write, write_cpu = now - started, clock.cpu() - cpu
            self._events.record(Kind.PART, now, checkpoint, duration=write, bytes=size)
            stats = replace(stats, queued=started - submitted, write=write, write_cpu=write_cpu, size=size)
            self._services.mailbox.put(Acknowledged(self._task, checkpoint, parts, state.transactions, stats))

    def _write_parts(self, checkpoint: int, state: TaskState) -> tuple[PartHandle, ...]:
        """Write the rows of the logs, then the rest of the state; return all objects that a restore reads."""
        store, objects = self._services.store, tuple(state.log_before)
        pieces = state.log_pieces(checkpoint)
        if pieces is not None:
            objects = (*objects, store.write(checkpoint, self._task, pieces, LOG))
        try:
            whole = store.write(checkpoint, self._task, state.pieces(self._keep_duplicates))
        except Exception:
            with suppress(StoreError, OSError):  # what stays is deleted at the next start
                store.discard(checkpoint, objects)
            raise
        self._logs.add(checkpoint, state.operators, objects)
        return (whole, *objects)
