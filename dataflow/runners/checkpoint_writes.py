"""Statistics of the background writer: bytes, waiting and writing times of the checkpoints of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_high

from dataflow.clock import duration_text
from dataflow.runtime.job.checkpoint_attempts import CheckpointRecord, CheckpointTotals

__all__ = ["Persistence"]


@dataclass(frozen=True, slots=True)
class Persistence:
    """Statistics of the writes for the checkpoints of a run. Total bytes; times in microseconds.

    Attributes:
        bytes: size of all parts of all completed checkpoints.
        longest_wait: the longest time that a part waited for the writer. It grows if the writer cannot keep up.
        longest_write: the longest time to encode a part and make it durable.
        in_flight: rows stored as channel state, for each listed checkpoint that stored some.
        stored_rows: how many checkpoints stored some, also those not listed any more.
        most_in_flight: the most rows that one of them stored.

    >>> str(Persistence(12_345, 20, 850, (120, 4, 40), 3, 120))
    '12,345 bytes persisted, longest wait 20 us, longest write 850 us, in-flight rows of 3: at most 120, median 40'
    """

    bytes: int
    longest_wait: int
    longest_write: int
    in_flight: tuple[int, ...] = ()
    stored_rows: int = 0
    most_in_flight: int = 0

    @staticmethod
    def of(checkpoints: Sequence[CheckpointRecord], totals: CheckpointTotals) -> Persistence:
        """Return the statistics of completed checkpoints: ``totals`` of all, and those listed."""
        return Persistence(
            bytes=totals.bytes,
            longest_wait=totals.longest_wait,
            longest_write=totals.longest_write,
            in_flight=tuple(record.in_flight_rows for record in checkpoints if record.in_flight_rows),
            stored_rows=totals.stored_rows,
            most_in_flight=totals.most_in_flight,
        )

    def __str__(self) -> str:
        text = f"{self.bytes:,} bytes persisted, longest wait {duration_text(self.longest_wait)}, "
        text += f"longest write {duration_text(self.longest_write)}"
        if self.in_flight:
            text += f", in-flight rows of {self.stored_rows:,}: at most {self.most_in_flight:,}, "
            last = f" of the last {len(self.in_flight):,}" if self.stored_rows > len(self.in_flight) else ""
            text += f"median{last} {median_high(self.in_flight):,}"
        return text
