"""The head of a source task: splits in turn, offsets, and the colour of what it reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.clock import ManualClock
from dataflow.contracts.row_errors import ERRORS, errors_schema
from dataflow.contracts.source import END, Json, Source, SourceContext, Split, SplitReader
from dataflow.protocol.actions import AbortReason
from dataflow.protocol.events import Barrier, Data
from dataflow.runtime.task import source_input
from dataflow.runtime.task.joined_rows import JoinPolicy, JoinSmall, Pile
from dataflow.runtime.task.source_input import SourceInput
from dataflow.runtime.task.task_input import PollResult, SplitState
from dataflow.testing import Pause, ScriptedSource
from tests.forcing import Force


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"x": pa.array(values, pa.int64())})


def inlet(*scripts: list[pa.RecordBatch | Pause], join: JoinPolicy | None = None) -> SourceInput:
    return inlet_of(ScriptedSource(*scripts), join)


def inlet_of(source: Source, join: JoinPolicy | None = None) -> SourceInput:
    context = SourceContext("in", 0, 1, ManualClock())
    return SourceInput(source, [SplitState(split) for split in source.splits()], context, join=join)


def poll(head: SourceInput) -> tuple[list[int], int] | None:
    """The next rows with their epoch."""
    taken = head.poll(0)
    if taken is None or not isinstance(taken.flow, Data):
        return None
    return taken.flow.rows["x"].to_pylist(), taken.flow.epoch  # type: ignore[index]


def test_rows_have_the_colour_of_the_last_barrier_that_was_sent() -> None:
    head = inlet([batch(1), batch(2)])
    before = poll(head)
    head.trigger(Barrier(4))
    assert len(head.triggered(0)) == 2
    assert [before, poll(head)] == [([1], 0), ([2], 4)]


def test_an_offset_is_that_of_the_barrier() -> None:
    head = inlet([batch(1), batch(2)])
    poll(head)
    (split,) = head.snapshot()["splits"]
    assert split == {"id": "script-0", "info": {"entries": 2}, "offset": 1, "done": False, "rows": 1}


def test_the_offset_of_a_split_that_ended_between_snapshots_is_its_end() -> None:
    head = inlet([batch(1), batch(2)])
    while not head.ended:
        head.poll(0)
    (split,) = head.snapshot()["splits"]
    assert (split["offset"], split["done"]) == (2, True)


def test_a_snapshot_has_the_offset_of_each_split_that_was_begun() -> None:
    head = inlet([batch(1), Pause(1), batch(2)], [batch(3), batch(4)], [batch(5)])
    assert [poll(head), poll(head)] == [([1], 0), ([3], 0)]
    assert [split["offset"] for split in head.snapshot()["splits"]] == [2, 1, None]


def test_rows_are_counted_by_split_and_pauses_are_none() -> None:
    head = inlet([Pause(1), batch(1, 2), batch(3)], [batch()])
    while not head.ended:
        head.poll(0)
    assert [state.rows for state in head.splits] == [3, 0]


def test_a_split_that_pauses_lets_the_next_one_go_first() -> None:
    head = inlet([Pause(2), batch(1)], [batch(2)])
    assert [poll(head), poll(head), poll(head), poll(head)] == [([2], 0), None, ([1], 0), None]
    assert head.ended


def test_a_trigger_that_was_aborted_in_time_does_not_start() -> None:
    head = inlet([batch(1)])
    head.trigger(Barrier(4))
    assert len(head.abort(4, AbortReason.EXPIRED, 0)) == 1
    assert head.triggered(0) == ()


def test_an_abort_leaves_the_other_triggers_alone() -> None:
    head = inlet([batch(1)])
    for n in (1, 2, 3):
        head.trigger(Barrier(n))
    head.abort(2, AbortReason.CANCEL, 0)
    started = [action.barrier.checkpoint for _ in range(3) for action in head.triggered(0)[:1]]  # type: ignore[union-attr]
    assert started == [1, 3]


def test_a_split_is_quiet_from_its_first_poll_without_rows_until_its_next_rows() -> None:
    head = inlet([Pause(3), batch(1)])
    quiet = []
    for now in (10, 30, 75, 90):
        head.poll(now)
        quiet.append(head.quiet("script-0"))
    assert quiet == [0, 20, 65, 0]


def test_an_inlet_that_continues_knows_for_how_long_its_splits_were_quiet() -> None:
    script = [Pause(3), batch(1)]
    before, after = inlet(script), inlet(script)
    before.poll(10)
    after.restore_position(before.position(70))
    assert after.quiet("script-0") == 60
    after.poll(1_000)
    after.poll(1_005)
    assert after.quiet("script-0") == 65, "time in which it was not polled counts"


def test_a_snapshot_holds_for_how_long_splits_were_polled_in_vain() -> None:
    script = [Pause(9), batch(1)]
    before, after = inlet(script), inlet(script)
    before.poll(10)
    before.poll(35)
    after.restore_quiet(before.snapshot())
    assert (before.quiet("script-0"), after.quiet("script-0")) == (25, 25)


class Rejecting(ScriptedSource):
    """Sets a row aside with each batch; the reader has the columns of these in an order of its own."""

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return {ERRORS: errors_schema()}

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        reader = super().reader(split, offset, context)
        reader.rejected = lambda: pa.record_batch({"error": ["bad"], "row": ["1;2"], "where": ["a:1"]})  # type: ignore[method-assign]
        return reader


def test_rejected_rows_have_the_columns_that_the_source_declares_by_name() -> None:
    taken = inlet_of(Rejecting([batch(1)])).poll(0)
    assert taken is not None
    assert taken.rejected is not None
    assert taken.rejected.schema.equals(errors_schema())
    assert taken.rejected.to_pylist() == [{"where": "a:1", "row": "1;2", "error": "bad"}]


def test_a_batch_comes_in_slices_and_a_restore_goes_on_in_its_midst() -> None:
    source = ScriptedSource([batch(1, 2, 3), batch(4)])
    context = SourceContext("in", 0, 1, ManualClock())
    first = source.reader(source.splits()[0], None, context)
    taken = [first.poll(2), first.offset]
    again = source.reader(source.splits()[0], json.loads(json.dumps(first.offset)), context)
    assert taken == [batch(1, 2), [0, 2]]
    assert [again.poll(9), again.offset, again.poll(9), again.poll(9)] == [batch(3), 1, batch(4), END]


def test_a_reader_that_cannot_be_closed_does_not_keep_others_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def close(reader: SplitReader) -> None:
        closed.append(reader)
        raise ConnectionError(len(closed))

    closed: list[SplitReader] = []
    head = inlet([Pause(), batch(1)], [Pause(), batch(2)])
    assert head.poll(0) is None
    readers = list(head._readers.values())
    monkeypatch.setattr(type(readers[0]), "close", close)
    errors = head.close()
    assert (closed, [error.args for error in errors]) == (readers, [(1,), (2,)])
    assert errors[0].__notes__ == ["raised by source 'in' (ScriptedSource), split 'script-0'"]
    assert not head.close()


def test_a_reader_that_cannot_be_closed_at_its_end_is_noted_then(monkeypatch: pytest.MonkeyPatch) -> None:
    def close(reader: SplitReader) -> None:
        raise ConnectionError("still open")

    noted: list[str] = []
    source = ScriptedSource([batch(1)])
    context = SourceContext("in", 0, 1, ManualClock(), notify=lambda category, text: noted.append(text))
    head = SourceInput(source, [SplitState(split) for split in source.splits()], context)
    assert poll(head) == ([1], 0)
    (reader,) = head._readers.values()
    monkeypatch.setattr(type(reader), "close", close)
    assert head.poll(0) is None
    assert noted == [
        "closing source 'in', subtask 0 raised ConnectionError('still open') "
        "(raised by source 'in' (ScriptedSource), split 'script-0')"
    ]
    assert not head.close()


def test_small_batches_that_a_split_has_at_once_are_joined() -> None:
    head = inlet([batch(1), batch(2), batch(3), Pause(1), batch(4)], join=JoinSmall())
    assert poll(head) == ([1, 2, 3], 0)
    assert [split["rows"] for split in head.snapshot()["splits"]] == [3]
    assert poll(head) == ([4], 0)
    assert head.ended


def test_a_step_takes_no_more_joined_rows_than_its_limit() -> None:
    head = inlet([batch(1, 2), batch(3, 4), batch(5)], join=JoinSmall())
    taken = head.poll(0, 3)
    assert taken is not None
    assert isinstance(taken.flow, Data)
    assert len(taken.flow.rows) == 3


def text(value: str) -> pa.RecordBatch:
    return pa.record_batch({"s": [value]})


def test_a_batch_too_large_to_be_joined_comes_next_and_no_checkpoint_comes_before_it() -> None:
    large = "x" * (1 << 20)
    head = inlet([text("a"), text(large), text("b")], join=JoinSmall())
    first = head.poll(0)
    assert first is not None
    assert isinstance(first.flow, Data)
    assert first.flow.rows["s"].to_pylist() == ["a"]  # type: ignore[index]
    head.trigger(Barrier(1))
    assert head.triggered(0) == ()  # its reader is past the large batch, which is still to be taken
    assert not head.ended
    second = head.poll(0)
    assert second is not None
    assert isinstance(second.flow, Data)
    assert len(second.flow.rows["s"][0].as_py()) == 1 << 20  # type: ignore[index]
    assert len(head.triggered(0)) == 2
    (split,) = head.snapshot()["splits"]
    assert (split["offset"], split["rows"]) == (2, 2)


def test_batches_that_an_operator_sees_or_by_which_event_time_moves_are_not_joined(
    monkeypatch: pytest.MonkeyPatch, force: Force
) -> None:
    table = pa.table({"k": [1, 1, 1], "t": pa.array([1, 2, 3], pa.timestamp("us"))})
    polled: list[int] = []
    whole = SourceInput.poll

    def spy(self: SourceInput, now: int, max_rows: int | None = None) -> PollResult | None:
        taken = whole(self, now, max_rows)
        if taken is not None and isinstance(taken.flow, Data):
            polled.append(len(taken.flow.rows))
        return taken

    monkeypatch.setattr(SourceInput, "poll", spy)
    force(source_input, "_AT_ONCE", 60_000_000, calls=Pile.add)  # this machine may be busy
    shapes: dict[str, Callable[[flow.Stream], flow.Stream]] = {
        "updates": lambda s: s.key_by("k").agg(op.count(), emit="updates"),
        "final": lambda s: s.filter(flow.col("k") > 0).key_by("k").agg(op.count(), emit="final"),
        "time": lambda s: s.with_watermark("t").key_by("k").agg(op.count(), emit="final"),
        "function": lambda s: s.map_batches(lambda batch: batch),
        "function of rows": lambda s: s.map(lambda row: row).key_by("k").agg(op.count(), emit="final"),
        "sink": lambda s: s.filter(flow.col("k") > 0),
    }
    found = {}
    for name, shape in shapes.items():
        polled.clear()
        shape(flow.Pipeline(name).source(op.from_arrow(table, batch_rows=1))).collect()
        found[name] = list(polled)
    apart, joined = [1, 1, 1], [3]
    assert found == {
        "updates": apart,
        "final": joined,
        "time": apart,
        "function": apart,
        "function of rows": joined,
        "sink": apart,
    }
