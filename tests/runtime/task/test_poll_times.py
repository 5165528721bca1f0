"""When a source is polled: its rows, its offsets and its checkpoints do not depend on it, its latency does."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.row_errors import ERRORS, errors_schema
from dataflow.contracts.source import Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import ContractViolation
from dataflow.protocol.events import Barrier, Data
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.poll_times import LONG_PAUSE, LONGEST, PAUSE, SMALL, LearnedPolls, PollTimes
from dataflow.runtime.task.progress import Progress
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import SplitState
from dataflow.testing import Pause, ScriptedSource
from tests.runtime.task.test_source_input import batch
from tests.runtime.task.test_task import Bench
from tests.seeds import seeds


class Driven:
    """A source task in simulated time: it polls when it may, and passes rows on in ``cost`` microseconds a batch."""

    def __init__(self, rows_at: Callable[[int, int], int], *, cost: int = 200, most: int = 100_000) -> None:
        self.polls, self.now, self.given, self.batches = LearnedPolls(), 0, 0, 0
        self.waits: list[int] = []
        self._rows_at, self._cost, self._most = rows_at, cost, most

    def run(self, batches: int) -> Driven:
        for _ in range(batches):
            waited = max(0, self.polls.next - self.now)
            self.waits.append(waited)
            self.now += waited
            rows = min(self._rows_at(self.now, self.given), self._most)
            if rows:
                self.polls.gave(self.now, rows, None, more=rows == self._most)
                self.given += rows
                self.now += self._cost
            else:
                self.polls.gave_nothing(self.now, None)
        return self


def arriving(every: int) -> Callable[[int, int], int]:
    """A row each ``every`` microseconds."""
    return lambda now, given: now // every - given


@pytest.mark.parametrize("every", [3, 10, 100, 450])
@pytest.mark.parametrize("cost", [50, 300, 1_500, 6_000])
def test_rows_that_arrive_one_by_one_are_soon_polled_with_pauses(every: int, cost: int) -> None:
    task = Driven(arriving(every), cost=cost).run(20)
    assert any(task.run(1).polls.gathers for _ in range(3))  # not during a trial
    later = task.run(600).waits[-600:]
    assert sum([wait > PAUSE for wait in later]) == 0
    assert sum([wait > 0 for wait in later]) > 500 or cost >= PAUSE


def test_batches_that_are_there_already_are_polled_without_pauses() -> None:
    task = Driven(lambda now, given: 1_000).run(10_000)
    assert not task.polls.gathers
    assert sum(task.waits) < task.now / 50
    assert sum([wait > 0 for wait in task.waits]) < 20


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_batches_of_many_sizes_that_are_there_already_are_hardly_kept_waiting(seed: int) -> None:
    draw = random.Random(seed)
    task = Driven(lambda now, given: draw.choice((10, 500, 2_000, 4_000))).run(10_000)
    assert sum(task.waits) < task.now / 5


def test_large_batches_are_never_kept_waiting() -> None:
    assert sum(Driven(lambda now, given: SMALL).run(1_000).waits) == 0


def test_a_source_that_had_more_rows_than_it_may_give_is_polled_at_once() -> None:
    assert sum(Driven(lambda now, given: 10_000, most=100).run(1_000).waits) == 0


def test_after_a_backlog_the_rows_that_arrive_are_polled_with_pauses() -> None:
    backlog = Driven(lambda now, given: 500 if given < 100_000 else (now // 50) - given + 100_000)
    backlog.run(180)
    assert not backlog.polls.gathers
    assert backlog.run(2_500).polls.gathers


def test_small_batches_that_come_after_a_gap_are_soon_polled_without_pauses() -> None:
    task = Driven(lambda now, given: 0 if 100_000 <= now < 200_000 else 1_000).run(600)
    assert task.polls.gathers or task.now > 200_000
    while task.now < 200_000:
        task.run(1)
    assert not task.run(10).polls.gathers


def test_a_source_that_has_no_rows_is_polled_less_often_after_a_while() -> None:
    polls, waits = LearnedPolls(), []
    for now in (0, 50_000, 100_000):
        polls.gave_nothing(now, None)
        waits.append(polls.next - now)
    assert waits == [PAUSE, PAUSE, LONG_PAUSE]


def test_a_source_is_polled_when_it_says_but_not_later_than_a_quarter_of_a_second() -> None:
    polls, waits = LearnedPolls(), []
    for said in (7_000, 90_000_000):
        polls.gave_nothing(1_000, said)
        waits.append(polls.next - 1_000)
    assert waits == [6_000, LONGEST]


def test_a_source_that_gave_rows_may_say_when_the_next_ones_come() -> None:
    polls = LearnedPolls()
    polls.gave(1_000, 10, 8_000, more=False)
    assert (polls.next, polls.gathers) == (8_000, True)
    polls.gave(8_000, 10, 7_000, more=False)
    assert polls.next == 8_000 + PAUSE


class _Later:
    """Polls at time 100, and then never."""

    next, gathers = 100, False

    def __init__(self) -> None:
        self.said: list[Any] = []

    def gave(self, now: int, rows: int, until: int | None, *, more: bool) -> None:
        self.said.append((now, rows, until, more))

    def gave_nothing(self, now: int, until: int | None) -> None:
        self.said.append((now, until))


class _Telling(Source):
    """A source without rows, whose readers say when they want to be polled."""

    bounded = False
    schema = pa.schema({"x": pa.int64()})

    def __init__(self, *times: object) -> None:
        self.times = times

    def splits(self) -> Sequence[Split]:
        return [Split(str(number)) for number in range(len(self.times))]

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        time: Any = self.times[int(split.id)]

        class Reader(SplitReader):
            offset = 0
            next_poll = time

            def poll(self, max_rows: int) -> None:
                return None

        return Reader()


def inlet(source: Source, times: PollTimes, clock: ManualClock | None = None, **more: Any) -> SourceInput:
    context = SourceContext("in", 0, 1, clock or ManualClock())
    return SourceInput(source, [SplitState(split) for split in source.splits()], context, times=times, **more)


def test_a_source_task_polls_when_it_is_time_and_reports_what_it_got() -> None:
    times = _Later()
    head = inlet(ScriptedSource([batch(1, 2), Pause(1)]), times)
    assert (head.deadline, head.poll(99)) == (100, None)
    assert head.poll(100, 50) is not None
    assert head.poll(101) is None
    assert times.said == [(100, 2, None, False), (101, None)]


class _Rejecting(_Telling):
    """Each poll moves by 10 rows: it gives one, prunes four and sets five aside."""

    sides = {ERRORS: errors_schema()}  # noqa: RUF012

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        class Reader(SplitReader):
            offset = rows_pruned = 0

            def poll(self, max_rows: int) -> pa.RecordBatch:
                self.rows_pruned += 4
                return batch(1)

            def rejected(self) -> pa.RecordBatch:
                return pa.RecordBatch.from_pylist([{}] * 5, schema=errors_schema())

        return Reader()


def test_rows_that_are_pruned_or_set_aside_count_as_given() -> None:
    times = _Later()
    inlet(_Rejecting(None), times).poll(100)
    assert times.said == [(100, 10, None, False)]


@pytest.mark.parametrize(("said", "asked"), [((5, 9), 5), ((5, None), None), ((None,), None)])
def test_the_earliest_split_counts_if_all_say_when(said: tuple[int | None, ...], asked: int | None) -> None:
    times = _Later()
    inlet(_Telling(*said), times).poll(100)
    assert times.said == [(100, asked)]


def test_a_time_that_is_no_number_of_microseconds_is_refused() -> None:
    with pytest.raises(ContractViolation, match=r"split '0': next_poll must be microseconds .* it is 1\.5"):
        inlet(_Telling(1.5), _Later()).poll(100)


class _Raising(_Telling):
    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        class Reader(SplitReader):
            offset = 0

            @property
            def next_poll(self) -> int:
                raise RuntimeError("no clock")

            def poll(self, max_rows: int) -> pa.RecordBatch:
                return batch(1)

        return Reader()


def test_an_error_of_next_poll_names_the_split_once() -> None:
    with pytest.raises(RuntimeError) as caught:
        inlet(_Raising(None), _Later()).poll(100)
    assert caught.value.__notes__ == ["raised by source 'in' (_Raising), split '0'"]


def test_a_split_is_quiet_as_long_as_it_says_to_have_no_rows() -> None:
    clock = ManualClock(1_000)
    head = inlet(_Telling(500_000), LearnedPolls(), clock)
    head.poll(clock.now())
    clock.advance(200_000)
    assert head.quiet("0") == 200_000


class _ChangesItsMind:
    """Has room for more rows, until there are some."""

    def __init__(self) -> None:
        self._rooms = [100, 0]

    def room(self, rows: int) -> int:
        return self._rooms.pop(0) if self._rooms else 0


def test_rows_already_polled_leave_without_room_once_a_checkpoint_waits_for_them() -> None:
    head = inlet(ScriptedSource([batch(1), batch(2, 3)]), LearnedPolls(), join=_ChangesItsMind())
    assert head.poll(0) is not None
    assert head.poll_control(0) is None
    head.trigger(Barrier(1))
    assert head.triggered(0) == ()
    taken = head.poll_control(0)
    assert taken is not None
    assert isinstance(taken.flow, Data)
    assert (len(taken.flow.rows), len(head.triggered(0))) == (2, 2)


class _Gathers(_Later):
    next, gathers = 0, True


def test_a_source_whose_rows_gather_waits_until_its_outputs_are_taken() -> None:
    bench, output = Bench(), Channel(8, "y")
    bench.task.task_input = inlet(ScriptedSource([batch(1), batch(2)]), _Gathers())
    for node_output in bench.node.outputs[None]:
        node_output.channels = (output,)
    bench.run(3)
    assert output.queued_rows == 2  # two outputs that share the channel
    assert (bench.task.state, list(bench.task.awaited)) == (Progress.BACK_PRESSURED, [output, output])
    output.take()
    bench.run(3)
    assert output.queued_rows == 1
    output.take()
    bench.run(3)
    assert output.queued_rows == 2


def test_a_result_says_how_a_source_was_polled() -> None:
    table = op.from_arrow(pa.table({"x": range(40)}))
    with flow.Pipeline() as p:
        p.source(op.paced(table, 2_000), name="live").sink(op.collect(), name="out")
        p.source(table, name="table").sink(op.collect(), name="rows")
    tuning = p.run().tuning
    (live,), (there,) = tuning.of("polling", "live"), tuning.of("polling", "table")
    assert (live.chosen, there.chosen, there.values) == ("with pauses", "at once", {"polls": 1, "empty": 0})
    assert live.values["polls"] > live.values["empty"] > 0


def test_the_sources_of_the_library_say_when_they_have_rows() -> None:
    clock = ManualClock(0)
    context = SourceContext("in", 0, 1, clock)
    paced = op.paced(op.from_arrow(pa.table({"x": range(100)})), 1_000)
    reader = paced.reader(paced.splits()[0], None, context)
    assert (reader.poll(50), reader.next_poll) == (None, 10_000)
    clock.advance(10_000)
    rows = reader.poll(50)
    assert isinstance(rows, pa.RecordBatch)
    assert (rows.num_rows, reader.next_poll) == (10, 20_000)
