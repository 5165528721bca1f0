"""What a running job says about itself, and the line that is drawn from it."""

from __future__ import annotations

import io
import os
import pty
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, OperatorContext, Out
from dataflow.planning.physical_plan import make_plan
from dataflow.runners.binding import LIBRARY
from dataflow.runners.job_progress import JobProgress, ProgressLine, ProgressMeter
from dataflow.runtime.job.build_job import Settings, build
from dataflow.runtime.job.committer import WaitingCommit
from dataflow.runtime.job.job import Job
from dataflow.runtime.restore.job_ids import random_id
from dataflow.runtime.task.progress import JobState

NOON = 1_767_268_800_000_000  # 2026-01-01T12:00:00


class Noon(Operator):
    """Says it is noon."""

    makes_time = True

    def __init__(self, context: OperatorContext) -> None:
        """Nothing is kept."""

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        out.emit(batch)
        out.watermark(NOON)


def halves(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] == 3:
        raise ValueError("not three")
    return row


@contextmanager
def job(source: flow.Source | None = None, clock: ManualClock | None = None) -> Iterator[Job]:
    """A job of two tasks that nobody steps: numbers from 0 to 99, in batches of 10, through a channel."""
    with flow.Pipeline("watched") as p:
        numbers = p.source(source or op.from_arrow(pa.table({"n": range(100)}), batch_rows=10), name="numbers")
        mapped = numbers.map(halves, on_error="skip", name="halves")
        mapped.apply(Noon, name="noon").rebalance().sink(op.collect(), name="out")
    settings = Settings(
        "watched",
        "run",
        None,
        "never",
        clock or ManualClock(),
        submit=lambda lane, work: None,
        make_id=random_id,
        library=LIBRARY,
    )
    made = build(make_plan(p.graph, parallelism=1, max_key_groups=128), settings)
    try:
        yield made
    finally:
        made.close()


def test_a_job_that_has_not_begun_has_read_nothing() -> None:
    with job() as made:
        now = ProgressMeter(made).read()
    assert (now.rows_in, now.rows_out, now.rows_per_second, now.done, now.left) == (0, 0, 0.0, 0.0, None)


def test_rows_are_counted_where_they_come_in_where_they_wait_and_where_they_go_out() -> None:
    with job() as made:
        source, sink = made.tasks["numbers[0]"], made.tasks["out[0]"]
        for _ in range(3):
            source.step()
        before = ProgressMeter(made).read()
        for _ in range(10):
            sink.step()
        after = ProgressMeter(made).read()
    assert (before.rows_in, before.backlog, before.rows_out, before.skipped, before.late) == (30, 29, 0, 1, 0)
    assert (after.rows_in, after.backlog, after.rows_out) == (30, 0, 29)


def test_the_rate_is_that_since_the_last_snapshot() -> None:
    clock = ManualClock()
    with job(clock=clock) as made:
        meter, source = ProgressMeter(made), made.tasks["numbers[0]"]
        source.step()
        clock.advance(1_000_000)
        first = meter.read()
        clock.advance(500_000)
        source.step()
        second = meter.read()
        again = meter.read()
        clock.advance(1_000_000)
        idle = meter.read()
    assert [p.rows_per_second for p in (first, second, again, idle)] == [10, 20, 20, 0]


def test_what_is_left_follows_from_the_average_rate() -> None:
    clock = ManualClock()
    with job(clock=clock) as made:
        made.tasks["numbers[0]"].step()
        clock.advance(2_000_000)
        now = ProgressMeter(made).read()
    assert (now.elapsed, now.done, now.left) == (2_000_000, 0.1, 18_000_000)


def test_nobody_knows_what_is_left_of_a_generator() -> None:
    source = op.from_generator(lambda position: iter([({"n": 1}, 1)]), schema=pa.schema({"n": pa.int64()}))
    with job(source) as made:
        now = ProgressMeter(made).read()
    assert (now.done, now.left) == (None, None)


def test_the_lag_is_how_far_event_time_is_behind_the_wall() -> None:
    clock = ManualClock(NOON)
    with job(clock=clock) as made:
        assert ProgressMeter(made).read().watermark is None
        made.tasks["numbers[0]"].step()
        for _ in range(5):
            made.tasks["out[0]"].step()
        clock.advance(3_000_000)
        now = ProgressMeter(made).read()
    assert (now.watermark, now.lag) == (NOON, 3_000_000)
    assert "lag 3.00 s" in str(now)
    assert "lag" not in str(replace(now, lag=86_400_000_001))


def test_the_text_names_sinks_whose_commits_fail_or_take_long() -> None:
    with job() as made:
        now = ProgressMeter(made).read()
    soon, late, failing = (
        WaitingCommit("soon", 1, 5, 9_000_000),
        WaitingCommit("late", 1, 1, 10_000_000),
        WaitingCommit("db", 2, 1_200, 4_000_000, "no route"),
    )
    assert str(replace(now, waiting=(soon, late, failing))) == (
        f"{now}, 1 row has waited 10.00 s for sink 'late', 1,200 rows have waited 4.00 s for sink 'db' (no route)"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Meter:
    """Each snapshot has one row more."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self) -> JobProgress:
        self.reads += 1
        return JobProgress(JobState.RUNNING, 0, self.reads, 0, 0.0, 0, 0, 0, 0, 0, 0)


def line(stream: io.StringIO, clock: ManualClock) -> ProgressLine:
    return ProgressLine("job", Meter(), stream, clock)  # type: ignore[arg-type]


def test_on_a_terminal_one_line_is_rewritten_and_left_at_the_end() -> None:
    clock, stream = ManualClock(), Terminal()
    drawn = line(stream, clock)
    for _ in range(4):
        drawn.tick()
        clock.advance(100_000)
    drawn.close()
    drawn.close()
    pieces = stream.getvalue().split("\r")
    assert [piece[:13] for piece in pieces] == ["", "job: 1 rows, ", "job: 2 rows, "]
    assert all(piece.rstrip("\n").endswith("\x1b[K") for piece in pieces[1:])
    assert (stream.getvalue().count("\n"), stream.getvalue()[-1]) == (1, "\n")


def test_in_a_file_a_line_is_added_every_five_seconds() -> None:
    clock, stream = ManualClock(), io.StringIO()
    drawn = line(stream, clock)
    for _ in range(12):
        clock.advance(1_000_000)
        drawn.tick()
    drawn.close()
    assert [text[:11] for text in stream.getvalue().splitlines()] == ["job: 1 rows", "job: 2 rows", "job: 3 rows"]


def test_a_narrow_terminal_gets_what_fits() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb") as seen:
        os.set_blocking(ours, False)
        import fcntl
        import struct
        import termios

        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 20, 0, 0))
        line(terminal, ManualClock()).close()  # type: ignore[arg-type]
        assert seen.read1(1_000) == b"\rjob: 1 rows, 0/s, 0\x1b[K\r\n"


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_stream_that_is_gone_ends_the_drawing_only(stream: io.StringIO) -> None:
    drawn = line(stream, ManualClock())
    stream.close()
    drawn.close()
    drawn.tick()
    assert drawn._meter.reads == 1  # type: ignore[attr-defined]


def test_a_run_draws_when_it_is_asked_to(capsys: pytest.CaptureFixture[str]) -> None:
    with flow.Pipeline("drawn") as p:
        p.source(op.from_arrow(pa.table({"n": range(100)})), name="numbers").sink(op.collect(), name="out")
    p.run()
    assert capsys.readouterr().err == ""
    p.run(progress=True)
    assert capsys.readouterr().err.startswith("drawn: 100 rows, ")


def test_the_line_is_drawn_while_the_job_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = threading.Event()

    class Seen(Terminal):
        def flush(self) -> None:
            drawn.set()

    def gate(batch: pa.RecordBatch) -> pa.RecordBatch:
        assert drawn.wait(30), "nothing was drawn"
        return batch

    with flow.Pipeline("gated") as p:
        p.source(op.from_arrow(pa.table({"n": range(100)})), name="numbers").map_batches(gate).sink(op.collect())
    monkeypatch.setattr("sys.stderr", terminal := Seen())
    p.run(progress=True)
    first, *_, last = terminal.getvalue().split("\r")[1:]
    assert first.startswith("gated: 100 rows, ")
    assert last.endswith("\n")


def test_a_run_that_fails_leaves_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    with flow.Pipeline("failing") as p:
        numbers = p.source(op.from_arrow(pa.table({"n": range(100)})), name="numbers")
        numbers.map(halves).sink(op.collect(), name="out")
    with pytest.raises(ValueError, match="not three"):
        p.run(progress=True)
    assert capsys.readouterr().err.startswith("failing: ")


def test_a_running_job_can_be_asked() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def gate(batch: pa.RecordBatch) -> pa.RecordBatch:
        reached.set()
        assert go_on.wait(30), "nobody opened the gate"
        return batch

    with flow.Pipeline("gated") as p:
        p.source(op.from_arrow(pa.table({"n": range(100)})), name="numbers").map_batches(gate).sink(op.collect())
    with p.start() as running:
        assert reached.wait(30), "no batch came"
        during = running.progress()
        go_on.set()
        running.wait()
    after = running.progress()
    assert (during.state, during.rows_in, during.rows_out) == (JobState.RUNNING, 100, 0)
    assert (after.state, after.rows_out, after.done) == (JobState.FINISHED, 100, 1.0)


def test_updates_are_counted_apart_from_rows_that_sinks_take() -> None:
    with flow.Pipeline("apart") as p:
        numbers = p.source(op.from_arrow(pa.table({"k": [1, 1, 2], "n": range(3)})), name="numbers")
        numbers.sink(op.collect(), name="rows")
        numbers.key_by("k").agg(op.count(), emit="updates", name="counts").sink(op.collect(), name="updates")
    with p.start() as running:
        running.wait()
    assert (running.progress().rows_in, running.progress().rows_out, running.progress().updates_out) == (3, 3, 2)
