"""Watermarks from event time: per split the latest time seen minus a delay, merged by minimum over the live splits.

A split that has not been read yet holds the watermark back, to its first time if the source knows it. So files read one
after the other make no row late, whatever their order in time. A split that has ended, or has had no rows for long
enough, does not hold it back.

A split that was asked in vain for ``close_after`` is *closed* until its next row: its watermark is the latest time
minus delay, plus the time asked in vain, and moves on with the clock. If all splits are idle, the merged watermark is
that of the closed split that is furthest, because none holds another back.

A batch of the source may come in several pieces. The watermark moves after the last piece, or, if a filter dropped all
of that piece, before the first piece of the next batch.

State: the merged watermark; per split that has had rows and not ended, the watermark, the latest time of a batch that
has begun, and, for ``close_after``, the latest time at all. Losing it makes no row late: the watermark only starts
later. So splits that wait take no room. The input of the task keeps the time asked in vain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from dataflow.contracts.declared_state import Piece, Stateful, Value
from dataflow.contracts.operator import OperatorContext, Out
from dataflow.contracts.row_errors import OnError
from dataflow.errors import ConfigurationError
from dataflow.protocol.watermarks import MAX_WATERMARK, WatermarkMerger
from dataflow.untrusted import Time
from operators.stateful.times import latest
from operators.transforms.checked_times import CheckedTimes

__all__ = ["WatermarkOperator"]

_BEAT = 200_000
"""Microseconds between two checks for splits that have ended or become idle."""


@dataclass(slots=True)
class _StoredSplits:
    """What a checkpoint has of the splits that have had rows and not ended, and the watermark that they make."""

    merged: int | None
    watermarks: dict[str, int]
    begun: dict[str, tuple[bool, int]]
    latest: dict[str, int]


class WatermarkOperator(Stateful):
    """Passes rows on, and after each batch the watermark if it moved. See the module's text.

    Raises: ValueError for an event time that is null or further ``ahead`` of the clock, unless ``on_error`` says
    otherwise; ConfigurationError if the rows do not come straight from the splits of a source.
    """

    stateless = True
    makes_time = True

    def __init__(
        self,
        context: OperatorContext,
        column: str,
        origin: str | None,
        delay: int,
        idle_after: int | None,
        on_error: OnError,
        max_drift: int | None = None,
        close_after: int | None = None,
        ahead: int | None = None,
    ) -> None:
        if context.splits is None:
            raise ConfigurationError(
                f"{context.name!r} makes watermarks per split, so it must run in the source's own tasks: give the "
                "source and everything up to it the same parallelism"
            )
        self._context = context
        self._splits = context.splits
        self._position = context.input_schemas[0].get_field_index(column)
        self._delay = delay
        self._idle_after = idle_after
        self._times = CheckedTimes(context, column, on_error, ahead)
        self._numbers = {split: number for number, split in enumerate(context.splits.all())}
        self._merger = WatermarkMerger(max(1, len(self._numbers)))
        self._had_rows = set[str]()  # the splits that have had rows and not ended
        self._begun: dict[str, tuple[int, int]] = {}  # number of the batch, latest time in it
        self._max_drift = max_drift
        self._close_after = close_after
        self._latest: dict[str, int] = {}  # by split, of the rows so far; only for ``close_after``
        self._said_idle = False
        self._ended = 0  # how many ended splits the merger knows
        self._repeats = context.time_restarts  # the watermark is to be emitted again
        self._origin = origin
        self._begin([None] * len(self._numbers))

    def _begin(self, times: list[int | None]) -> None:
        """Begin with the watermarks of all splits."""
        if self._origin is not None:
            self._hold_back(times, self._origin)
        if times:
            self._merger.restore(times)
        self._tell()

    def open(self) -> None:
        if self._repeats:
            self._context.schedule(self._context.clock.now())
        else:
            self._look_again()

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        batch = self._times.usable(batch, out)
        if not batch.num_rows:
            return
        split, number = self._splits.current, self._splits.current_batch
        self._merger.resume(self._numbers[split])
        self._had_rows.add(split)
        time = latest(batch.column(self._position))
        begun = self._begun.get(split)
        if begun is not None and begun[0] != number:
            self._end_batch(split, out)
            begun = None
        out.emit(batch)
        self._said_idle = False
        self._end_splits(out)
        self._begun[split] = number, time if begun is None else max(begun[1], time)
        if self._close_after is not None:
            self._latest[split] = max(time, self._latest.get(split, time))
        if self._splits.next_batch(split) != number:
            self._end_batch(split, out)
        self._tell()

    def advance(self, watermark: int, out: Out) -> None:
        """Ignore the watermark from upstream, which this operator replaces; the engine forwards the final one."""
        self._tell()

    def timer(self, due: int, out: Out) -> None:
        if self._repeats:
            self._repeats = False
            self._say(self._merger.merged, out)
        self._end_splits(out)
        if self._idle_after is not None:
            for split in self._splits.live():
                if self._splits.quiet(split) >= self._idle_after:
                    self._say(self._merger.idle(self._numbers[split]), out)
            if self._merger.all_idle and not self._said_idle:
                self._said_idle = True
                out.idle()
        if self._close_after is not None:
            self._close_splits(self._close_after, out)
        self._tell()
        self._look_again()

    @property
    def held_by(self) -> str | None:
        """The first split that holds the watermark back: idle and ended ones do not. None: there is none."""
        merged = self._merger.merged
        for (split, number), time in zip(self._numbers.items(), self._merger.snapshot(), strict=False):
            if time == merged and time != MAX_WATERMARK and not self._merger.is_idle(number):
                return split
        return None

    def state(self) -> Mapping[str, Piece]:
        kept = {*self._had_rows, *self._splits.ended_splits()[self._ended :]}
        each = zip(self._numbers, self._merger.snapshot(), strict=False)
        times = {split: time for split, time in each if split in kept and time is not None and time != MAX_WATERMARK}
        begun = {
            split: (number == self._splits.next_batch(split), time)
            for split, (number, time) in self._begun.items()
            if split in kept
        }
        latest_times = {split: time for split, time in self._latest.items() if split in kept}
        self._stored = stored = _StoredSplits(self._merger.merged, times, begun, latest_times)
        return {
            "merged": Value(stored, "merged", Time | None, "least"),
            "watermarks": Value(stored, "watermarks", dict[str, Time], "split", waiting="merged"),
            "begun": Value(stored, "begun", dict[str, tuple[bool, Time]], "split"),
            "latest": Value(stored, "latest", dict[str, Time], "split"),
        }

    def restored(self) -> None:
        stored = self._stored
        if self._close_after is not None:
            self._latest = {split: time for split, time in stored.latest.items() if split in self._numbers}
        ended = set(self._splits.ended_splits())  # those that the merger knew to have ended are not stored
        self._had_rows = {split for split in stored.watermarks if split in self._numbers}
        for split, (going_on, time) in stored.begun.items():
            if split in self._numbers:
                self._begun[split] = self._splits.next_batch(split) if going_on else -1, time
        others = {split: MAX_WATERMARK if split in ended else stored.merged for split in self._numbers}
        self._merger = WatermarkMerger(max(1, len(self._numbers)))
        self._begin([stored.watermarks.get(split, time) for split, time in others.items()])

    def _end_batch(self, split: str, out: Out) -> None:
        _, time = self._begun.pop(split)
        self._say(self._merger.advance(self._numbers[split], time - self._delay), out)

    def _close_splits(self, close_after: int, out: Out) -> None:
        """Move the watermarks of the splits that were asked in vain for ``close_after``, by the whole time so far."""
        moved_idle: list[int] = []
        for split in self._splits.live():
            quiet = self._splits.quiet(split)
            if quiet < close_after or split not in self._latest:
                continue
            number, time = self._numbers[split], self._latest[split] - self._delay + quiet
            if self._merger.is_idle(number):
                moved = self._merger.move_idle(number, time)
                moved_idle += [] if moved is None else [moved]
            else:
                self._say(self._merger.advance(number, time), out)
        if moved_idle:
            self._say(moved_idle[-1], out)
            out.idle()  # the watermark ended it downstream

    def _hold_back(self, times: list[int | None], origin: str) -> None:
        """Set the watermark of each live split to its first time, if it is later and the source knows it."""
        for split in self._splits.live():
            earliest, number = self._splits.earliest(split, origin), self._numbers[split]
            if earliest is not None:
                before = times[number]
                times[number] = earliest if before is None else max(before, earliest)

    def _end_splits(self, out: Out) -> None:
        ended = self._splits.ended_splits()
        for split in ended[self._ended :]:
            self._say(self._merger.end(self._numbers[split]), out)
            self._had_rows.discard(split)
        self._ended = len(ended)

    def _say(self, moved: int | None, out: Out) -> None:
        if moved is not None and moved != MAX_WATERMARK:
            out.watermark(moved)

    def _tell(self) -> None:
        """Publish this task's progress to the other tasks of the source."""
        if self._max_drift is not None:
            counts = len(self._splits.ended_splits()) < len(self._numbers) and not self._said_idle
            self._splits.reached(self._context.name, self._merger.merged if counts else None, self._max_drift)

    def _look_again(self) -> None:
        limits = [limit // 2 for limit in (self._idle_after, self._close_after) if limit is not None]
        beat = max(1, min([_BEAT, *limits]))
        self._context.schedule(self._context.clock.now() + beat)
