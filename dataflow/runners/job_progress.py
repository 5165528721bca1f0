"""The progress of a running job: snapshots of its counters, and a line on standard error that shows them.

Counters are read without locks while the job's threads continue, so the numbers of one snapshot may be some
microseconds apart. The thread that waits for the job draws the line, never a thread that works for it.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TextIO

from dataflow.clock import Clock, Duration, duration_text, microseconds
from dataflow.contracts.updates import Changes
from dataflow.drawing import printable
from dataflow.planning.specs import Write
from dataflow.protocol.watermarks import MAX_WATERMARK
from dataflow.runtime.job.committer import WaitingCommit
from dataflow.runtime.job.job import Job
from dataflow.runtime.task.progress import JobState
from dataflow.runtime.task.task_input import SplitState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from dataflow.planning.graph import Graph

__all__ = ["JobProgress", "Meter", "NoLine", "ProgressLine", "ProgressMeter", "ReadInput", "RowRate", "taken_by_sinks"]

_SECOND: Final = 1_000_000
_DAY: Final = 86_400 * _SECOND
_ON_TERMINAL: Final = "200ms"
_IN_FILE: Final = "5s"
_SLOW: Final = 10 * _SECOND
"""A commit that has not failed is shown if it takes longer."""


@dataclass(frozen=True, slots=True)
class JobProgress:
    """A snapshot of the counters of a running job. Times are in microseconds.

    Attributes:
        state: whether the job is running, finished, cancelled, ...
        elapsed: time since the job began.
        rows_in: rows read by all sources of this run.
        rows_out: rows written by all sinks of this run.
        updates_out: updates written by all sinks of this run (see `Stream.changes`).
        changes_out: signed changes written by all sinks of this run.
        rows_per_second: rows read per second since the previous snapshot (the first one: since the job began).
        backlog: rows in channels, sent and not yet received.
        late: rows that arrived after their window was closed.
        skipped: rows that a function or a parser rejected.
        checkpoints: the number of completed checkpoints.
        failed: the number of failed checkpoints.
        pending: the number of checkpoints in progress.
        watermark: the lowest watermark of all tasks, since 1970; None: no task has one (yet).
        lag: time by the clock minus the watermark; None if there is no watermark.
        done: the share of the input that was read, 0 to 1; None if the size of the input is unknown.
        left: time for the rest of the input at the average rate so far; None if unknown.
        waiting: for each sink that has not committed all durable rows: see `WaitingCommit`. Always empty on Spark,
            where a commit that fails fails the job.
        is_checkpointed: whether the job takes checkpoints; else its text does not count them.
        compiling: the kernels being compiled or loaded before the first row; "" once rows are read.
        restarts: how often the job was started again (see `Restarts`). All counts are of the current attempt.
        restarting_in: the time until the next attempt begins, after the job failed; None: it is not in a delay.

    >>> str(JobProgress(JobState.RUNNING, 2_000_000, 1_500_000, 7, 1e6, 40, 0, 2, 3, 1, 0, done=0.25, left=6_000_000))
    '1,500,000 rows, 1,000,000/s, 25% done, 6.00 s left, 3 checkpoints (1 failed), skipped 2, backlog 40'
    """

    state: JobState
    elapsed: int
    rows_in: int
    rows_out: int
    rows_per_second: float
    backlog: int
    late: int
    skipped: int
    checkpoints: int
    failed: int
    pending: int
    watermark: int | None = None
    lag: int | None = None
    done: float | None = None
    left: int | None = None
    compiling: str = ""
    updates_out: int = 0
    changes_out: int = 0
    waiting: Sequence[WaitingCommit] = ()
    is_checkpointed: bool = True
    restarts: int = 0
    restarting_in: int | None = None

    def __str__(self) -> str:
        if self.compiling:
            return self.compiling
        if self.restarting_in is not None:
            return f"failed, restart {self.restarts + 1:,} in {duration_text(self.restarting_in)}"
        parts = [f"{self.rows_in:,} rows", f"{self.rows_per_second:,.0f}/s"]
        if self.done is not None:
            parts.append(f"{self.done:.0%} done")
        if self.left:
            parts.append(f"{duration_text(self.left)} left")
        if self.lag is not None and self.lag < _DAY:  # a larger lag means a replay, where the lag has no use
            parts.append(f"lag {duration_text(max(0, self.lag))}")
        troubles = [f"{n} {label}" for n, label in ((self.failed, "failed"), (self.pending, "under way")) if n]
        if self.is_checkpointed:
            count = f"{self.checkpoints:,} checkpoint{'s' * (self.checkpoints != 1)}"
            parts.append(count + (f" ({', '.join(troubles)})" if troubles else ""))
        counts = ((self.restarts, "restarts"), (self.late, "late"), (self.skipped, "skipped"))
        parts += [f"{label} {n:,}" for n, label in counts if n]
        parts.append(f"backlog {self.backlog:,}")
        return ", ".join(parts + [str(commit) for commit in self.waiting if commit.failure or commit.age >= _SLOW])


class Meter(Protocol):
    """The source of the text of a progress line."""

    def read(self) -> object:
        """Return an object; the progress line shows its text."""
        ...


class ProgressMeter:
    """Takes snapshots of one job. Each reader has its own meter, because a rate is computed since the last snapshot."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rate = RowRate(job.started_at)

    def read(self) -> JobProgress:
        """Return a snapshot of the job."""
        job, now = self._job, self._job.clock.now()
        nodes = [node for task in job.tasks.values() for node in task.chain.nodes]
        taken = Counter[str]()
        for node in nodes:
            taken[node.name] += node.tally.rows_in
        written = taken_by_sinks(job.plan.graph, taken)
        heads = [task.chain.head for task in job.tasks.values() if task.task_input.is_source]
        rows_in = sum([head.tally.rows_in for head in heads])
        self._rate.update(rows_in, now)
        watermark = self._watermark()
        read_input = ReadInput.of(split for task in job.tasks.values() for split in task.task_input.splits)
        elapsed = now - job.started_at
        return JobProgress(
            state=job.state,
            elapsed=elapsed,
            rows_in=rows_in,
            rows_out=written["rows"],
            updates_out=written["updates"],
            changes_out=written["signed"],
            rows_per_second=self._rate.per_second,
            backlog=sum(
                [channel.queued_rows for task in job.tasks.values() for channel in task.task_input.input_channels]
            )
            + sum([task.put_back.rows for task in job.tasks.values()]),
            late=sum([node.tally.late for node in nodes]),
            skipped=sum([node.tally.skipped for node in nodes]),
            checkpoints=job.history.completed if job.identity.checkpointed else 0,
            is_checkpointed=job.identity.checkpointed,
            failed=job.history.failed,
            pending=len(job.history.under_way),
            watermark=watermark,
            lag=None if watermark is None else job.clock.time() - watermark,
            done=None if read_input is None else read_input.share,
            left=None if read_input is None else read_input.time_left(rows_in, now - job.began_at),
            compiling=str(job.loading),
            waiting=tuple(job.committer.waiting(now)),
        )

    def _watermark(self) -> int | None:
        """Return the lowest watermark of all tasks, or None."""
        watermarks = [task.task_input.watermark for task in self._job.tasks.values()]
        return min([time for time in watermarks if time is not None and time < MAX_WATERMARK], default=None)


def taken_by_sinks(graph: Graph, taken: Mapping[str, int]) -> Mapping[Changes, int]:
    """Return the rows of each meaning that sinks received, given the rows that each operator of ``graph`` received."""
    sums: dict[Changes, int] = {"rows": 0, "updates": 0, "signed": 0}
    for node in graph:
        if isinstance(node.spec, Write):
            sums[node.changes] += taken[node.name]
    return sums


class RowRate:
    """Rows per second between the last two updates.

    >>> rate = RowRate(now=0)
    >>> rate.update(30, now=2_000_000)
    >>> rate.per_second, rate.rows
    (15.0, 30)
    """

    def __init__(self, now: int) -> None:
        self.rows = 0
        self.per_second = 0.0
        self._updated_at = now

    def update(self, rows: int, now: int) -> None:
        """Set the number of rows at the time ``now`` (microseconds). A second update at the same time is ignored."""
        if now > self._updated_at:
            self.per_second = (rows - self.rows) * _SECOND / (now - self._updated_at)
            self.rows, self._updated_at = rows, now


@dataclass(frozen=True, slots=True)
class ReadInput:
    """The number of rows in all splits, and of those that were read, by this run and earlier ones.

    >>> read_input = ReadInput(rows=100, read=25)
    >>> read_input.share, read_input.time_left(20, elapsed=4_000_000)
    (0.25, 15000000)
    """

    rows: int
    read: int

    @staticmethod
    def of(splits: Iterable[SplitState]) -> ReadInput | None:
        """Return the sums over ``splits``, or None if the number of rows of a split is unknown."""
        counts = [_rows_of(split) for split in splits]
        complete = [count for count in counts if count is not None]
        if len(complete) < len(counts):
            return None
        return ReadInput(sum(total for total, _ in complete), sum(read for _, read in complete))

    @property
    def share(self) -> float:
        """The share of the rows that was read, 0 to 1; 1 if there are no rows."""
        return self.read / self.rows if self.rows else 1.0

    def time_left(self, rows_in: int, elapsed: int) -> int | None:
        """Return the time for the rest at the rate of ``rows_in`` rows in ``elapsed``, or None if no row was read."""
        return (self.rows - self.read) * elapsed // rows_in if rows_in else None


def _rows_of(state: SplitState) -> tuple[int, int] | None:
    """Return (total, read) of a split, or None if its source does not know the rows."""
    total = state.split.info.get("rows")
    if not isinstance(total, int):
        return None
    return total, total if state.done else min(state.rows, total)


class ProgressLine:
    """A line about a job on ``stream``: rewritten in place on a terminal, else a new line every few seconds.

    It needs a meter, at construction or by ``follow``, before it is drawn. If the stream cannot be written to, drawing
    stops, and the job continues.
    """

    def __init__(self, name: str, meter: Meter | None, stream: TextIO, clock: Clock) -> None:
        self._name = name
        self._meter = meter
        self._stream = stream
        self._clock = clock
        self._terminal = stream.isatty()
        every: Duration = _ON_TERMINAL if self._terminal else _IN_FILE
        self._every = microseconds(every)
        self._next = clock.now() + self._every
        self._drawn = False
        self._closed = False

    def follow(self, meter: Meter) -> None:
        """Draw from ``meter`` from now on."""
        self._meter = meter

    def leave(self) -> None:
        """End the line as it is, because the job did not start. Later calls do nothing."""
        if self._drawn and self._terminal and not self._closed:
            self._write("\n")
        self._closed = True

    def tick(self) -> None:
        """Draw if the interval has passed."""
        now = self._clock.now()
        if now >= self._next and not self._closed:
            self._next = now + self._every
            self._draw("")

    def close(self) -> None:
        """Draw for the last time and end the line. Later calls do nothing."""
        if not self._closed:
            self._draw("\n" if self._terminal else "")
            self._closed = True

    def _draw(self, end: str) -> None:
        assert self._meter is not None, f"the line of {self._name} has nothing to draw"
        text = printable(f"{self._name}: {self._meter.read()}")
        if self._terminal:
            text = f"\r{text[: _width(self._stream) - 1]}\x1b[K{end}"
        else:
            text += "\n"
        self._drawn = True
        self._write(text)

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal is gone, or the stream was closed
            self._closed = True


class NoLine:
    """The progress line of a job that shows none; all methods do nothing."""

    def follow(self, meter: Meter) -> None:
        """Draw nothing."""

    def leave(self) -> None:
        """Draw nothing."""

    def tick(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Draw nothing."""


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
