"""The messages between a job and its tasks. Each side has a mailbox and never accesses the other's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from dataflow.contracts.sink import Handle
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.coordinator_actions import FailureReason
from dataflow.protocol.events import Barrier
from dataflow.store.manifest import PartHandle

__all__ = [
    "AbortCheckpoint",
    "Acknowledged",
    "Committed",
    "Crashed",
    "Declined",
    "Drain",
    "Ended",
    "Enough",
    "FailedAt",
    "Mailbox",
    "Stop",
    "TaskMessage",
    "TaskReport",
    "TaskStats",
    "Trigger",
]

M = TypeVar("M")


class Mailbox(Generic[M]):
    """A queue that any thread writes and one reader reads; ``bell`` wakes the reader."""

    def __init__(self) -> None:
        self._queue: deque[M] = deque()  # append and popleft are atomic
        self.bell: Callable[[], None] = lambda: None

    def put(self, message: M) -> None:
        """Append a message and wake the reader. Any thread may call this."""
        self._queue.append(message)
        self.bell()

    def take(self) -> M | None:
        """Remove and return the oldest message, or None. Reader only."""
        return self._queue.popleft() if self._queue else None

    def __len__(self) -> int:
        return len(self._queue)


# --- to a task


@dataclass(frozen=True, slots=True)
class Trigger:
    """Start the checkpoint of ``barrier`` here. ``finished``: the coordinator knows that its input has ended."""

    barrier: Barrier
    finished: bool


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """The coordinator aborted a checkpoint."""

    checkpoint: int
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class Committed:
    """The transactions of all checkpoints up to this one are visible."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Drain:
    """The input ends here: a source reads no more. Other tasks end when the end of their inputs arrives."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The last checkpoint is committed: the task is done."""


TaskMessage = Trigger | AbortCheckpoint | Committed | Drain | Stop


# --- from a task


@dataclass(frozen=True, slots=True)
class TaskStats:
    """The cost of one checkpoint at one task, in microseconds and bytes.

    ``alignment`` is the time between the first barrier and the snapshot, ``copy`` the time to copy the state.
    ``queued`` is how long the part waited for the background writer, ``write`` how long writing it took, ``size`` its
    bytes. ``copy_cpu`` and ``write_cpu`` are the CPU time of the thread that took the snapshot, from its barrier on,
    and of the thread that wrote the part. ``in_flight_rows`` and ``in_flight_bytes`` are the channel state.
    ``duplicated`` counts, by operator, the rows that a restore delivers twice. ``blocked`` is the time that
    its barriers blocked each input channel; channels that they never blocked are absent. ``staged`` counts, by
    two-phase sink, the rows that this task staged from the start of the run to this checkpoint.
    """

    alignment: int = 0
    copy: int = 0
    queued: int = 0
    write: int = 0
    size: int = 0
    copy_cpu: int = 0
    write_cpu: int = 0
    in_flight_rows: int = 0
    in_flight_bytes: int = 0
    duplicated: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, int] = field(default_factory=dict)
    staged: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The part of this task is durable: ``parts`` are all objects that a restore of it reads, older ones included."""

    task: str
    checkpoint: int
    parts: tuple[PartHandle, ...]
    transactions: Mapping[str, Sequence[Handle]] = field(default_factory=dict)
    stats: TaskStats = TaskStats()


@dataclass(frozen=True, slots=True)
class Declined:
    """This task has no part in the checkpoint."""

    task: str
    checkpoint: int
    reason: FailureReason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """Every input of this task ended, ``finish`` ran, and the task sent ``EndOfInput``."""

    task: str


@dataclass(frozen=True, slots=True)
class Enough:
    """A collector has all rows it needs: the job may stop."""

    task: str


@dataclass(frozen=True, slots=True)
class FailedAt:
    """Where an operator raised an error.

    ``row`` is the row that its function was called with, if that is known, else the first row of its batch; "": none.
    ``split`` was read up to ``offset``; both are "" for an operator that is not in the chain of a source.
    """

    operator: str
    row: str = ""
    split: str = ""
    offset: str = ""

    def __str__(self) -> str:
        parts = [f"row {self.row}"] if self.row else []
        parts += [f"split {self.split!r}, read up to {self.offset or 'its start'}"] if self.split else []
        return f"operator {self.operator!r}" + (f" ({'; '.join(parts)})" if parts else "")


@dataclass(frozen=True, slots=True)
class Crashed:
    """A step, or background work, raised ``error``; ``at`` is None if no operator did."""

    task: str
    error: BaseException
    at: FailedAt | None = None


TaskReport = Acknowledged | Declined | Ended | Enough | Crashed
