"""What a barrier handler decides. The task carries it out, in order.

The handlers are pure: an event goes in, a list of these comes out, and nothing else happens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from dataflow.events import Barrier, Data, Element

__all__ = ["Abort", "AbortReason", "Action", "Complete", "Ignore", "PassOver", "TakeSnapshot"]


class AbortReason(Enum):
    """Why a checkpoint was given up at a task."""

    SUBSUMED = "subsumed"
    SUPERSEDED = "superseded"
    CANCEL = "cancel"
    END_OF_INPUT = "end-of-input"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Send ``barrier`` on all outputs, then copy the state; no row, timer or watermark in between."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class Complete:
    """Nothing more belongs to this task's part of ``checkpoint``.

    ``in_flight`` maps a channel to the elements that are its channel state, in order; ``duplicated`` maps a channel to
    the rows that were delivered before the snapshot and will be delivered again after a restore. Channels with nothing
    are absent.
    """

    checkpoint: int
    in_flight: Mapping[int, tuple[Element, ...]] = field(default_factory=dict)
    duplicated: Mapping[int, tuple[Data, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Abort:
    """This task will not take (or not finish) ``checkpoint``; tell the coordinator, and downstream by a ``Cancel``."""

    checkpoint: int
    reason: AbortReason


@dataclass(frozen=True, slots=True)
class Ignore:
    """A barrier that came too late, or twice, and changes nothing."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class PassOver:
    """This task took up a higher checkpoint and will never begin ``checkpoint``; tell the coordinator.

    No ``Cancel`` is sent downstream, because the higher checkpoint's barrier or cancel is, and the coordinator informs
    every task.
    """

    checkpoint: int


Action = TakeSnapshot | Complete | Abort | Ignore | PassOver
