"""Rows whose event time is null or too far ahead of the clock: they fail the job, are left out, or are set aside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dataflow.arrow_values import to_array, to_numbers
from dataflow.clock import exact_duration_text
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.render_rows import render_rows
from dataflow.contracts.row_errors import ERRORS, OnError, RowErrors

__all__ = ["CheckedTimes"]

_A_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LEAST: Final = -(2**63)
_SIMULATED: Final = 10**15
"""Microseconds, until 2001. An earlier time is that of a simulated clock, or of a machine that was never set."""


class CheckedTimes:
    """Rejects rows by their event time, before it moves any time.

    Args:
        context: that of the operator, whose clock counts.
        column: the event time; without a zone it is in UTC.
        on_error: the policy for rows that are rejected.
        ahead: how far, in microseconds, a time may be ahead of time by the clock when its row is processed; None: any.
    """

    def __init__(self, context: OperatorContext, column: str, on_error: OnError, ahead: int | None = None) -> None:
        self._context = context
        self._column = column
        self._position = context.input_schemas[0].get_field_index(column)
        self._errors = RowErrors(on_error, context.tally)
        self._ahead = ahead

    def usable(self, batch: pa.RecordBatch, out: Out) -> pa.RecordBatch:
        """Return the rows of ``batch`` whose time can be used. Rows that are set aside go to ``out``.

        Raises: ValueError for any other row, unless the policy leaves such rows out.
        """
        times = batch.column(self._position)
        if times.null_count:
            batch = self._without(batch, pc.is_valid(times), "is null; filter such rows out before", out)
            times = batch.column(self._position)
        if self._ahead is not None and batch.num_rows:
            now = self._context.clock.time()
            limit = (now + self._ahead) * _A_SECOND[times.type.unit] // 1_000_000  # at or below the exact limit
            if limit < pc.max(times).value:
                near = pc.less_equal(times.cast(pa.int64()), max(limit, _LEAST))
                batch = self._without(batch, near, _too_far(self._ahead, now), out)
        return batch

    def _without(self, batch: pa.RecordBatch, good: pa.Array, why: str, out: Out) -> pa.RecordBatch:
        """Return the ``good`` rows of a batch, and reject the others."""
        bad = np.flatnonzero(~to_numbers(good))
        for row in render_rows(batch.take(to_array(bad))):
            error = ValueError(
                f"the event time {self._column!r} {why}, or give with_watermark(on_error='skip') or 'side'"
            )
            self._errors.reject(self._context.name, row, error)
        aside = self._errors.take()
        if aside is not None:
            out.emit(aside, ERRORS)
        return batch.filter(good)


def _too_far(ahead: int, now: int) -> str:
    """Return why a time that is further ahead than allowed is rejected, and what to do."""
    shown = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=now)
    simulated = "; a simulation begins in 1970 unless SimulatedRunner(wall=) says otherwise" if now < _SIMULATED else ""
    return (
        f"is more than {exact_duration_text(ahead)} ahead of the clock, which shows {shown:%Y-%m-%d %H:%M:%S} UTC"
        f"{simulated}; correct such times before, give with_watermark(ahead=) more"
    )
