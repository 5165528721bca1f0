"""The actions of a barrier handler. The task carries them out, in order.

The handlers do no I/O: a handler takes an event, returns a list of actions, and has no other effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dataflow.protocol.events import Barrier, Data, Element

__all__ = ["Abort", "AbortReason", "Action", "Complete", "Ignore", "PassOver", "TakeSnapshot"]


class AbortReason(Enum):
    """Why a task aborted a checkpoint."""

    SUBSUMED = "subsumed"
    SUPERSEDED = "superseded"
    CANCEL = "cancel"
    END_OF_INPUT = "end-of-input"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Send ``barrier`` on all outputs, then copy the state; process no row, timer or watermark in between."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Complete:
    """This task's part of ``checkpoint`` is complete.

    ``in_flight`` maps a channel to the elements that are its channel state, in order. ``duplicated`` maps a channel to
    the rows that were delivered before the snapshot and will be delivered again after a restore. Empty channels are
    absent.
    """

    checkpoint: int
    in_flight: Mapping[int, tuple[Element, ...]] = field(default_factory=dict)
    duplicated: Mapping[int, tuple[Data, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Abort:
    """This task will not take or finish ``checkpoint``; notify the coordinator, and send a ``Cancel`` downstream."""

    checkpoint: int
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class Ignore:
    """A late or repeated barrier, which has no effect."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class PassOver:
    """This task started a higher checkpoint and will never begin ``checkpoint``; notify the coordinator.

    No ``Cancel`` is sent downstream, because the barrier or cancel of the higher checkpoint is sent, and the
    coordinator notifies every task.
    """

    checkpoint: int


Action = TakeSnapshot | Complete | Abort | Ignore | PassOver
