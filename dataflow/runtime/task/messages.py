"""What a job and its tasks say to each other. Each side has a mailbox; nobody calls into another's state."""

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
    "Ended",
    "Enough",
    "Mailbox",
    "Stop",
    "TaskMessage",
    "TaskReport",
    "TaskStats",
    "Trigger",
]

M = TypeVar("M")


class Mailbox(Generic[M]):
    """A queue from any thread to one reader, which ``bell`` wakes."""

    def __init__(self) -> None:
        self._queue: deque[M] = deque()  # append and popleft are atomic
        self.bell: Callable[[], None] = lambda: None

    def put(self, message: M) -> None:
        self._queue.append(message)
        self.bell()

    def take(self) -> M | None:
        """The oldest message, or None. For the reader only."""
        return self._queue.popleft() if self._queue else None

    def __len__(self) -> int:
        return len(self._queue)


# --- to a task


@dataclass(frozen=True, slots=True)
class Trigger:
    """Start checkpoint ``barrier`` here. ``finished``: the coordinator knows that this task's input has ended."""

    barrier: Barrier
    finished: bool


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """The coordinator gave a checkpoint up."""

    checkpoint: int
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class Committed:
    """The transactions of all checkpoints up to this one are visible."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The last checkpoint is committed: there is nothing more to do."""


TaskMessage = Trigger | AbortCheckpoint | Committed | Stop


# --- from a task


@dataclass(frozen=True, slots=True)
class TaskStats:
    """What one checkpoint cost at one task: microseconds and bytes.

    ``queued`` is how long the part waited for the background writer, ``write`` how long the writing took.
    ``in_flight_rows`` and ``in_flight_bytes`` are the channel state. ``duplicated`` counts, by operator, the rows that
    a restore delivers twice. ``blocked`` is what each input channel has been blocked in all, from the start of the run
    to this checkpoint.
    """

    alignment: int = 0
    copy: int = 0
    queued: int = 0
    write: int = 0
    size: int = 0
    in_flight_rows: int = 0
    in_flight_bytes: int = 0
    duplicated: Mapping[str, int] = field(default_factory=dict)
    blocked: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """This task's part of the checkpoint is durable."""

    task: str
    checkpoint: int
    part: PartHandle
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
    """Every input of this task ended, ``finish`` ran, and ``EndOfInput`` was sent."""

    task: str


@dataclass(frozen=True, slots=True)
class Enough:
    """A collector has as many rows as were asked for: the job may stop."""

    task: str


@dataclass(frozen=True, slots=True)
class Crashed:
    """A step raised."""

    task: str
    error: BaseException


TaskReport = Acknowledged | Declined | Ended | Enough | Crashed
