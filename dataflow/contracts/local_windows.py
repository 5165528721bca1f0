"""Tumbling windows on the clock of a time zone, which are longer or shorter when the clock changes.

A window begins where ``dt.truncate`` says that the interval of a time begins, and ends where the next one begins.
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

        starts, of_row = np.unique(self._floor(times), return_inverse=True)
        return Assigned(starts[of_row], self._ends(starts)[of_row])

    def _floor(self, times: Microseconds) -> Microseconds:
        """Return the start of the window that contains each time."""
        import pyarrow as pa

        from dataflow.arrow_values import to_array, to_numbers
        from dataflow.expressions.truncation import truncate

        column = to_array(times, pa.timestamp("us", self.zone))
        return to_numbers(truncate(column, self.size, self.offset).cast(pa.int64()))

    def _ends(self, starts: Microseconds) -> Microseconds:
        """Return the end of the windows that begin at ``starts``: the first time that is in a later one."""
        import numpy as np

        ends = self._next_on_the_clock(starts)
        while True:  # a clock that is set back shows the edges of some windows twice
            last = self._floor(ends - 1)
            if (last == starts).all():
                return ends
            ends = np.where(last == starts, ends, last)

    def _next_on_the_clock(self, starts: Microseconds) -> Microseconds:
        """Return the first time after each of ``starts`` at which the clock shows ``size`` more, or skips that."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from dataflow.arrow_values import to_array, to_numbers

        shown = to_numbers(
            pc.local_timestamp(to_array(self._floor(starts), pa.timestamp("us", self.zone))).cast(pa.int64())
        )
        readings = to_array(
            (shown - self.offset) // self.size * self.size + self.offset + self.size, pa.timestamp("us")
        )
        first, last = (
            to_numbers(pc.assume_timezone(readings, self.zone, ambiguous=which, nonexistent="latest").cast(pa.int64()))
            for which in ("earliest", "latest")
        )
        return np.where(first > starts, first, last)
