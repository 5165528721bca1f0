"""The input of a task: the common interface of gates and sources.

A poll returns an element for the operators, or a barrier or cancel, with the actions that the protocol requires. A
trigger starts a checkpoint where no barrier can arrive through a channel. At a source that is at once. At a gate it is
when every channel has ended, because until then rows of the checkpoint may still be queued there; or earlier, if the
barrier may overtake these rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dataflow.contracts.source import Json, Split
from dataflow.protocol.actions import Abort, AbortReason, Action, Complete, TakeSnapshot
from dataflow.protocol.events import Barrier
from dataflow.runtime.task.chain import Flow
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.progress import Progress

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ChannelMetrics", "PollResult", "SplitState", "TaskInput"]


@dataclass(frozen=True, slots=True)
class ChannelMetrics:
    """One channel so far: rows put into it, microseconds a barrier blocked it, and microseconds its writer waited for
    room in it.
    """

    name: str
    rows: int
    blocked: int
    back_pressured: int


@dataclass(frozen=True, slots=True)
class PollResult:
    """What one poll gave: something for the chain's head (or nothing), then actions to carry out behind it.

    ``rejected`` are rows that a source set aside; they come with ``Data``, and leave through a side output.
    """

    port: int
    flow: Flow | None
    actions: Sequence[Action] = ()
    rejected: pa.RecordBatch | None = None


@dataclass(slots=True)
class SplitState:
    """A split and how far it has been read. ``offset`` None: not begun.

    ``rows`` counts those read from its beginning on; None: restored from a checkpoint that did not count them.
    """

    split: Split
    offset: Json = None
    done: bool = False
    rows: int | None = 0

    def to_json(self) -> dict[str, Json]:
        place: dict[str, Json] = {"offset": self.offset, "done": self.done, "rows": self.rows}
        return {"id": self.split.id, "info": self.split.info, **place}


class TaskInput(ABC):
    """The head of a task. ``ended``: nothing will ever come from it again, although it stays to take checkpoints.

    ``is_source``: rows come from a source, which rings no bell when it has more, and does not announce the end of time.
    ``splits`` are those of a source, and ``reading`` is how long their readers took (microseconds).
    """

    is_source = False
    splits: Sequence[SplitState] = ()
    reading = 0

    def __init__(self) -> None:
        self.finished = False
        """Set by the task once it has finished (or was restored so): nothing is polled any more."""
        self._held: list[Barrier] = []

    @property
    @abstractmethod
    def ended(self) -> bool: ...

    @property
    @abstractmethod
    def floor(self) -> int:
        """The lowest checkpoint of which a snapshot may still be taken here; rows of a lower epoch are red for none."""

    @abstractmethod
    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        """The next element, at most ``max_rows`` rows (None: a whole batch); None: nothing now."""

    @abstractmethod
    def poll_control(self, now: int) -> PollResult | None:
        """The next barrier or cancel that can be reached without taking rows."""

    @abstractmethod
    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        """The coordinator gave a checkpoint up."""

    def tick(self, now: int) -> Sequence[Action]:
        """Time passed."""
        return ()

    @property
    def alignment(self) -> int:
        """Microseconds between the first and the last barrier of the checkpoint that was completed last."""
        return 0

    @property
    def input_channels(self) -> Sequence[Channel]:
        """The input channels, by number; a source has none."""
        return ()

    @property
    def blocked(self) -> Collection[int]:
        """The numbers of the channels that wait for the barriers of others."""
        return ()

    @property
    def aligning(self) -> bool:
        """Whether the first barrier of a checkpoint was taken, and its snapshot was not."""
        return False

    @property
    def watermark(self) -> int | None:
        """The watermark of all input channels together; None: there is none yet, or no channel."""
        return None

    def channels(self, now: int) -> Sequence[ChannelMetrics]:
        """Return what each input channel has seen so far."""
        return ()

    @abstractmethod
    def causes(self, state: Progress, now: int) -> list[str]:
        """Return why a task in ``state`` does nothing, as far as its input is the reason."""

    def close(self) -> list[Exception]:
        """Release resources. Returns: what failed."""
        return []

    def trigger(self, barrier: Barrier) -> None:
        """Start a checkpoint here; ``triggered`` answers when it is time."""
        self._held.append(barrier)

    @property
    def deadline(self) -> int | None:
        """When time alone will change something here (microseconds); None: never."""
        return None

    def triggered(self, now: int) -> Sequence[Action]:
        """The actions of a trigger whose time has come. The chain must not be busy."""
        if not self._held or not (self.finished or self._may_start):
            return ()
        barrier = self._held.pop(0)
        return (TakeSnapshot(barrier), Complete(barrier.checkpoint))

    @property
    @abstractmethod
    def _may_start(self) -> bool: ...

    def _forget(self, checkpoint: int, reason: AbortReason) -> list[Action]:
        kept = [b for b in self._held if b.checkpoint != checkpoint]
        dropped, self._held = len(kept) < len(self._held), kept
        return [Abort(checkpoint, reason)] if dropped else []

    @abstractmethod
    def snapshot(self) -> Mapping[str, Json]:
        """What belongs to the inlet in a checkpoint, as JSON."""
