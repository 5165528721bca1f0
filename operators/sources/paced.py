"""A source limited to a number of rows per second, for demos and for tests of skewed inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import pyarrow as pa

from dataflow.clock import Clock
from dataflow.contracts.source import END, EndOfSplit, InputIdentity, Json, Source, SourceContext, Split, SplitReader
from dataflow.contracts.tuning import Choice
from dataflow.errors import ConfigurationError

__all__ = ["PacedSource", "paced"]

_SECOND: Final = 1_000_000
_BEAT: Final = 10_000  # microseconds between batches of a rate above 100 rows a second


def paced(source: Source, rows_per_second: float | Sequence[float]) -> PacedSource:
    """Limit each split of ``source`` to ``rows_per_second`` rows.

    Rows become due at a constant rate from a reader's first poll on, and are emitted every 10 ms, or one by one if less
    than a row is due in 10 ms. Rows that became due between two polls are emitted at once.

    Args:
        source: any source.
        rows_per_second: a number above 0, or several: then split i has rate i modulo their count.

    Returns: a source with the rows and splits of ``source``.

    Raises: ConfigurationError for a rate that is not above 0 and finite.

    >>> from operators.sources.arrow import from_arrow
    >>> from dataflow.clock import ManualClock
    >>> clock, source = ManualClock(), paced(from_arrow(pa.table({"x": range(10)})), 1_000)
    >>> reader = source.reader(source.splits()[0], None, SourceContext("numbers", 0, 1, clock))
    >>> print(reader.poll(100))
    None
    >>> clock.advance(10_000)
    >>> reader.poll(100).num_rows
    10
    """
    rates = (rows_per_second,) if isinstance(rows_per_second, int | float) else tuple(rows_per_second)
    if not rates or not all(0 < rate < float("inf") for rate in rates):
        raise ConfigurationError(f"paced: a rate must be a number of rows per second above 0, got {rows_per_second!r}")
    return PacedSource(source, rates)


class PacedSource(Source):
    """The source that ``paced`` makes. Everything but the rate is that of the inner source."""

    def __init__(self, source: Source, rates: tuple[float, ...]) -> None:
        self._source = self.wraps = source
        self._rates = rates
        self.bounded = source.bounded
        self.replayable = source.replayable
        self.accepts_loss = source.accepts_loss
        self.blocking = source.blocking

    @property
    def schema(self) -> pa.Schema:
        return self._source.schema

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return self._source.sides

    @property
    def kernels(self) -> Sequence[str]:
        return self._source.kernels

    def splits(self) -> Sequence[Split]:
        return self._source.splits()

    def check(self, split: Split) -> None:
        self._source.check(split)

    def identified_by(self, identity: InputIdentity) -> PacedSource:
        return PacedSource(self._source.identified_by(identity), self._rates)

    def choices(self) -> Sequence[Choice]:
        return self._source.choices()

    def select(self, columns: Sequence[str]) -> PacedSource:
        return PacedSource(self._source.select(columns), self._rates)

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        index = next((index for index, mine in enumerate(self.splits()) if mine.id == split.id), 0)
        return _PacedReader(
            self._source.reader(split, offset, context), self._rates[index % len(self._rates)], context.clock
        )


class _PacedReader(SplitReader):
    def __init__(self, reader: SplitReader, rate: float, clock: Clock) -> None:
        self._reader = reader
        self._rate = rate
        self._clock = clock
        self._start: int | None = None
        self._given = 0
        self._cut = False
        self._least = max(1, int(rate * _BEAT / _SECOND))

    def poll(self, max_rows: int) -> pa.RecordBatch | Literal[EndOfSplit.END] | None:
        now = self._clock.now()
        if self._start is None:
            self._start = now
        due = int((now - self._start) * self._rate / _SECOND) - self._given
        if due < min(self._least, max_rows):
            return None
        self._cut = max_rows < due
        batch = self._reader.poll(min(due, max_rows))
        if batch is not None and batch is not END:
            self._given += batch.num_rows
        return batch

    @property
    def next_poll(self) -> int | None:
        if self._start is None:
            return None
        due = self._start + math.ceil((self._given + self._least) * _SECOND / self._rate)
        return due if due > self._clock.now() else self._reader.next_poll

    def rejected(self) -> pa.RecordBatch | None:
        return self._reader.rejected()

    @property
    def offset(self) -> Json:
        return self._reader.offset

    @property
    def mid_batch(self) -> bool:
        return self._cut and self._reader.mid_batch  # not if the rate cut it: time must advance

    def close(self) -> None:
        self._reader.close()
