"""The numbers under which the state of windows is kept: of slices, or of windows.

The state of a window aggregate is a record for each key and number (``operators.windows.panes``). There are two ways to
number it:

- ``BySlice``: the number is that of a slice, and each row has one. Windows are ranges of slices.
- ``ByWindow``: each row is folded into each of its windows. The number is the end of the window, in the unit of its
  edges, and the start is one more column of the key.

Invariant: numbers grow with time, so a watermark completes all numbers up to one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.contracts.windows import Assigned, EventTime, Sliced, Window, greatest_complete
from dataflow.errors import CheckpointDamaged, ContractViolation
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import LEAST, Numbers
from operators.stateful.columns import START
from operators.stateful.time_units import TimeUnit
from operators.stateful.times import row_times, slice_numbers

__all__ = ["BySlice", "ByWindow", "Numbered", "Numbering", "numbering"]


@dataclass(frozen=True, slots=True)
class Numbered:
    """The numbers of a batch, at least one: entry i is of row ``rows[i]`` (None: of row i) and begins at ``starts[i]``.

    ``starts`` is None if the number says where it begins.
    """

    numbers: Numbers
    low: int
    high: int
    starts: Numbers | None = None
    rows: Numbers | None = None


class Numbering(ABC):
    """How the state of ``window`` is numbered, for rows with event time ``time``."""

    def __init__(self, window: Window, time: EventTime) -> None:
        self.window = window
        self.time = time
        self.unit = TimeUnit(window.edge_unit)
        """The unit of the edges of windows."""

    key_fields: tuple[pa.Field, ...] = ()
    """The columns that are part of the key of the state, besides the user's."""

    @abstractmethod
    def of(self, batch: pa.RecordBatch) -> Numbered | None:
        """Return the numbers of a batch, at least one row without null times; None if no row is in a window.

        Raises: OverflowError for times out of range.
        """

    @abstractmethod
    def over(self, watermark: int) -> int:
        """Return the last number all of whose windows are complete."""

    def first_open(self, watermark: int) -> int:
        """Return the least number with a window that is not complete; no window has the number ``MAX_WATERMARK``."""
        return min(self.over(watermark) + 1, MAX_WATERMARK)

    def low(self, column: str, watermark: int) -> tuple[str, int] | None:
        """Return the bound of a log: from which number in ``column`` on its rows count, those of open windows.

        ``watermark`` is the least number of 64 bits, and the bound None, before the first watermark.
        """
        return None if watermark == LEAST else (column, self.first_open(watermark))

    @abstractmethod
    def begun(self, watermark: int) -> int:
        """Return the last number with a window that is complete: at or above ``over``."""

    @abstractmethod
    def last_ends(self, numbers: Numbers) -> Numbers:
        """Return the end of the last window of each number, in microseconds, rounded down."""

    @abstractmethod
    def edges(self, numbers: Numbers, starts: Numbers | None) -> tuple[Numbers, Numbers]:
        """Return the first time of each slice or window, and the one after it; ``starts`` as in ``Numbered``."""

    @abstractmethod
    def in_range(self, low: int, high: int) -> bool:
        """Return whether numbers from ``low`` to ``high`` are of windows whose edges fit into 64 bits."""

    def check(self, numbers: pa.Array | pa.ChunkedArray) -> None:
        """Raise CheckpointDamaged unless these are numbers of windows that begin and end within 64 bits."""
        if numbers.type != pa.int64() or numbers.null_count:
            raise CheckpointDamaged(f"window numbers are {numbers.type} with {numbers.null_count} nulls")
        bounds = pc.min_max(numbers).as_py() if len(numbers) else {"min": 0, "max": 0}
        if not self.in_range(bounds["min"], bounds["max"]):
            raise CheckpointDamaged(f"window numbers {bounds['min']} to {bounds['max']} are out of range")


class BySlice(Numbering):
    """Numbers of slices. ``window`` has slices."""

    window: Sliced

    def of(self, batch: pa.RecordBatch) -> Numbered:
        return Numbered(*slice_numbers(batch.column(self.time.column), self.window, self.time.back))

    def over(self, watermark: int) -> int:
        first_open = self.window.last_complete(watermark) + 1
        return self.window.covered(first_open)[0] - 1

    def begun(self, watermark: int) -> int:
        return self.window.covered(self.window.last_complete(watermark))[1] - 1

    def last_ends(self, numbers: Numbers) -> Numbers:
        return self.window.end(self.window.containing(numbers)[1])

    def edges(self, numbers: Numbers, starts: Numbers | None) -> tuple[Numbers, Numbers]:
        return self.window.slices.start(numbers), self.window.slices.start(numbers + 1)

    def in_range(self, low: int, high: int) -> bool:
        first, last = self.window.containing(low)[0], self.window.containing(high)[1]
        return self.window.start(first) >= -MAX_WATERMARK and self.window.end(last) < MAX_WATERMARK


class ByWindow(Numbering):
    """Numbers that are ends of windows, in the unit of their edges."""

    key_fields = (pa.field(START, pa.int64()),)

    def of(self, batch: pa.RecordBatch) -> Numbered | None:
        times = row_times(batch.column(self.time.column), self.time.back)
        count = len(times)
        assigned = self.window.assign(times, batch)
        if not isinstance(assigned, Assigned):
            raise ContractViolation(
                f"{self.window}: assign() must return flow.Assigned(starts, ends), got {type(assigned).__name__}"
            )
        starts, ends = self._integers(assigned.starts, "starts"), self._integers(assigned.ends, "ends")
        rows = None if assigned.rows is None else self._integers(assigned.rows, "rows")
        if rows is not None and len(rows) and (rows[0] < 0 or rows[-1] >= count or (np.diff(rows) < 0).any()):
            raise ContractViolation(
                f"{self.window}: assign() returned rows from {rows.min()} to {rows.max()} for {count} rows; they must "
                f"be numbers of rows, from 0 to {count - 1}, in ascending order"
            )
        if len(starts) != len(ends) or len(ends) != (count if rows is None else len(rows)):
            raise ContractViolation(
                f"{self.window}: assign() returned {len(starts)} starts and {len(ends)} ends for "
                f"{count if rows is None else len(rows)} rows; each window needs a start, an end and a row"
            )
        if not len(ends):
            return None
        if not (starts < ends).all():
            at = int(np.argmin(starts < ends))
            raise ContractViolation(
                f"{self.window}: assign() returned a window from {starts[at]} to {ends[at]}, which does not end after "
                "its start"
            )
        if starts.min() < -MAX_WATERMARK or ends.max() >= MAX_WATERMARK:
            raise OverflowError(
                f"windows from {starts.min()} to {ends.max()} {self.unit.value} are out of range for 64 bits"
            )
        return Numbered(ends, int(ends.min()), int(ends.max()), starts, rows)

    def of_slices(self, slices: Numbers) -> Numbered:
        """Return the windows of records that are numbered by slice: all rows of a slice are in the same windows."""
        assert isinstance(self.window, Sliced), f"{self.window} has no slices"
        found = self.window.assign(self.window.slices.start(slices))
        assert found.rows is not None, f"{self.window} gives a row several windows"
        return Numbered(found.ends, int(found.ends.min()), int(found.ends.max()), found.starts, found.rows)

    def _integers(self, values: Any, what: str) -> Numbers:
        """Return what ``assign`` returned as int64."""
        array = np.asarray(values)
        if array.dtype.kind not in "iu" and len(array):
            raise ContractViolation(
                f"{self.window}: assign() returned {what} of type {array.dtype}; they must be integers, and times are "
                "microseconds since 1970"
            )
        return np.ascontiguousarray(array, np.int64)

    def over(self, watermark: int) -> int:
        if watermark == MAX_WATERMARK:  # the input has ended
            return watermark
        return greatest_complete(self.window, self.unit.first(watermark))

    def begun(self, watermark: int) -> int:
        return self.over(watermark)

    def last_ends(self, numbers: Numbers) -> Numbers:
        return self.unit.microseconds(numbers)

    def edges(self, numbers: Numbers, starts: Numbers | None) -> tuple[Numbers, Numbers]:
        assert starts is not None, "the start of a window is part of its key"
        return starts, numbers

    def in_range(self, low: int, high: int) -> bool:
        return low >= -MAX_WATERMARK and high < MAX_WATERMARK


def numbering(window: Window, time: EventTime, *, mergeable: bool) -> Numbering:
    """Return how the state of ``window`` is numbered. ``mergeable``: whether the records can be merged.

    Records that cannot be merged are kept by slice only if each window is one slice.
    """
    if isinstance(window, Sliced) and (mergeable or not window.overlaps):
        return BySlice(window, time)
    return ByWindow(window, time)
