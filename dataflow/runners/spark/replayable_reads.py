"""What a lane took in a micro-batch, poll by poll, so that a second attempt takes the same.

Splits that have no rows for now are passed over, so which one a batch comes from is a matter of time, and so is where
a generator cuts. The first attempt that comes to its end notes down both; later ones ask the splits in that order and
wait for the rows. Time is repeated, too: which splits were found at their end, and how long the others were quiet.
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
from dataflow.runners.spark.task_host import Hosted
from dataflow.runners.spark.user_errors import carried
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import PollResult, SplitState

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Attempt", "RecordingInlet", "RepeatingInlet", "Take"]

_PATIENCE: Final = 0.5
"""Seconds that a lane waits for its first rows: a micro-batch costs as much with none."""
_PAUSE: Final = 0.005
"""Seconds between two looks."""
_LONGEST: Final = 60_000_000
"""Microseconds that rows which were there before may take to come again."""


@dataclass(frozen=True, slots=True)
class Take:
    """A poll: the numbers of the splits that it found at their end, and of the one that gave rows (None: none did).

    ``whole``: the rows end a batch of the source, so event time moves behind them.
    """

    ended: tuple[int, ...]
    split: int | None
    rows: int = 0
    whole: bool = True

    def to_json(self) -> Json:
        return [list(self.ended), self.split, self.rows, self.whole]

    @staticmethod
    def of(found: Any) -> Take:
        """The inverse of ``to_json``."""
        ended, split, rows, whole = found
        return Take(tuple(ended), split, rows, whole)


class RecordingInlet(SourceInput):
    """The first attempt: ``takes`` has what every poll gave, in order."""

    def __init__(self, source: Source, splits: Sequence[SplitState], context: SourceContext) -> None:
        super().__init__(source, splits, context)
        self.takes: list[Take] = []
        self._numbers = {state.split.id: number for number, state in enumerate(splits)}

    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        live = [number for number, state in enumerate(self.splits) if not state.done]
        polled = super().poll(now, max_rows)
        ended = tuple([number for number in live if self.splits[number].done])
        if polled is not None:
            rows: Any = polled.flow
            whole = self.next_batch(self.current) != self.current_batch
            self.takes.append(Take(ended, self._numbers[self.current], len(rows.rows), whole))
        elif ended:
            self.takes.append(Take(ended, None))
        return polled

    def goes_on(self, left: int) -> bool:
        """Return whether to poll again if ``left`` more rows may be taken."""
        return not self.ended and left > 0


class RepeatingInlet(SourceInput):
    """A later attempt: polls give what ``takes`` says, in order, or None while the rows have not all come.

    A source that sets rows aside is asked for whole batches, for only it knows which rows those stand between; others
    for as many rows as are wanted. Raises: InputChanged where a split gives others than it did at first.
    """

    def __init__(
        self, source: Source, splits: Sequence[SplitState], context: SourceContext, takes: Sequence[Take]
    ) -> None:
        super().__init__(source, splits, context)
        self.takes = list(takes)
        self._left = deque(takes)
        self._came: list[pa.RecordBatch] = []
        self._aside: list[pa.RecordBatch] = []
        self._since: int | None = None

    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        take = self._left[0]
        for number in take.ended:
            self._end(number)
        if take.split is not None and not self._all_came(take, self.splits[take.split], now):
            return None
        self._left.popleft()
        self._since = None
        if take.split is None:
            return None
        batch, aside = joined(self._came), joined(self._aside) if self._aside else None
        self._came, self._aside = [], []
        return self._poll_result(take.split, batch, aside, whole=take.whole)

    def goes_on(self, left: int) -> bool:
        """Return whether there is more to repeat, however many rows that is."""
        return bool(self._left)

    def _all_came(self, take: Take, state: SplitState, now: int) -> bool:
        number = self.splits.index(state)
        came = sum(map(len, self._came))
        batch = self._poll(number, state, take.rows - came if take.rows > came and not self._source.sides else None)
        if batch is not None:
            self._came.append(batch)
            aside = self._rejected(number)
            self._aside += [] if aside is None else [aside]
            came += len(batch)
        self._since = now if self._since is None or batch is not None else self._since
        if state.done or came > take.rows or now - self._since > _LONGEST:
            raise InputChanged(
                f"{self._context.name}: split {state.split.id!r} gave a batch of {take.rows} rows when it was first "
                f"read, and {came} now: on Spark a source gives the same rows, in the same batches, whenever it is "
                "read on from an offset; make it do so, or use the local runner"
            )
        return bool(self._came) and came == take.rows


class Attempt:
    """A lane's attempt at a micro-batch. ``settled`` is where it ends, if an earlier one came to its end; else None."""

    inlet: RecordingInlet | RepeatingInlet

    def __init__(self, source: Source, context: SourceContext, splits: Sequence[SplitState], settled: Any) -> None:
        self._settled = settled
        if settled is None:
            self.inlet = RecordingInlet(source, splits, context)
        else:
            self.inlet = RepeatingInlet(source, splits, context, [Take.of(take) for take in settled["takes"]])

    @property
    def takes(self) -> Json:
        """What was taken, as JSON."""
        return [take.to_json() for take in self.inlet.takes]

    def steps(self, hosted: Hosted, share: int) -> Iterator[int]:
        """Take batches of ``share`` rows together, and push them through the chain; yields their number after each."""
        taken, left, since = 0, share, time.monotonic()
        while self.inlet.goes_on(left):
            with carried(hosted.task):
                polled = self.inlet.poll(SystemClock().now())
            if polled is not None and polled.flow is not None:
                if polled.rejected is not None:
                    hosted.chain.set_aside(polled.rejected, 0)
                left -= len(polled.flow.rows)  # type: ignore[union-attr]
                hosted.push(0, polled.flow)
                taken += 1
                yield taken
            elif self.inlet.goes_on(left):
                if self._settled is None and time.monotonic() - since > _PATIENCE:
                    return
                time.sleep(_PAUSE)

    def ring(self, hosted: Hosted) -> list[str]:
        """Call the timers that are due, or were at first; answers whose they are."""
        if self._settled is None:
            return hosted.ring()
        self.inlet.restore_position(self._settled, SystemClock().now())
        hosted.ring_again(self._settled["rang"])
        return list(self._settled["rang"])


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all, in one batch."""
    import pyarrow as pa

    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
