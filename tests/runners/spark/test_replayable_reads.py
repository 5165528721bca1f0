"""A micro-batch that is tried twice: the second attempt takes what the first did. No Spark is needed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock, SystemClock
from dataflow.contracts.source import SourceContext
from dataflow.errors import InputChanged
from dataflow.events.plan_shape import task_id
from dataflow.expressions import col
from dataflow.planning.prune_rows import conditions_of
from dataflow.protocol.events import Idle
from dataflow.runners.spark.envelopes import Content, Envelope, envelopes_of
from dataflow.runners.spark.job_directory import JobDirectory
from dataflow.runners.spark.placement import plan_for_spark
from dataflow.runners.spark.replayable_reads import RecordedPoll, RecordingInput, RepeatingInput
from dataflow.runners.spark.source_tasks import Assignment, initial_states, positions_of, read
from dataflow.runners.spark.user_errors import SerializedError
from dataflow.runtime.task.task_input import SplitState
from dataflow.testing import Pause, ScriptedSource

CONTEXT = SourceContext("in", 0, 1, ManualClock())

Put = Callable[[str, int], None]


def begun(source: flow.Source, directory: Path, rows: int = 1_000_000, **watermark: Any) -> Assignment:
    """A job with one source task over ``source``, whose rows are counted after a shuffle."""
    with flow.Pipeline("twice") as p:
        stream = p.source(source, name="in")
        timed = stream.with_watermark("ts", name="time", **watermark) if "ts" in stream.schema.names else stream
        timed.key_by("x").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="out")
    spark_plan = plan_for_spark(p.graph, parallelism=1, key_groups=2)
    spark_plan = spark_plan.numbered(range(len(spark_plan.keyed_tasks)), 2)
    made = Assignment(spark_plan, JobDirectory(directory), "run", rows)
    with made.directory.lock("run"):
        made.directory.create({}, initial_states(spark_plan))
    return made


def attempt(assignment: Assignment, round_: int = 0) -> list[Envelope]:
    """What the source task sends in a micro-batch, to the last byte: Spark compares what attempts send."""
    assignment.directory.write_time(round_, int(SystemClock().wall() * 1_000_000))
    return [e for batch in read(assignment, 0, round_) for e in envelopes_of(batch)]


def taken(assignment: Assignment, round_: int) -> int:
    """The rows that the source task has read in all before a micro-batch."""
    state = assignment.directory.read_task(task_id("in", 0), round_)
    assert state is not None
    return positions_of(assignment, state).rows or 0


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Puts a file of so many rows where a source watches."""
    (tmp_path / "in").mkdir()

    def put(name: str, count: int) -> None:
        (tmp_path / "in" / f"{name}.tmp").write_text("x\n" + "7\n" * count)
        (tmp_path / "in" / f"{name}.tmp").rename(tmp_path / "in" / f"{name}.csv")

    return put


def watching(directory: Path) -> flow.Source:
    return op.watch(directory, op.read_csv, pattern="*.csv", every="1us", splits=3)


def test_files_that_appear_meanwhile_are_left_to_the_next_micro_batch(put: Put, tmp_path: Path) -> None:
    for number in range(6):
        put(f"a{number}", 10 + number)
    assignment = begun(watching(tmp_path / "in"), tmp_path / "job")
    first = attempt(assignment)
    for number in range(6):
        put(f"b{number}", 20 + number)
    assert attempt(assignment) == first
    assert attempt(assignment) == first
    attempt(assignment, 1)
    assert [taken(assignment, round_) for round_ in (1, 2)] == [75, 75 + 135]


def seconds(rows: int = 10) -> pa.Table:
    return pa.table({"x": range(rows), "ts": pa.array(range(rows), pa.timestamp("s"))})


def test_event_time_moves_at_the_same_steps(tmp_path: Path) -> None:
    """Also where a split is found at its end, which lets time move on to the next one's."""
    assignment = begun(op.from_arrow(seconds(), splits=3, batch_rows=2), tmp_path, rows=7)
    for round_ in range(2):
        assert attempt(assignment, round_) == attempt(assignment, round_)


def test_a_split_that_fell_silent_is_silent_again(tmp_path: Path) -> None:
    assignment = begun(op.paced(op.from_arrow(seconds(), splits=2), [1_000, 0.001]), tmp_path, idle_after="100ms")
    attempt(assignment)  # in which the timer that looks for silence is set
    first = attempt(assignment, 1)
    contents = [Content.decode(e.payload) for e in first if e.link >= 0]
    assert Idle() in [element for content in contents for step in content.steps.values() for element in step]
    assert attempt(assignment, 1) == first


def test_a_source_task_of_a_run_that_was_replaced_settles_nothing(tmp_path: Path) -> None:
    assignment = begun(op.from_arrow(seconds()), tmp_path)
    with assignment.directory.lock("another"), pytest.raises(SerializedError) as caught:
        attempt(assignment)
    assert "taken over by process" in str(caught.value.__cause__)
    assert assignment.directory.read_task(task_id("in", 0), 1) is None


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def repeating(takes: list[RecordedPoll], *scripts: list[pa.RecordBatch | Pause]) -> RepeatingInput:
    source = ScriptedSource(*scripts)
    context = SourceContext("in", 0, 1, ManualClock())
    return RepeatingInput(source, [SplitState(split) for split in source.splits()], context, takes)


def polled(inlet: RepeatingInput, now: int = 0) -> list[int] | None:
    found: Any = inlet.poll(now)
    return None if found is None else found.flow.rows["x"].to_pylist()


def test_a_batch_that_comes_in_pieces_now_is_put_together() -> None:
    inlet = repeating([RecordedPoll((), 0, 3)], [batch(1), Pause(1), batch(2, 3), batch(4)])
    assert [polled(inlet) for _ in range(3)] == [None, None, [1, 2, 3]]
    assert not inlet.has_more(0)


def test_splits_are_asked_in_the_order_of_the_first_attempt() -> None:
    inlet = repeating(
        [RecordedPoll((), 1, 1), RecordedPoll((1,), 0, 1), RecordedPoll((0,), None)], [batch(1)], [batch(2)]
    )
    assert [polled(inlet) for _ in range(3)] == [[2], [1], None]
    assert inlet.ended


def test_a_split_that_gives_fewer_rows_is_named() -> None:
    inlet = repeating([RecordedPoll((), 0, 2)], [batch(1)])
    with pytest.raises(
        InputChanged, match=r"in: split 'script-0' returned a batch of 2 rows when it was first read, and 1"
    ):
        [polled(inlet) for _ in range(2)]


def test_rows_that_do_not_come_again_are_not_waited_for_for_ever() -> None:
    inlet = repeating([RecordedPoll((), 0, 2)], [Pause(99), batch(1, 2)])
    assert polled(inlet) is None
    with pytest.raises(InputChanged, match="and 0 rows now"):
        polled(inlet, now=60_000_001)


def test_an_older_file_that_appears_meanwhile_takes_no_place_in_a_second_attempt(tmp_path: Path) -> None:
    inbox = tmp_path / "in"
    inbox.mkdir()
    assignment = begun(op.watch(inbox, op.read_csv, every="1us", schema={"x": pa.int64()}), tmp_path / "job")

    def bring(name: str, x: int, at: int) -> None:
        (tmp_path / name).write_text(f"x\n{x}\n")
        os.utime(tmp_path / name, (at, at))
        (tmp_path / name).rename(inbox / name)

    bring("b.csv", 1, at=20)
    bring("c.csv", 2, at=30)
    first = attempt(assignment)
    bring("a.csv", 3, at=10)
    assert attempt(assignment) == first
    attempt(assignment, 1)
    assert [taken(assignment, round_) for round_ in (1, 2)] == [2, 3]


def test_a_second_attempt_with_another_filter_reads_as_far_as_the_first(tmp_path: Path) -> None:
    """The job was changed and started again: whichever row groups it prunes, micro-batches begin where they began."""
    rows = pa.table({"n": range(200), "x": [n // 10 for n in range(200)]})
    pq.write_table(rows, tmp_path / "a.parquet", row_group_size=10)
    source = op.read_parquet(tmp_path / "a.parquet", batch_rows=35)
    filters = [col("x") >= 0, col("x") > 8, col("x") < 3, (col("x") > 2) & (col("x") < 9), col("x") > 99]
    for first, second in itertools.product(filters, filters):
        conditions = [conditions_of(each, source.schema) for each in (first, second)]
        split = SplitState(source.splits()[0])
        recording = RecordingInput(source.skipping(conditions[0]), [split], CONTEXT)
        while recording.poll(0) is not None:
            pass
        again = SplitState(source.splits()[0])
        repeated, found = RepeatingInput(source.skipping(conditions[1]), [again], CONTEXT, recording.polls), []
        for poll in recording.polls:
            assert poll.split == 0 or poll == recording.polls[-1]
            flow_of: Any = repeated.poll(0)
            found += (
                [] if flow_of is None else flow_of.flow.rows.filter(second.evaluate(flow_of.flow.rows))["n"].to_pylist()
            )
        recording.snapshot()
        repeated.snapshot()
        assert (again.offset, again.rows, again.done) == (split.offset, 200, True)
        assert found == rows.filter(second.evaluate(rows.to_batches()[0]))["n"].to_pylist()
