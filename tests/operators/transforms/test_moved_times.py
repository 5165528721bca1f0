"""Functions behind with_watermark that change event times: refused, with the function's name, where that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import dataflow as flow
import operators as op
from dataflow import Stream
from dataflow.contracts.windows import EventTime
from operators.transforms.moved_times import MovedTimes
from tests.seeds import each_once

BEGIN = datetime(2026, 3, 1)
HOUR = timedelta(hours=1)


def timed(times: list[int], unit: str = "us") -> Stream:
    """A row a batch, at so many seconds; the watermark follows without delay."""
    ts = pa.array([BEGIN + timedelta(seconds=second) for second in times], pa.timestamp(unit))
    table = pa.table({"ts": ts, "n": range(len(times))})
    return flow.Pipeline().source(op.from_arrow(table, batch_rows=1), name="rows").with_watermark("ts", name="time")


def counted(stream: Stream) -> flow.RunResult:
    counts = stream.key_by("n").window(op.tumbling("10s")).agg(op.count(), name="windows")
    counts.sink(op.collect(), name="out")
    return counts._pipeline.run(parallelism=1)


def back(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "ts", pc.subtract(batch["ts"], pa.scalar(HOUR)).cast(batch["ts"].type))


FUNCTIONS: dict[str, Callable[[Stream, str], Stream]] = {
    "map_batches": lambda s, on_error: s.map_batches(back, name="shift", on_error=on_error),
    "map_batches, a list": lambda s, on_error: s.map_batches(lambda b: [back(b)], name="shift", on_error=on_error),
    "map": lambda s, on_error: s.map(lambda row: {**row, "ts": row["ts"] - HOUR}, name="shift", on_error=on_error),
    "flat_map": lambda s, on_error: s.flat_map(
        lambda row: [row, {**row, "ts": row["ts"] - HOUR}], name="shift", on_error=on_error
    ),
}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("word", FUNCTIONS)
def test_a_function_that_moves_times_behind_the_watermark_is_named(word: str, unit: str) -> None:
    with pytest.raises(ValueError, match=r"'shift': the function moved the event time 'ts' .*before with_watermark"):
        counted(FUNCTIONS[word](timed([0, 30, 60], unit), "fail"))


@pytest.mark.parametrize("word", FUNCTIONS)
def test_rows_that_are_moved_can_be_left_out_and_are_counted(word: str) -> None:
    result = counted(FUNCTIONS[word](timed([0, 30, 60]), "skip"))
    assert result.operator("shift").skipped == 2  # there was no watermark before the first row
    assert "moved the event time" in str(result.samples)


def test_another_column_in_the_place_of_event_time_is_noticed() -> None:
    stream = timed([0, 30, 60]).with_columns(made=flow.from_epoch("n", "us").cast("timestamp[us]"))
    with pytest.raises(ValueError, match=r"map 'swap'.*moved the event time"):
        counted(stream.map(lambda row: {**row, "ts": row["made"]}, name="swap"))


Fine = Callable[[Stream], Any]
FINE: dict[str, Fine] = {
    "rows that are late already": lambda s: s.map_batches(lambda batch: batch, name="same"),
    "rows left out": lambda s: s.flat_map(lambda row: [row] * (row["n"] % 2), name="odd"),
    "times moved ahead": lambda s: s.map(lambda row: {**row, "ts": row["ts"] + HOUR}, name="ahead"),
}


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
@pytest.mark.parametrize("case", FINE)
def test_functions_that_move_nothing_behind_the_watermark_run(case: str) -> None:
    result = counted(FINE[case](timed([0, 60, 10, 90, 20])))
    assert result.skipped == 0


def test_without_event_time_behind_it_a_function_may_do_anything() -> None:
    stream = timed([0, 30, 60]).map_batches(
        lambda b: back(b).select(["ts"]).rename_columns(["at"]), schema=pa.schema({"at": pa.timestamp("us")})
    )
    assert stream.time is None
    assert stream.collect().num_rows == 3


MOVING: dict[str, Callable[[Stream, Callable[[pa.RecordBatch], pa.RecordBatch]], Stream]] = {
    "map_batches": lambda s, move: s.map_batches(move, name="shift"),
    "map": lambda s, move: s.map(lambda row: _moved(row, move), name="shift"),
    "flat_map": lambda s, move: s.flat_map(lambda row: [_moved(row, move)], name="shift"),
}


def _moved(row: dict[str, Any], move: Callable[[pa.RecordBatch], pa.RecordBatch]) -> dict[str, Any]:
    schema = pa.schema([("ts", pa.timestamp("us")), ("n", pa.int64())])
    return move(pa.RecordBatch.from_pylist([row], schema)).to_pylist()[0]


def two_processes(word: str, way: Callable[[Stream], Stream], mode: str) -> list[int]:
    """Run a job that ends at row 300, restore it, and run on; the second process moves the first row that it is given.

    Returns: the rows that the second process was given, if it ended at row 300 as well.
    """
    store = flow.MemoryStore()
    given: list[int] = []

    def move(batch: pa.RecordBatch) -> pa.RecordBatch:
        given.extend(batch["n"].to_pylist())
        if given[-1] == 300:
            raise LookupError
        return back(batch) if len(given) == batch.num_rows and batch["n"][0].as_py() else batch

    def run() -> None:
        given.clear()
        made = MOVING[word](way(timed([*range(400)])), move)
        made.sink(op.collect(), name="out")
        checkpoint = flow.Checkpointing(store, every="1ms", mode=mode)
        made._pipeline.run(flow.SimulatedRunner(seed=1), checkpoint=checkpoint, restore="auto", parallelism=1)

    with pytest.raises(LookupError):
        run()
    with pytest.raises(LookupError):
        run()
    return given


@pytest.mark.parametrize("way", [lambda s: s, Stream.rebalance], ids=["chained", "rebalanced"])
@pytest.mark.parametrize(("word", "mode"), each_once(list(MOVING), ["aligned", "unaligned-persisted"]))
def test_after_a_restore_rows_are_compared_with_the_watermark_of_the_checkpoint(
    word: str, way: Callable[[Stream], Stream], mode: str
) -> None:
    with pytest.raises(ValueError, match="'shift': the function moved the event time 'ts' of 1 rows to before"):
        two_processes(word, way, mode)


def test_where_rows_of_a_snapshot_come_again_its_watermark_may_be_ahead_of_them_and_is_not_used() -> None:
    assert 0 < two_processes("map_batches", Stream.rebalance, "unaligned")[0] < 300


def test_the_seeded_simulation_refuses_them_too() -> None:
    shifted = FUNCTIONS["map_batches"](timed([0, 30, 60]), "fail")
    shifted.sink(op.collect(), name="out")
    with pytest.raises(ValueError, match="'shift': the function moved the event time"):
        shifted._pipeline.run(flow.SimulatedRunner(seed=1))


def test_results_of_windows_pass_a_function_behind_them() -> None:
    keyed = timed([0, 60, 10, 90, 20]).key_by("n")
    counts = keyed.window(op.tumbling("10s"), lateness="1h").agg(op.count(), name="windows")
    assert counts.as_rows().map(lambda row: row, name="same").collect().num_rows == 5


@pytest.mark.parametrize(
    ("time", "unit", "watermark", "moved", "fine"),
    [
        (EventTime("ts"), "s", 1_500_000, 1, 2),
        (EventTime("ts"), "ms", -1_500, -2, -1),
        (EventTime("ts"), "us", 7, 6, 7),
        (EventTime("ts"), "ns", 7, 6_999, 7_000),
        (EventTime("window_end", exclusive=True), "s", 10_000_000, 10, 11),
    ],
)
def test_the_first_time_that_is_not_behind_a_watermark_is_known_in_every_unit(
    time: EventTime, unit: str, watermark: int, moved: int, fine: int
) -> None:
    def at(value: int) -> pa.RecordBatch:
        return pa.record_batch({time.column: pa.array([value], pa.timestamp(unit))})

    times = MovedTimes(time, "here")
    times.advance(watermark)
    assert [times.rows(at(10**6), at(value)).tolist() for value in (moved, fine)] == [[0], []]
