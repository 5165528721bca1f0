"""The time by which rows, and the values of keys, expire: event time and the watermark, or the clock.

By the clock, it is the time when the last rows came: it advances with the rows, so that a batch sees one time. Values
that have expired are removed bit by bit: some after each batch, and some at each watermark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataflow.clock import OperatorClock
from dataflow.contracts.declared_state import Fixed, Passed, Piece, Value
from dataflow.contracts.operator import OperatorContext
from dataflow.contracts.windows import EventTime
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.state.arrays import LEAST, Numbers
from dataflow.state.index import Slots
from dataflow.state.keyed_state import KeyedState, Ttl
from dataflow.untrusted import Time
from operators.stateful.time_units import TimeUnit

__all__ = ["SWEPT", "SWEPT_AT_ONCE", "SWEPT_A_ROW", "Expiry", "KeyExpiry"]

SWEPT, SWEPT_A_ROW, SWEPT_AT_ONCE = 1024, 2, 8192
"""Slots that are searched for expired values: after a batch, for each of its rows, and at a watermark."""


class Expiry:
    """The time by which rows expire, in microseconds.

    Args:
        passed: the watermark that the operator goes by.
        clock: the clock, without event time; None: the watermark counts.
    """

    def __init__(self, passed: Passed, clock: OperatorClock | None) -> None:
        self._passed = passed
        self._clock = clock
        self._came = LEAST

    @property
    def reached(self) -> int:
        """The watermark, or the time by the clock when the last rows came; the least number before the first."""
        return self._passed.reached if self._clock is None else self._came

    def note_arrival(self) -> int:
        """Take note that rows came, which have no event time; return their time by the clock."""
        assert self._clock is not None, "rows have event time"
        self._came = self._clock.time()
        return self._came

    def state(self) -> Mapping[str, Piece]:
        """Return the pieces that a checkpoint stores."""
        return {"time": self._passed} if self._clock is None else {"now": Value(self, "_came", Time, "greatest")}


class KeyExpiry(Expiry):
    """The time by which the values of keys expire, in the unit of the event time, if there is one.

    Args:
        ttl: how long values live, in microseconds.
        time: the event time; None: by the clock.
        context: the operator's; it has one input.
        passed: the watermark that the operator goes by.
    """

    def __init__(self, ttl: Ttl, time: EventTime | None, context: OperatorContext, passed: Passed) -> None:
        super().__init__(passed, context.clock if time is None else None)
        self._time = time
        self._where = context.name
        self._unit = TimeUnit.of_time(context.input_schemas[0], time)
        self.ttl = self._unit.ttl(ttl)
        """The time to live in the unit of the times, for the state."""

    @property
    def now(self) -> int:
        """The time that is reached, in the unit of the times."""
        return self._unit.first(self.reached)

    def insert(
        self, state: KeyedState, keys: Sequence[pa.Array], batch: pa.RecordBatch
    ) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """Return the slots of the keys of a batch, which is about to be written, as ``KeyedState.insert`` does.

        Raises: ValueError for a null event time; OverflowError for one that is out of range.
        """
        times: Numbers = (
            np.full(1, self.note_arrival(), np.int64)  # one for all rows
            if self._time is None
            else self._unit.times_of(batch, self._time, self._where)
        )
        return state.insert(keys, np.maximum(times, self.now), times)

    def sweep(self, state: KeyedState, rows: int) -> None:
        """Remove some values that have expired, after a batch of ``rows``."""
        state.expire(self.now, SWEPT + SWEPT_A_ROW * rows)

    def advance(self, watermark: int, state: KeyedState) -> None:
        """Take note of a watermark, and remove some values that have expired by it."""
        if self._time is not None:
            self._passed.advance(watermark)
            if watermark < MAX_WATERMARK:  # at the end of the input the state is of no use
                state.expire(self.now, SWEPT_AT_ONCE)

    def state(self) -> Mapping[str, Piece]:
        units: Mapping[str, Piece] = {} if self._time is None else {"time units": Fixed([self._unit.value])}
        return {**units, **super().state()}
