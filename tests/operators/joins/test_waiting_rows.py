"""Rows that wait for the watermark, beside a list of Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged, SchemaMismatch
from dataflow.state.parts import counting
from operators.stateful.row_log import NUMBER, RowLog, WindowRows, by_number
from tests.seeds import seeds

SCHEMA = pa.schema({"k": pa.int64(), "x": pa.int64()})


def _taken(waiting: RowLog, below: int) -> list[tuple[int, int]]:
    """The rows before ``below``: time and x, in the order in which they come out, sorted by time."""
    rows = [
        (time, x)
        for batch, times in waiting.take(below)
        for time, x in zip(times.tolist(), batch["x"].to_pylist(), strict=True)
    ]
    return sorted(rows, key=lambda row: row[0])


def _stored(waiting: RowLog, checkpoint: int, since: int | None) -> dict[str, pa.Table]:
    return {name: reader.read_all() for name, reader in waiting.freeze(checkpoint, since).items()}


@pytest.mark.parametrize("seed", seeds(4, 200))
def test_rows_leave_once_and_in_order_of_arrival_and_restore(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waiting, arrived, passed = RowLog(SCHEMA), 0, -1
    expected: list[tuple[int, int]] = []
    parts: list[dict[str, pa.Table]] = []
    last: int | None = None
    most = int(rng.choice([3, 400, 9000]))
    for checkpoint in range(1, 40):
        for _ in range(rng.integers(0, 4)):
            count = int(rng.integers(1, most))
            times = passed + 1 + rng.integers(0, int(rng.choice([2, 50, 5000])), count)
            numbers = np.arange(arrived, arrived + count)
            arrived += count
            waiting.add(pa.record_batch({"k": numbers % 7, "x": numbers}, SCHEMA), times)
            expected += zip(times.tolist(), numbers.tolist(), strict=True)
        passed += int(rng.integers(0, 30))
        left = sorted([row for row in expected if row[0] < passed], key=lambda row: row[0])
        assert _taken(waiting, passed) == left
        expected = [row for row in expected if row[0] >= passed]
        assert waiting.entries == len(expected)
        if rng.random() < 0.5:
            parts.append(_stored(waiting, checkpoint, last))
            last = checkpoint
            waiting.durable(checkpoint)
            restored = RowLog(SCHEMA)
            restored.restore([{"rows": counting(part["rows"], NUMBER, passed)} for part in parts])
            assert restored.entries == len(expected)
            if rng.random() < 0.2:
                waiting = restored  # a restore names the checkpoint that it restored as the first base
    assert _taken(waiting, 2**63 - 1) == sorted(expected, key=lambda row: row[0])


def test_each_checkpoint_has_rows_once_in_the_order_of_arrival() -> None:
    waiting = RowLog(SCHEMA)
    for x in range(5):
        waiting.add(pa.record_batch({"k": [x], "x": [x]}, SCHEMA), np.array([7]))
    first = _stored(waiting, 1, None)
    waiting.add(pa.record_batch({"k": [9], "x": [9]}, SCHEMA), np.array([7]))
    assert first["rows"]["x"].to_pylist() == [0, 1, 2, 3, 4]
    assert _stored(waiting, 2, 1)["rows"]["x"].to_pylist() == [9]


def test_rows_of_windows_are_in_order_and_leave_in_order() -> None:
    waiting, batches = WindowRows(SCHEMA), [[4] * 9, [4, 900, 4, 5], [4, 5] * 9, [5, 4, 70]]
    arrived = [(time, x) for x, time in enumerate(time for times in batches for time in times)]
    first = 0
    for times in batches:
        xs = range(first, first := first + len(times))
        waiting.add(pa.record_batch({"k": times, "x": xs}, SCHEMA), np.array(times))
    assert waiting.rows(4, 71)["x"].to_pylist() == [x for time, x in sorted(arrived) if time < 71]
    waiting.drop(5)
    waiting.add(pa.record_batch({"k": [4], "x": [99]}, SCHEMA), np.array([4]))
    assert waiting.numbers(900).tolist() == [4, 5, 70]
    assert waiting.entries == 1 + waiting.rows(5, 901).num_rows == 1 + sum(time >= 5 for time, _ in arrived)


def test_rows_that_are_kept_of_a_number_stay_in_order_and_in_the_checkpoint_that_has_them() -> None:
    waiting = WindowRows(SCHEMA)
    waiting.add(pa.record_batch({"k": [4, 5, 6, 5], "x": [0, 1, 2, 3]}, SCHEMA), np.array([4, 500, 6, 500]))
    _stored(waiting, 1, None)
    waiting.add(pa.record_batch({"k": [5, 5], "x": [4, 5]}, SCHEMA), np.array([500, 500]))
    waiting.keep(500, np.array([False, True, False, True]))
    assert waiting.rows(0, 501)["x"].to_pylist() == [0, 2, 3, 5]
    assert waiting.entries == 4
    assert _stored(waiting, 2, 1)["rows"]["x"].to_pylist() == [5]


def test_rows_without_a_time_are_damage() -> None:
    waiting = RowLog(SCHEMA)
    waiting.add(pa.record_batch({"k": [1], "x": [1]}, SCHEMA), np.array([7]))
    table = _stored(waiting, 1, None)["rows"]
    place = table.schema.get_field_index(NUMBER)
    broken = table.set_column(place, table.schema.field(place), pa.nulls(1, pa.int64())).replace_schema_metadata(
        table.schema.metadata
    )
    with pytest.raises(CheckpointDamaged, match="1 of 1 stored rows have no 'barrierflow:number'"):
        RowLog(SCHEMA).restore([{"rows": broken}])


@pytest.mark.parametrize("spread", [1, 5, 3000, 2**20, 2**33, 2**40, 2**62])
def test_rows_are_sorted_by_number_and_ties_stay(spread: int) -> None:
    times = np.random.default_rng(spread).integers(-spread, spread, 5000)
    assert by_number(times).tolist() == np.argsort(times, kind="stable").tolist()


def test_a_column_with_the_name_of_the_logs_own_is_refused() -> None:
    with pytest.raises(SchemaMismatch, match=r"'barrierflow:number'.*rename them"):
        RowLog(pa.schema({"k": pa.int64(), "barrierflow:number": pa.int64()}))
