"""Channels count the bytes of the rows that wait in them, and stop their writer above a limit; never for ever."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.protocol.events import Barrier, Cancel, Data, Watermark
from dataflow.runners.faults import Faults
from dataflow.runtime.task.byte_credit import RowBytes
from dataflow.runtime.task.channel import Channel
from dataflow.runtime.task.joined_rows import JoinSmall
from dataflow.testing import Ledger, ledger_sink
from tests.runtime.task.test_joined_rows import SHAPES
from tests.seeds import each_once_with_seeds
from tests.simulation.jobs import simulate


def words(rows: int, epoch: int = 0) -> Data:
    return Data(pa.record_batch({"x": pa.array(range(rows), pa.int64())}), epoch)


def channel(byte_credit: int, *, overtakable: bool = False, joins: bool = False) -> Channel:
    join = JoinSmall() if joins else None
    return Channel(100, "a", overtakable=overtakable, join=join, fixed_width=True, byte_credit=byte_credit)


def test_a_channel_whose_bytes_are_used_up_has_no_credit() -> None:
    made = channel(100)
    made.put(words(12))
    assert (made.has_credit, made.queued_bytes) == (True, 96)
    made.put(words(1))
    assert (made.has_credit, made.queued_bytes) == (False, 104)


def test_an_empty_channel_takes_a_batch_of_any_size_and_counts_it_as_larger() -> None:
    made = channel(1)
    assert made.has_credit
    made.put(words(1_000))
    assert (made.has_credit, made.larger) == (False, 1)
    made.take()
    assert (made.has_credit, made.queued_bytes) == (True, 0)


def test_a_slice_that_is_taken_gives_its_bytes_back_and_wakes_the_writer_once() -> None:
    made, woken = channel(400), []
    made.put(words(100))
    made.on_take = lambda: woken.append(made.queued_bytes)
    made.awaited = True
    made.take(40)
    assert (made.queued_bytes, woken) == (480, [])
    made.take(20)
    made.take(20)
    assert (made.has_credit, woken) == (True, [320])
    made.take(20)
    assert (made.queued_bytes, woken) == (0, [320])


def test_control_elements_need_no_bytes_and_an_overtaking_barrier_does_not_wait() -> None:
    made = channel(8, overtakable=True)
    made.put(words(10))
    made.put(Watermark(1))
    made.put(Barrier(1, unaligned=True))
    barrier, overtaken = made.take_urgent()
    assert barrier == Barrier(1, unaligned=True)
    assert len(overtaken) == 2
    assert made.queued_bytes == 80


def test_restored_rows_use_the_credit_and_need_none() -> None:
    made = channel(8)
    made.preload([words(10), words(20)])
    assert (made.has_credit, made.queued_bytes) == (False, 240)


def test_bytes_are_not_counted_without_a_limit() -> None:
    made = Channel(2, "a")
    made.put(Data(["any", "rows"]))
    assert (made.has_credit, made.queued_bytes) == (True, 0)


Action = tuple[str, int]


@given(actions=st.lists(st.tuples(st.sampled_from(["put", "take", "cancel"]), st.integers(1, 50)), max_size=40))
@pytest.mark.parametrize("joins", [False, True])
def test_after_any_puts_and_takes_an_empty_channel_has_no_bytes(*, joins: bool, actions: list[Action]) -> None:
    made = channel(100, joins=joins)
    for action, number in actions:
        if action == "put":
            made.put(words(number))
        elif action == "cancel":
            made.put(Cancel(number))
        elif made.head is not None:
            made.take(number)
        assert (made.queued_bytes > 0) == (made.queued_rows > 0)
        assert made.has_credit == (made.queued_bytes < 100)
    while made.head is not None:
        made.take(7)
    assert made.queued_bytes == 0


def test_a_slice_counts_its_own_bytes_and_not_those_of_the_batch_it_shares() -> None:
    batch = pa.record_batch({"t": ["a long text " * 5] * 10_000, "l": [[1, 2]] * 10_000, "x": range(10_000)})
    assert RowBytes().of(batch.slice(5_000, 10)) < 1_000


def test_batches_that_share_a_large_dictionary_count_a_part_of_it_each() -> None:
    dictionary = pa.array([f"entry {i}" for i in range(100_000)])
    codes = pa.DictionaryArray.from_arrays(pa.array(range(100_000), pa.int32()), dictionary)
    batch = pa.record_batch({"k": codes})
    parts = [RowBytes().of(batch.slice(start, 1_000)) for start in range(0, 100_000, 1_000)]
    whole = RowBytes().of(batch)
    assert whole == 400_000 + dictionary.nbytes
    assert 0.99 * whole <= sum(parts) <= whole


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "c"]),
        pa.array(["a", "b", "c"], pa.string_view()),
        pa.nulls(3),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([True, False, None]),
        pa.array([], pa.dictionary(pa.int8(), pa.string())),
        pa.array([b"abc"] * 3, pa.binary(3)),
        pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"]),
    ],
    ids=lambda column: str(column.type),
)
def test_rows_of_any_type_can_be_counted(column: Any) -> None:
    assert 0 <= RowBytes().of(pa.record_batch({"c": column})) < 1_000


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
@pytest.mark.parametrize(
    ("seed", "shape", "mode"),
    each_once_with_seeds(40, list(SHAPES), ["aligned", "unaligned-persisted", "aligned-timeout"]),
)
def test_a_job_whose_channels_hold_few_bytes_gives_what_one_with_much_room_gives(
    shape: str, mode: str, seed: int
) -> None:
    data = {
        "x": range(200),
        "k": [f"key {n % 7} " * (n % 7) for n in range(200)],
        "t": pa.array([n * 2_000 for n in range(200)], pa.timestamp("us")),
    }
    answers = []
    for little_room in (0.0, 1.0):
        world = Ledger()
        with flow.Pipeline("room") as p:
            rows = p.source(op.from_arrow(pa.table(data), batch_rows=3), name="rows", parallelism=1)
            SHAPES[shape](rows).sink(ledger_sink(world), name="out")
        faults = Faults(
            crashes=2, crash_at=["step", "recording"], crash_after=[1], skew=0.4, slices=0.3, little_room=little_room
        )
        simulate(p, flow.MemoryStore(), seed, faults, mode)
        answers.append(sorted(world.rows().elements()))
    assert answers[0] == answers[1]


def test_batches_above_the_share_of_a_channel_are_let_in_and_reported() -> None:
    wide = pa.table({"k": range(64), "text": ["x" * (1 << 20)] * 64})  # 64 MiB
    with flow.Pipeline() as p:
        rows = p.source(op.from_arrow(wide), name="wide", parallelism=1)
        rows.key_by("k").agg(n=op.count(), longest=col("text").max(), emit="final", name="counts").sink(op.collect())
    result = p.run(flow.LocalRunner(step_budget="10s", combine=False), parallelism=2)
    assert result.table()["n"].to_pylist() == [1] * 64
    (room,) = result.tuning.of("room", "counts")
    assert room.chosen == "32 MiB a task"
    assert 1 <= room.values["larger"] <= room.values["batches"]
