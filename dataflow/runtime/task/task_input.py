"""The input of a task: the common interface of gates and sources.

A poll returns an element for the operators, and the actions that the protocol requires after it. A trigger starts a
checkpoint where no barrier can arrive through a channel: at a source at once; at a gate when every channel has ended,
because until then rows of the checkpoint may still be queued there, or earlier if the barrier may overtake these rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow.contracts.source import Json, Split
from dataflow.contracts.tuning import Choice
from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, TakeSnapshot
from dataflow.protocol.events import Barrier
from dataflow.runtime.task.blocked_channels import Alignment
from dataflow.runtime.task.chain import Flow
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ChannelMetrics", "PollResult", "SplitState", "TaskInput"]


@dataclass(frozen=True, slots=True)
class ChannelMetrics:
    """Metrics of one channel so far: rows put into it, microseconds that barriers blocked it, and microseconds that its
    writer waited for room in it.
    """

    name: str
    rows: int
    blocked: int
    back_pressured: int


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of one poll: an element for the chain's head (or None), then actions to carry out after it.

    ``rejected`` are rows that a source set aside; they come with ``Data``, and leave through a side output.
    ``is_control``: it was a barrier or a cancel, and not time that changed nothing.
    """

    port: int
    flow: Flow | None
    actions: Sequence[Action] = ()
    rejected: pa.RecordBatch | None = None
    is_control: bool = False


@dataclass(slots=True)
class SplitState:
    """A split and how far it was read: ``rows`` rows so far. ``offset`` None: reading has not started."""

    split: Split
    offset: Json = None
    done: bool = False
    rows: int = 0

    def to_json(self) -> dict[str, Json]:
        """Return the entry of this split in a checkpoint."""
        progress: dict[str, Json] = {"offset": self.offset, "done": self.done, "rows": self.rows}
        return {"id": self.split.id, "info": self.split.info, **progress}


class TaskInput(ABC):
    """The input of one task.

    ``is_source``: rows come from a source, which rings no bell when it has more, and does not announce the end of time.
    ``splits`` are the splits of a source.
    """

    is_source = False
    splits: Sequence[SplitState] = ()

    def __init__(self) -> None:
        self.finished = False
        """Set by the task when it has finished (or was restored so): it polls nothing any more."""
        self._held: list[Barrier] = []

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether no element will come any more. The input stays, to take checkpoints."""

    @property
    @abstractmethod
    def floor(self) -> int:
        """The lowest checkpoint whose snapshot may still be taken here; rows of a lower epoch are red for none."""

    @abstractmethod
    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        """Take the next element, at most ``max_rows`` rows (None: a whole batch); None: there is none now."""

    @abstractmethod
    def poll_control(self, now: int) -> PollResult | None:
        """Take the next barrier or cancel that can be reached without taking rows, or None."""

    def poll_urgent(self, now: int) -> PollResult | None:
        """Take the next barrier that overtakes, or cancel; None: there is none. Put-back rows precede all else."""
        return None

    @abstractmethod
    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        """Return the actions for a checkpoint that the coordinator aborted."""

    @abstractmethod
    def rests(self, now: int) -> bool:
        """Return whether it has nothing to give at ``now``, neither elements nor actions. False: it might have some."""

    def tick(self, now: int) -> Sequence[Action]:
        """Return the actions that time alone makes necessary."""
        return ()

    def alignment(self, checkpoint: int) -> Alignment:
        """Return how long ``checkpoint``, whose snapshot is taken now, waited for its barriers."""
        return Alignment(checkpoint)

    @property
    def input_channels(self) -> Sequence[Channel]:
        """The input channels, by number; a source has none."""
        return ()

    @property
    def blocked(self) -> Collection[int]:
        """The numbers of the channels that wait for the barriers of other channels."""
        return ()

    @property
    def aligning(self) -> bool:
        """Whether the first barrier of a checkpoint was taken, but not yet its snapshot."""
        return False

    @property
    def hurried(self) -> bool:
        """Whether steps should be short: an input is empty, so rows are rare, or a barrier waits in one."""
        return False

    @property
    def gathers(self) -> bool:
        """Whether rows gather outside while none are taken, so that a task with full outputs does better to wait."""
        return False

    @property
    def watermark(self) -> int | None:
        """The merged watermark of all input channels; None: there is none yet, or no channel."""
        return None

    @property
    def held_by(self) -> str | None:
        """The channel that holds the merged watermark back; None: there is none."""
        return None

    def channels(self, now: int) -> Sequence[ChannelMetrics]:
        """Return the metrics of each input channel so far."""
        return ()

    def choices(self) -> Sequence[Choice]:
        """Return what was chosen for this input so far, for ``RunResult.tuning``."""
        return ()

    def read_to(self, *, is_polled: bool) -> tuple[str, str]:
        """Return the split of the current rows and the offset up to which it was read, as text, for messages.

        Args:
            is_polled: return them of the split that is being polled. Both are "" if this is no source.
        """
        return "", ""

    @abstractmethod
    def causes(self, state: Progress, now: int) -> list[str]:
        """Return the causes in this input for a task in ``state`` to do nothing."""

    def validate(self) -> None:
        """Assert the invariants that hold between two steps of the task."""

    def close(self) -> list[BaseException]:
        """Release resources. Returns: the errors of doing so."""
        return []

    def drain(self) -> None:
        """End here if it is the input of a source. A gate does nothing: its end arrives in its channels."""

    def trigger(self, barrier: Barrier) -> None:
        """Queue a checkpoint to start here; ``triggered`` returns its actions when it may start."""
        self._held.append(barrier)

    @property
    def deadline(self) -> int | None:
        """The time when ``tick`` or ``triggered`` may have actions (microseconds); None: not by time alone."""
        return None

    def triggered(self, now: int) -> Sequence[Action]:
        """Return the actions of a queued trigger that may start now. The chain must not be busy."""
        if not self._held or not (self.finished or self._may_start):
            return ()
        barrier = self._held.pop(0)
        return (TakeSnapshot(barrier), Complete(barrier.checkpoint))

    def triggered_ahead(self, now: int) -> Sequence[Action]:
        """Return the actions of a queued trigger that may start now although put-back rows are left: it overtakes."""
        return self.triggered(now) if self._held and self._held[0].unaligned else ()

    @property
    @abstractmethod
    def _may_start(self) -> bool:
        """Whether a queued trigger may start."""

    def _forget(self, checkpoint: int, reason: AbortReason) -> list[Action]:
        """Drop the queued trigger of a checkpoint; return an abort if there was one."""
        others = [b for b in self._held if b.checkpoint != checkpoint]
        dropped, self._held = len(others) < len(self._held), others
        return [Abort(checkpoint, reason)] if dropped else []

    @abstractmethod
    def snapshot(self) -> Mapping[str, Json]:
        """Return the state of this input for a checkpoint, as JSON."""
