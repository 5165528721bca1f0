"""What travels on a channel: rows, and the control elements that travel in-band with them.

Every element is frozen, and validated when it is built, so an illegal one cannot exist. The module knows neither
Arrow nor threads: ``Data.rows`` is whatever the runtime moves (an Arrow record batch); only its length is ever asked.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass
from enum import Enum

__all__ = [
    "Barrier",
    "BarrierKind",
    "Cancel",
    "Data",
    "Element",
    "EndOfInput",
    "Idle",
    "LastWatermark",
    "PortEnded",
    "Watermark",
]


class BarrierKind(Enum):
    """Why a checkpoint was asked for."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class Data:
    """Rows, with the colour they carry.

    ``epoch`` is the id of the last checkpoint whose barrier the source had sent before these rows (0: none). An
    operator that takes rows of epoch n before its own snapshot n takes a *red message as a white machine* (EWD 864a):
    the rows are in that snapshot and will be delivered again after a restore.
    """

    rows: Sized
    epoch: int = 0

    def __post_init__(self) -> None:
        if self.epoch < 0:
            raise ValueError(f"an epoch is a checkpoint id or 0, got {self.epoch}")


@dataclass(frozen=True, slots=True)
class Barrier:
    """The marker of checkpoint ``checkpoint``: rows before it belong to the snapshot, rows behind it do not.

    ``triggered_at`` is the coordinator's clock in microseconds when the checkpoint was triggered. A barrier that is
    ``unaligned`` overtakes what is queued on a channel that lets it, and what it overtook is channel state. Incremental
    state may hold only what changed since checkpoint ``since``, which is durable; 0: there is none.
    """

    checkpoint: int
    kind: BarrierKind = BarrierKind.CHECKPOINT
    triggered_at: int = 0
    unaligned: bool = False
    since: int = 0

    def __post_init__(self) -> None:
        if self.checkpoint < 0:
            raise ValueError(f"a checkpoint id is not negative, got {self.checkpoint}")
        if self.since and not 0 < self.since < self.checkpoint:
            raise ValueError(f"checkpoint {self.checkpoint} cannot build on {self.since}, which is not an older one")


@dataclass(frozen=True, slots=True)
class Cancel:
    """Checkpoint ``checkpoint`` was given up upstream: do not wait for its barrier. It overtakes what is queued."""

    checkpoint: int

    def __post_init__(self) -> None:
        if self.checkpoint < 0:
            raise ValueError(f"a checkpoint id is not negative, got {self.checkpoint}")


@dataclass(frozen=True, slots=True)
class Watermark:
    """No row with an event time before ``time`` (microseconds since the epoch) is expected any more."""

    time: int


@dataclass(frozen=True, slots=True)
class Idle:
    """The channel has nothing to say about time until its next row or watermark."""


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel."""


@dataclass(frozen=True, slots=True)
class PortEnded:
    """Every channel of input port ``port`` has ended. It is made by the gate, and travels on no channel."""

    port: int


@dataclass(frozen=True, slots=True)
class LastWatermark:
    """The last watermark, when the end of the whole input follows, which passes it on. It travels on no channel."""


Element = Data | Barrier | Cancel | Watermark | Idle | EndOfInput
