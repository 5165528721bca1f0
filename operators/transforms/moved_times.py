"""Detection of event times that a user's function moved to before the watermark, with an error that names the function.

A watermark T means that no row before T is expected. Downstream, such rows would count as late, or be missed by an
operator that relies on T, and nothing would point at the function. Rows that were late already keep their times, so
only times that the function's input does not have are errors.

There is no state: the watermark of a restored checkpoint comes from the engine, so that the first rows after a restore
are also checked. If rows of a snapshot are read again (mode "unaligned"), they may be before that watermark without a
fault of the function, so nothing is checked then, nor in any later run of the job.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_numbers
from dataflow.contracts.declared_state import Passed
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.windows import EventTime

__all__ = ["MovedTimes"]

_UNIT: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}


class MovedTimes:
    """Compares the event times that a function was given with those it returned.

    Args:
        time: the event time that the stream still has after the function, or None.
        where: begins the error's text.
        context: the operator's context; None: nothing is restored.
    """

    def __init__(self, time: EventTime | None, where: str, context: OperatorContext | None = None) -> None:
        self._where = where
        self._passed = Passed(None if context is None else context.watermark)
        again = context is not None and (context.repeated or (context.repeats and context.watermark is not None))
        self._time = None if again else time

    def advance(self, watermark: int) -> None:
        """Store the new merged watermark (microseconds)."""
        self._passed.advance(watermark)

    def rows(self, given: pa.RecordBatch, made: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """Return the rows of ``made`` with times before the watermark that no row of ``given`` has."""
        watermark = self._passed.watermark
        if self._time is None or watermark is None or not made.num_rows:
            return _NONE
        times = made.column(self._time.column)
        least = pc.min(times)
        bound = min(_bound(watermark, times.type.unit) + self._time.back, 2**63 - 1)
        if not least.is_valid or least.value >= bound:
            return _NONE
        known = given.column(self._time.column)
        moved = pc.and_(pc.less(times.cast(pa.int64()), bound), pc.invert(pc.is_in(times, value_set=known)))
        return to_numbers(pc.indices_nonzero(moved)).astype(np.int64)  # a null time is neither

    def error(self, made: pa.RecordBatch, rows: npt.NDArray[np.int64]) -> ValueError:
        """Return the error for ``rows`` of ``made``."""
        assert self._time is not None, "rows are moved where there is event time"
        column = self._time.column
        first: Any = made.column(column)[int(rows[0])]
        return ValueError(
            f"{self._where}: the function moved the event time {column!r} of {len(rows)} rows to before the watermark "
            f"(one of them to {first}), and no such row is expected any more. Change times before with_watermark, "
            f"return the changed time as another column, or give with_watermark a longer delay="
        )

    def check(self, given: pa.RecordBatch, made: pa.RecordBatch) -> None:
        """Raise ValueError if rows of ``made`` were moved to before the watermark."""
        rows = self.rows(given, made)
        if len(rows):
            raise self.error(made, rows)


_NONE: Final = np.empty(0, np.int64)


def _bound(watermark: int, unit: str) -> int:
    """Return the first value of a column of ``unit`` that is not before ``watermark``, within 64 bits."""
    bound = watermark * 1000 if unit == "ns" else -(-watermark // _UNIT[unit])
    return max(-(2**63), min(bound, 2**63 - 1))
