"""A checkpoint under way, with the parts acknowledged so far, and the record of a durable one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dataflow.clock import duration_text
from dataflow.contracts.sink import Handle
from dataflow.contracts.source import Json
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import BarrierKind
from dataflow.runtime.task.messages import Acknowledged, TaskStats

__all__ = ["CheckpointAttempt", "CheckpointRecord", "CheckpointTotals"]


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A completed checkpoint: sizes in bytes, times in microseconds. The slowest task counts, but CPU times add up."""

    checkpoint: int
    kind: BarrierKind
    duration: int
    size: int
    tasks: Mapping[str, TaskStats]

    @property
    def duplicated(self) -> int:
        """Rows that a restore would deliver twice, at the operator with the most."""
        return max(_duplicated(self.tasks).values(), default=0)

    @property
    def in_flight_rows(self) -> int:
        """Rows stored as channel state."""
        return sum(stats.in_flight_rows for stats in self.tasks.values())

    @property
    def in_flight_bytes(self) -> int:
        """The Arrow memory of those rows."""
        return sum(stats.in_flight_bytes for stats in self.tasks.values())

    @property
    def alignment(self) -> int:
        """Time from the first barrier to the snapshot at a task."""
        return max((stats.alignment for stats in self.tasks.values()), default=0)

    @property
    def blocked(self) -> Mapping[str, int]:
        """Time that the barriers of this checkpoint blocked each channel; channels that never were are absent.

        The names are as in ``RunResult.blocked``, which adds up the waits of all checkpoints, also of failed ones.
        """
        return {channel: time for stats in self.tasks.values() for channel, time in stats.blocked.items()}

    @property
    def copy(self) -> int:
        """Time that a step took to copy the state of its task: no row moves meanwhile."""
        return max((stats.copy for stats in self.tasks.values()), default=0)

    @property
    def queued(self) -> int:
        """Time that a part waited for the background writer."""
        return max((stats.queued for stats in self.tasks.values()), default=0)

    @property
    def write(self) -> int:
        """Time that writing a part took."""
        return max((stats.write for stats in self.tasks.values()), default=0)

    @property
    def copy_cpu(self) -> int:
        """CPU time of the steps that took the snapshots, over all tasks: from the barrier to the end of the copy."""
        return sum(stats.copy_cpu for stats in self.tasks.values())

    @property
    def write_cpu(self) -> int:
        """CPU time of the background threads that wrote the parts, over all tasks."""
        return sum(stats.write_cpu for stats in self.tasks.values())


@dataclass(frozen=True, slots=True)
class CheckpointTotals:
    """Counts, sums and worst values of checkpoints: of all, also those whose records are not kept any more.

    Attributes:
        completed: the number of durable checkpoints.
        failed: the number of failed ones.
        bytes: what they wrote, in bytes.
        slowest: the longest time from trigger to durable; this and the next two in microseconds.
        longest_wait: the longest time that a part waited for the writer.
        longest_write: the longest time to write a part.
        copy_cpu: CPU time of the steps that took snapshots, over all tasks; this and the next in microseconds.
        write_cpu: CPU time of the background threads that wrote parts. Neither has what failed checkpoints cost, nor
            the saving of rows that change while a snapshot is read, which is part of the steps that change them.
        stored_rows: how many of them stored rows in flight.
        in_flight_rows: the number of these rows.
        most_in_flight: the most of them in one checkpoint.
        duplicated: rows that restores would have delivered twice.
    """

    completed: int = 0
    failed: int = 0
    bytes: int = 0
    slowest: int = 0
    longest_wait: int = 0
    longest_write: int = 0
    copy_cpu: int = 0
    write_cpu: int = 0
    stored_rows: int = 0
    in_flight_rows: int = 0
    most_in_flight: int = 0
    duplicated: int = 0

    def with_checkpoints(self, records: Iterable[CheckpointRecord]) -> CheckpointTotals:
        """Return the totals with ``records`` as well."""
        totals = self
        for record in records:
            totals = CheckpointTotals(
                completed=totals.completed + 1,
                failed=totals.failed,
                bytes=totals.bytes + record.size,
                slowest=max(totals.slowest, record.duration),
                longest_wait=max(totals.longest_wait, record.queued),
                longest_write=max(totals.longest_write, record.write),
                copy_cpu=totals.copy_cpu + record.copy_cpu,
                write_cpu=totals.write_cpu + record.write_cpu,
                stored_rows=totals.stored_rows + (record.in_flight_rows > 0),
                in_flight_rows=totals.in_flight_rows + record.in_flight_rows,
                most_in_flight=max(totals.most_in_flight, record.in_flight_rows),
                duplicated=totals.duplicated + record.duplicated,
            )
        return totals

    def with_failures(self, count: int) -> CheckpointTotals:
        """Return the totals with ``count`` failures more."""
        return replace(self, failed=self.failed + count)


@dataclass(slots=True)
class CheckpointAttempt:
    """A checkpoint under way. ``failure`` describes the first failure, at a task or the store."""

    checkpoint: int
    kind: BarrierKind
    triggered_at: int
    transactions: dict[str, list[Handle]] = field(default_factory=dict)
    stats: dict[str, TaskStats] = field(default_factory=dict)
    failure: str = ""

    def add(self, acknowledged: Acknowledged) -> None:
        """Add the durable part of a task."""
        self.stats[acknowledged.task] = acknowledged.stats
        for sink, handles in acknowledged.transactions.items():
            self.transactions.setdefault(sink, []).extend(handles)

    def waiting_for(self, tasks: Sequence[str]) -> list[str]:
        """Return the ``tasks`` that have not acknowledged yet."""
        return [task for task in tasks if task not in self.stats]

    @property
    def staged(self) -> Mapping[str, int]:
        """The rows that each two-phase sink had staged in this run, whether they are committed or not."""
        return _sums(stats.staged for stats in self.stats.values())

    def record(self, now: int) -> CheckpointRecord:
        """Return the record of this checkpoint, which is durable."""
        size = sum(stats.size for stats in self.stats.values())
        return CheckpointRecord(self.checkpoint, self.kind, now - self.triggered_at, size, self.stats)

    def summary(self, now: int) -> dict[str, Json]:
        """Return facts for the manifest that a restore does not need."""
        record = self.record(now)
        return {
            "duplicated": _duplicated(self.stats),
            "bytes": record.size,
            "in_flight_rows": record.in_flight_rows,
            "in_flight_bytes": record.in_flight_bytes,
            "triggered_to_acknowledged_us": record.duration,
            "blocked_in_checkpoint_us": dict(record.blocked),
        }

    def why_failed(self, reason: FailureReason, tasks: Sequence[str], now: int) -> str:
        """Return a sentence on why this checkpoint failed."""
        failure = self.failure
        if reason is FailureReason.EXPIRED:
            waiting = ", ".join(self.waiting_for(tasks))
            failure = f"no acknowledgement from {waiting} after {duration_text(now - self.triggered_at)}"
        return f"checkpoint {self.checkpoint}: {reason.value}: {failure}"


def _duplicated(tasks: Mapping[str, TaskStats]) -> dict[str, int]:
    """Return duplicated rows by operator. Do not add them up: a row counts at each operator that it reaches."""
    return _sums(stats.duplicated for stats in tasks.values())


def _sums(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum of the counts of each operator."""
    sums: dict[str, int] = {}
    for some in counts:
        for operator, rows in some.items():
            sums[operator] = sums.get(operator, 0) + rows
    return sums
