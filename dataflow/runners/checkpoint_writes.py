"""Statistics of the background writer: bytes, waiting and writing times of the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from dataflow.clock import duration_text
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord

__all__ = ["Persistence"]


@dataclass(frozen=True, slots=True)
class Persistence:
    """Statistics of the writes for the checkpoints of a run. Total bytes; times in microseconds.

    Attributes:
        bytes: size of all parts of all completed checkpoints.
        longest_wait: the longest time that a part waited for the writer. It grows if the writer cannot keep up.
        longest_write: the longest time to encode a part and make it durable.
        in_flight: rows stored as channel state, for each checkpoint that stored some.

    >>> str(Persistence(12_345, 20, 850, (120, 4, 40)))
    '12,345 bytes persisted, longest wait 20 us, longest write 850 us, in-flight rows of 3: at most 120, median 40'
    """

    bytes: int
    longest_wait: int
    longest_write: int
    in_flight: tuple[int, ...] = ()

    @staticmethod
    def of(checkpoints: Sequence[CheckpointRecord]) -> Persistence:
        """Return the statistics of completed checkpoints."""
        return Persistence(
            bytes=sum(record.size for record in checkpoints),
            longest_wait=max((record.queued for record in checkpoints), default=0),
            longest_write=max((record.write for record in checkpoints), default=0),
            in_flight=tuple(record.in_flight_rows for record in checkpoints if record.in_flight_rows),
        )

    def __str__(self) -> str:
        text = f"{self.bytes:,} bytes persisted, longest wait {duration_text(self.longest_wait)}, "
        text += f"longest write {duration_text(self.longest_write)}"
        if self.in_flight:
            highest, median = max(self.in_flight), median_high(self.in_flight)
            text += f", in-flight rows of {len(self.in_flight):,}: at most {highest:,}, median {median:,}"
        return text
