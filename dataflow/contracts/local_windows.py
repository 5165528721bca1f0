"""Tumbling windows on the clock of a time zone, which are longer or shorter when the clock changes.

Their edges are those of ``dt.truncate``: see ``dataflow.expressions.local_intervals``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from dataflow.contracts.windows import Assigned, EventTime, Window
from dataflow.errors import GraphError

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.contracts.windows import Microseconds

__all__ = ["LocalTumbling"]


@dataclass(frozen=True, slots=True)
class LocalTumbling(Window):
    """Adjacent windows of ``size`` microseconds on the clock of ``zone``; ``offset`` moves their edges.

    >>> import numpy as np, pyarrow as pa
    >>> days = LocalTumbling(86_400_000_000, 0, "Europe/Berlin")
    >>> noon = pa.scalar("2024-03-31T12:00:00").cast(pa.timestamp("us")).value
    >>> assigned = days.assign(np.array([noon]), None)
    >>> int(assigned.ends[0] - assigned.starts[0]) // 3_600_000_000  # hours of the day on which summer time begins
    23
    """

    overlaps: ClassVar[bool] = False
    ends_follow: ClassVar[bool] = True

    size: int
    offset: int
    zone: str

    def __str__(self) -> str:
        return f"tumbling({self.size}us, offset={self.offset}us, zone={self.zone!r})"

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.size, self.offset, 1_000_000  # clocks change by whole seconds

    def check(self, schema: pa.Schema, time: EventTime) -> None:
        """Raise GraphError unless the event time is a timestamp with this zone."""
        zone = schema.field(time.column).type.tz
        if zone != self.zone:
            unit, found = schema.field(time.column).type.unit, f"the zone {zone!r}" if zone else "no zone"
            instead = f".cast('timestamp[{unit}, tz={self.zone}]')" if zone else f".dt.localize({self.zone!r})"
            local = "" if zone else ", if it has the times of that clock,"
            raise GraphError(
                f"window: op.tumbling(zone={self.zone!r}) needs event times with that zone, and {time.column!r} has "
                f"{found}; write col({time.column!r}){instead}{local} in a with_columns before with_watermark"
            )

    def assign(self, times: Microseconds, batch: pa.RecordBatch | None) -> Assigned:
        import numpy as np

        from dataflow.expressions.local_intervals import LocalIntervals

        intervals = LocalIntervals(self.size, self.offset, "us", self.zone)
        starts, of_row = np.unique(intervals.starts(times), return_inverse=True)
        return Assigned(starts[of_row], intervals.ends(starts)[of_row])
