"""The input of a source task: the splits of one subtask, the readers that are open, and how far each split was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from dataflow.contracts.declared_schema import DeclaredSchema
from dataflow.contracts.emitted_rows import UNWATCHED
from dataflow.contracts.row_errors import ERRORS, shorten
from dataflow.contracts.source import END, Json, Source, SourceContext, Split, SplitReader
from dataflow.contracts.spec import is_users
from dataflow.contracts.tuning import Choice
from dataflow.errors import (
    CheckpointDamaged,
    CleanupFailedWarning,
    ContractViolation,
    closing_raised,
    is_cleanup_failure,
)
from dataflow.protocol.actions import AbortReason, Action, TakeSnapshot
from dataflow.protocol.events import Data
from dataflow.runtime.task.contract_checks import check_offset, check_polled, check_reader, check_rejected
from dataflow.runtime.task.joined_rows import Apart, JoinPolicy, Pile, has_fixed_width, joining, may_join
from dataflow.runtime.task.poll_times import AtOnce, PollTimes, polling
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.source_peers import Peers
from dataflow.runtime.task.task_input import PollResult, SplitState, TaskInput
from dataflow.untrusted import Count, parsed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["SourceInput"]

_WHOLE = 1 << 30
"""No limit on a batch: the batch size of the source applies."""
_AT_ONCE = 1_000
"""Microseconds within which small batches must be polled to be joined."""


class SourceInput(TaskInput):
    """The input from the splits of a source that belong to one subtask.

    A split of a bounded source is read to its end before the next begins, unless it has no rows now; the splits of an
    unbounded source take turns. The epoch of a batch is the id of the last barrier that was sent ahead of it. Operators
    of the task ask here which split their rows come from (``LiveSplits``). While the task is too far ahead of its
    ``peers``, nothing is read; otherwise it reads when ``times`` says so.
    """

    current = ""
    current_batch = 0

    is_source = True

    def __init__(
        self,
        source: Source,
        splits: Sequence[SplitState],
        context: SourceContext,
        peers: Peers | None = None,
        join: JoinPolicy | None = None,
        times: PollTimes | None = None,
    ) -> None:
        super().__init__()
        self._source = source
        self._context = context
        self._emitted = context.emitted if is_users(source) else UNWATCHED
        self._peers = peers or Peers(context.parallelism)
        self._join = join or Apart()
        self._times: PollTimes = times or AtOnce()
        self._fixed_width = has_fixed_width(source.schema)
        self._starved = False  # the last poll gave nothing
        self._given = self._joins = 0  # batches that left, and those joined to the one before them
        self._empty = 0  # polls that found no rows
        self._drained = False  # no split is read any further: the next poll ends all of them
        self._polled: tuple[int, pa.RecordBatch, pa.RecordBatch | None] | None = None
        """The number of a split, its next batch and rejected rows: already polled, but too large to be joined."""
        self.splits = list(splits)
        self._ended = [state.split.id for state in self.splits if state.done]
        self._readers: dict[int, SplitReader] = {}
        self._declared: dict[str | None, DeclaredSchema] = {}
        self._current = 0
        self._quiet: dict[str, tuple[int, int]] = {}  # first and last poll without rows, since the last rows
        self._quiet_before: dict[str, int] = {}  # how long splits were quiet before the restore, and still are
        self._batches: dict[str, int] = {}
        self.tally = context.tally
        self.epoch = 0
        self.last_read = 0
        """Rows by which the last poll moved a split's position, pruned ones included."""

    @property
    def ended(self) -> bool:
        return self._polled is None and len(self._ended) == len(self.splits)

    def drain(self) -> None:
        self._drained = True

    @property
    def hurried(self) -> bool:
        return bool(self._held) or self._starved

    @property
    def floor(self) -> int:
        return self.epoch + 1

    @property
    def _may_start(self) -> bool:
        return self._polled is None  # its reader is past it

    def triggered(self, now: int) -> Sequence[Action]:
        actions = super().triggered(now)
        for action in actions:
            if isinstance(action, TakeSnapshot):
                self.epoch = action.barrier.checkpoint
        return actions

    @property
    def deadline(self) -> int | None:
        return self._times.next  # it rings no bell when it has rows

    @property
    def gathers(self) -> bool:
        return self._times.gathers and self._polled is None

    def poll(self, now: int, max_rows: int | None = None) -> PollResult | None:
        if self._drained:
            if self._polled is None:
                self._end_all()
            return self._pass_on()
        if self._peers.ahead(self._context.subtask):
            return None
        if self._polled is not None:
            return self._pass_on()
        if now < self._times.next:
            return None
        polled = self._take(now, max_rows)
        self._starved = polled is None or self._times.gathers
        if polled is None and not self.ended:
            self._empty += 1
            self._times.gave_nothing(now, self._next_poll())
        return polled

    def _end_all(self) -> None:
        """End every split where it is. Rows that were polled have been passed on, so none comes after its split."""
        for index, state in enumerate(self.splits):
            if not state.done:
                try:
                    self._end(index)
                except Exception as error:
                    self._blame(error, index)
                    raise

    def _pass_on(self) -> PollResult | None:
        """Return the rows that were polled already, if any."""
        if self._polled is None:
            return None
        (index, batch, rejected), self._polled = self._polled, None
        return self._poll_result(index, batch, rejected, whole=True)

    def _next_poll(self) -> int | None:
        """Return the time before which no split has rows, if the readers of all splits know it."""
        times: list[int | None] = []
        if len(self._readers) + len(self._ended) < len(self.splits):
            return None
        for index, reader in self._readers.items():
            try:
                time = reader.next_poll
            except Exception as error:
                self._blame(error, index)
                raise
            if time is not None and type(time) is not int:
                raise ContractViolation(
                    f"{self._where_in(index)}: next_poll must be microseconds of the context's clock, as an int, or "
                    f"None, but it is {time!r}"
                )
            times.append(time)
        known = [time for time in times if time is not None]
        return min(known) if known and len(known) == len(times) else None

    def _take(self, now: int, max_rows: int | None) -> PollResult | None:
        for _ in range(len(self.splits)):
            index, whole, cut, moved = self._current, True, False, 0
            state, started = self.splits[index], self._context.clock.now()
            try:
                batch = None if state.done else self._poll(index, state, max_rows)
                rejected = None if batch is None else self._rejected(index)
                if batch is not None:
                    whole = not self._readers[index].mid_batch
                    cut, moved = not whole or len(batch) == max_rows, self.last_read + len(rejected or ())
                    if rejected is None and not self._times.gathers:
                        batch, rejected = self._joined(index, batch, max_rows, started)
            except Exception as error:
                self._blame(error, index)
                raise
            if batch is None or not self._source.bounded:  # an unbounded split must not keep the others waiting
                self._current = (index + 1) % len(self.splits)
            if batch is not None:
                self._times.gave(now, max(moved, len(batch)), self._next_poll(), more=cut)
                return self._poll_result(index, batch, rejected, whole=whole)
            if not state.done:
                self._quiet[state.split.id] = (self._quiet.get(state.split.id, (now, now))[0], now)
        return None

    def _joined(
        self, index: int, batch: pa.RecordBatch, max_rows: int | None, started: int
    ) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
        """Return ``batch`` and the batches that its split has behind it, as one, and the rows rejected by the last.

        ``started`` is the time of the first poll: a reader that takes long must not keep rows waiting.
        """
        pile, rejected, last = Pile([batch]), None, batch
        limit = _WHOLE if max_rows is None else max_rows
        while (room := min(self._join.room(len(pile)), limit - len(pile))) > 0:
            if rejected is not None or not last.num_rows or self._context.clock.now() > started + _AT_ONCE:
                break
            polled = self._poll(index, self.splits[index], room)
            if polled is None:
                break
            last, rejected = polled, self._rejected(index)
            if not may_join(pile, last, self._join, fixed_width=self._fixed_width):
                self._polled, rejected = (index, last, rejected), None
                break
            pile.add(last)
            self._joins += 1
        return pile.joined(), rejected

    def _poll_result(
        self, index: int, batch: pa.RecordBatch, rejected: pa.RecordBatch | None, *, whole: bool
    ) -> PollResult:
        """Wrap rows read from a split; ``whole``: they complete a batch of the source."""
        self._given += 1
        self.current = self.splits[index].split.id
        self._quiet.pop(self.current, None)
        self._quiet_before.pop(self.current, None)
        self.current_batch = self.next_batch(self.current)
        self._batches[self.current] = self.current_batch + whole
        return PollResult(0, Data(batch, self.epoch), rejected=rejected)

    def _rejected(self, index: int) -> pa.RecordBatch | None:
        rejected = self._readers[index].rejected()
        if rejected is None:
            return None
        check_rejected(rejected, self._source, self._where_in(index))
        return self._conformed(index, rejected, ERRORS)

    @property
    def _where(self) -> str:
        name = self._context.name
        return f"source {name!r} ({type(self._source).__name__}), subtask {name}[{self._context.subtask}]"

    def _where_in(self, index: int) -> str:
        return f"{self._where}, split {self.splits[index].split.id!r}"

    def _conformed(self, index: int, batch: pa.RecordBatch, tag: str | None = None) -> pa.RecordBatch:
        """Return a reader's rows in the schema that the source declares for them."""
        declared = self._declared.get(tag)
        if declared is None:
            schema = self._source.schema if tag is None else self._source.sides[tag]
            data, advice = f"{self._where}: a batch of its reader", "change the reader or the schema of the source"
            either = self._source.may_be_text if tag is None else ()
            declared = self._declared[tag] = DeclaredSchema(schema, data, advice, either)
        return declared.conformed(batch)

    def _blame(self, error: BaseException, index: int) -> None:
        """Add a note to ``error`` that names the source and the split whose reader raised it."""
        name, split = self._context.name, self.splits[index].split.id
        error.add_note(f"raised by source {name!r} ({type(self._source).__name__}), split {split!r}")

    def read_to(self, *, is_polled: bool) -> tuple[str, str]:
        split = self.splits[self._current].split.id if is_polled and self.splits else self.current
        index = next((i for i, state in enumerate(self.splits) if state.split.id == split), None)
        if index is None:
            return "", ""
        reader, offset = self._readers.get(index), self.splits[index].offset
        with suppress(Exception):  # a reader of a user's, which may be the one that failed
            offset = offset if reader is None else reader.offset
        return split, "" if offset is None else shorten(offset)

    def next_batch(self, split: str) -> int:
        return self._batches.get(split, 0)

    def all(self) -> Sequence[str]:
        return [state.split.id for state in self.splits]

    def live(self) -> Sequence[str]:
        return [state.split.id for state in self.splits if not state.done]

    def ended_splits(self) -> Sequence[str]:
        return self._ended

    @cached_property
    def _by_id(self) -> Mapping[str, Split]:
        return {state.split.id: state.split for state in self.splits}

    def earliest(self, split: str, column: str) -> int | None:
        return self._source.earliest(self._by_id[split], column)

    def quiet(self, split: str) -> int:
        before = self._quiet_before.get(split, 0)
        if split not in self._quiet:
            return before
        first, last = self._quiet[split]
        silent = min(self._context.clock.now(), self._times.next)  # a reader may have said when it has rows again
        return before + max(last, silent) - first

    def reached(self, clock: str, time: int | None, drift: int) -> None:
        self._peers.reached(clock, self._context.subtask, time, drift)

    def _poll(self, index: int, state: SplitState, max_rows: int | None) -> pa.RecordBatch | None:
        reader = self._readers.get(index)
        if reader is None:
            reader = self._source.reader(state.split, state.offset, self._context)
            check_reader(reader, self._where_in(index))
            self._readers[index] = reader
        started, pruned = self._context.clock.now(), reader.rows_pruned
        batch = reader.poll(_WHOLE if max_rows is None else max_rows)
        self.last_read = reader.rows_pruned - pruned
        self.tally.busy += self._context.clock.now() - started  # its reader worked, or waited for data
        self.tally.rows_in += self.last_read
        self.tally.rows_pruned += self.last_read
        self._emitted.check()
        check_polled(batch, lambda: self._where_in(index))
        if batch is END:
            self._end(index)
            return None
        if batch is not None:
            self._emitted.add(batch)
            batch = self._conformed(index, batch)
            self.last_read += batch.num_rows
        state.rows += self.last_read
        return batch

    def _end(self, index: int) -> None:
        state = self.splits[index]
        state.done = True
        self._ended.append(state.split.id)
        self._quiet.pop(state.split.id, None)
        self._quiet_before.pop(state.split.id, None)
        reader = self._readers.pop(index, None)
        if reader is not None:
            self._keep_offset(index, reader)
            error = self._closed(index, reader)
            if error is not None:  # warn now: the job may never end
                if not is_cleanup_failure(error):
                    raise error
                where = f"source {self._context.name!r}, subtask {self._context.subtask}"
                self._context.notify(CleanupFailedWarning, closing_raised(where, error))

    def _closed(self, index: int, reader: SplitReader) -> BaseException | None:
        """Close a reader and return the error it raised, if any. Its rows were read, so the job does not fail."""
        try:
            reader.close()
        except BaseException as error:
            self._blame(error, index)
            return error
        return None

    def _keep_offset(self, index: int, reader: SplitReader) -> None:
        offset = reader.offset
        check_offset(offset, lambda: self._where_in(index))
        self.splits[index].offset = offset

    def choices(self) -> Sequence[Choice]:
        joined = joining(self._join, self._given + self._joins, self._joins)
        return [joined, polling(self._times, self._given + self._joins + self._empty, self._empty)]

    def causes(self, state: Progress, now: int) -> list[str]:
        return ["its source has no rows now"] if state is Progress.WAITING else []

    def position(self, now: int) -> Mapping[str, Json]:
        """Return the position to resume from: the current split, idle times, and clocks of the drift limit."""
        clocks: Json = {name: list(clock) for name, clock in self._peers.clocks_of(self._context.subtask).items()}
        quiet: Json = dict(self._quiet_until(now))
        return {"turn": self._current, "quiet": quiet, "clocks": clocks}

    def stop_clock(self, now: int) -> None:
        """End the idle times at ``now``, until the next poll, so that they do not depend on when they are read."""
        self._quiet_before, self._quiet = self._quiet_until(now), {}

    def _quiet_until(self, now: int) -> dict[str, int]:
        since = {split: now - first for split, (first, _) in self._quiet.items()}
        before = self._quiet_before
        return {split: before.get(split, 0) + since.get(split, 0) for split in {**before, **since}}

    def restore_position(self, position: Mapping[str, Json]) -> None:
        """Restore a position that ``position()`` returned. Raises: CheckpointDamaged."""
        what = f"the read position of source {self._context.name!r}"
        turn = parsed(Count, position.get("turn"), what)
        if turn and turn >= len(self.splits):
            raise CheckpointDamaged(f"{what}: the current split is number {turn}, but there are {len(self.splits)}")
        self._current = turn
        self.restore_quiet(position)

    def restore_quiet(self, state: Mapping[str, Json]) -> None:
        """Restore for how long splits were quiet, from ``snapshot()`` or ``position()``.

        Raises: CheckpointDamaged.
        """
        what = f"the idle times of source {self._context.name!r}"
        self._quiet, self._quiet_before = {}, dict(parsed(dict[str, Count], state.get("quiet"), what))

    def poll_control(self, now: int) -> PollResult | None:
        return self._pass_on() if self._held else None  # else an overtaking barrier would wait for room

    def rests(self, now: int) -> bool:
        waits = self._polled is None and not self._held and not self._drained
        return waits and now < self._times.next and not self.ended

    def abort(self, checkpoint: int, reason: AbortReason, now: int) -> Sequence[Action]:
        return self._forget(checkpoint, reason)

    def validate(self) -> None:
        ended = [state.split.id for state in self.splits if state.done]
        assert sorted(ended) == sorted(self._ended), f"{self._where}: {ended} have ended, noted {self._ended}"

    def snapshot(self) -> Mapping[str, Json]:
        for index, reader in self._readers.items():  # not after each poll, because an offset may be large
            try:
                self._keep_offset(index, reader)
            except Exception as error:
                self._blame(error, index)
                raise
        quiet: Json = {split: self.quiet(split) for split in {**self._quiet_before, **self._quiet}}
        return {"splits": [state.to_json() for state in self.splits], "quiet": quiet}

    def close(self) -> list[BaseException]:
        """Close the open readers, and what they left open. Returns: the errors they raised."""
        errors = [self._closed(index, reader) for index, reader in self._readers.items()]
        self._readers.clear()
        while self._context.left_open:
            _, left = self._context.left_open.popitem()
            try:
                left.close()
            except BaseException as error:
                error.add_note(f"raised by source {self._context.name!r} ({type(self._source).__name__})")
                errors.append(error)
        return [error for error in errors if error is not None]
