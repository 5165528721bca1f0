"""Reads of a source task that are recorded poll by poll, so that a second attempt reads the same rows.

Which split a batch comes from depends on time, because splits without rows are skipped; so do the batches of a
generator. The first attempt to finish stores both. Later attempts poll the splits in that order and wait for the rows.
They also repeat time: which splits had ended, and how long the others had no rows.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from dataflow.clock import SystemClock
from dataflow.contracts.source import Json, Source, SourceContext
from dataflow.errors import InputChanged
from dataflow.runners.spark.task_host import TaskHost
from dataflow.runners.spark.user_errors import serialized_errors
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import PollResult, SplitState

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ReadAttempt", "RecordedPoll", "RecordingInput", "RepeatingInput"]

_PATIENCE: Final = 0.5
"""Seconds that a source task waits for its first rows: an empty micro-batch costs as much as a full one."""
_PAUSE: Final = 0.005
"""Seconds between two polls."""
_LONGEST: Final = 60_000_000
"""Microseconds to wait for rows that an earlier attempt has read."""


@dataclass(frozen=True, slots=True)
class RecordedPoll:
    """A poll: the numbers of the splits that had ended, and of the split that the rows came from (None: no rows).

    Splits are numbered among those that had not ended before the micro-batch.

    ``rows`` counts pruned rows, too, so it does not depend on the filters of the pipeline.
    ``whole``: the rows complete a batch of the source, so event time advances after them.
    """

    ended: tuple[int, ...]
    split: int | None
    rows: int = 0
    whole: bool = True

    def to_json(self) -> Json:
        return [list(self.ended), self.split, self.rows, self.whole]

    @staticmethod
    def of(entry: Any) -> RecordedPoll:
        """Return the poll that ``to_json`` stored."""
        ended, split, rows, whole = entry
        return RecordedPoll(tuple(ended), split, rows, whole)


class RecordingInput(SourceInput):
    """The input of the first attempt. ``polls`` records every poll, in order."""

    def __init__(self, source: Source, splits: Sequence[SplitState], context: SourceContext) -> None:
        super().__init__(source, splits, context)
        self.polls: list[RecordedPoll] = []
        self._numbers = {state.split.id: number for number, state in enumerate(splits)}

    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        before = len(self.ended_splits())
        polled = super().poll(now, max_rows)
        ended = tuple([self._numbers[split] for split in self.ended_splits()[before:]])
        if polled is not None:
            whole = self.next_batch(self.current) != self.current_batch
            self.polls.append(RecordedPoll(ended, self._numbers[self.current], self.last_read, whole))
        elif ended:
            self.polls.append(RecordedPoll(ended, None))
        return polled

    def has_more(self, left: int) -> bool:
        """Return whether to poll again if ``left`` more rows may be read."""
        return not self.ended and left > 0


class RepeatingInput(SourceInput):
    """The input of a later attempt. It repeats ``polls`` in order; a poll returns None until all its rows have arrived.

    A source that sets rows aside is asked for whole batches, because only the source knows the position of these rows
    in a batch. Other sources are asked for the recorded number of rows.

    Raises: InputChanged if a split returns other rows than in the first attempt.
    """

    def __init__(
        self, source: Source, splits: Sequence[SplitState], context: SourceContext, polls: Sequence[RecordedPoll]
    ) -> None:
        super().__init__(source, splits, context)
        self.polls = list(polls)
        self._left = deque(polls)
        self._received: list[pa.RecordBatch] = []
        self._rows = 0  # of ``_received``, with those that were pruned
        self._aside: list[pa.RecordBatch] = []
        self._since: int | None = None

    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        poll = self._left[0]
        for number in poll.ended:
            self._end(number)
        if poll.split is not None and not self._is_complete(poll, poll.split, now):
            return None
        self._left.popleft()
        self._since = None
        if poll.split is None:
            return None
        batch, aside = joined(self._received), joined(self._aside) if self._aside else None
        self._received, self._aside, self._rows = [], [], 0
        return self._poll_result(poll.split, batch, aside, whole=poll.whole)

    def has_more(self, left: int) -> bool:
        """Return whether polls are left to repeat, whatever the number of their rows."""
        return bool(self._left)

    def _is_complete(self, poll: RecordedPoll, number: int, now: int) -> bool:
        state = self.splits[number]
        left = poll.rows - self._rows
        batch = self._poll(number, state, left if left > 0 and not self._source.sides else None)
        if batch is not None:
            self._received.append(batch)
            aside = self._rejected(number)
            self._aside += [] if aside is None else [aside]
            self._rows += self.last_read
        rows = self._rows
        self._since = now if self._since is None or batch is not None else self._since
        if state.done or rows > poll.rows or now - self._since > _LONGEST:
            raise InputChanged(
                f"{self._context.name}: split {state.split.id!r} returned a batch of {poll.rows} rows when it was "
                f"first read, and {rows} rows now: on Spark a source must return the same rows, in the same batches, "
                "each time it is read from an offset; change the source so that it does, or use the local runner"
            )
        return bool(self._received) and rows == poll.rows


class ReadAttempt:
    """A source task's attempt at a micro-batch. ``settled``: the state that an earlier attempt stored, or None."""

    task_input: RecordingInput | RepeatingInput

    def __init__(self, source: Source, context: SourceContext, splits: Sequence[SplitState], settled: Any) -> None:
        self._settled = settled
        if settled is None:
            self.task_input = RecordingInput(source, splits, context)
        else:
            self.task_input = RepeatingInput(
                source, splits, context, [RecordedPoll.of(poll) for poll in settled["takes"]]
            )

    @property
    def polls(self) -> Json:
        """The recorded polls, as JSON."""
        return [poll.to_json() for poll in self.task_input.polls]

    def steps(self, host: TaskHost, share: int) -> Iterator[int]:
        """Read ``share`` rows in whole batches, and run the chain on each; yield the number of batches after each."""
        taken, left, since = 0, share, time.monotonic()
        while self.task_input.has_more(left):
            with serialized_errors(host.task):
                polled = self.task_input.poll(SystemClock().now())
            if polled is not None and polled.flow is not None:
                if polled.rejected is not None:
                    host.chain.set_aside(polled.rejected, 0)
                left -= len(polled.flow.rows)  # type: ignore[union-attr]
                host.push(0, polled.flow)
                taken += 1
                yield taken
            elif self.task_input.has_more(left):
                if self._settled is None and time.monotonic() - since > _PATIENCE:
                    return
                time.sleep(_PAUSE)

    def call_timers(self, host: TaskHost) -> None:
        """Call the timers that are due; for them, splits were quiet for as long as in the first attempt."""
        if self._settled is None:
            self.task_input.stop_clock(SystemClock().now())  # a later attempt repeats the times that are stored now
        else:
            self.task_input.restore_position(self._settled)
        host.call_due_timers()


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return one batch with the rows of all."""
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
