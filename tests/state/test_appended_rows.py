"""Rows that are appended and never removed, beside lists of Python."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.state.appended_rows import AppendedRows
from dataflow.state.columns import PIECE_BYTES
from dataflow.state.hashing import hash_rows, key_groups
from dataflow.state.parts import owned
from tests.seeds import seeds

SCHEMA = pa.schema(
    {
        "k": pa.int64(),
        "small": pa.int8(),
        "half": pa.float32(),
        "flag": pa.bool_(),
        "at": pa.timestamp("us", "UTC"),
        "day": pa.date32(),
        "text": pa.string(),
        "exact": pa.decimal128(20, 2),
        "tags": pa.list_(pa.string()),
        "nothing": pa.null(),
    }
)


def _rows(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    def some(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    numbers = rng.integers(0, 100, (count, 3)).tolist()
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return [
        {
            "k": some(a),
            "small": some(b),
            "half": some(c / 2),
            "flag": some(a > b),
            "at": some(epoch + datetime.timedelta(microseconds=a)),
            "day": some(datetime.date(2026, 1, 1) + datetime.timedelta(days=b)),
            "text": some("x" * c),
            "exact": some(a),
            "tags": some(["t"] * (b % 4)),
            "nothing": None,
        }
        for a, b, c in numbers
    ]


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def _read(log: AppendedRows, numbers: list[int]) -> list[dict[str, Any]]:
    columns = log.read(np.array(numbers, np.int32), slice(None))
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA).to_pylist()


def _stored(log: AppendedRows, checkpoint: int, since: int | None) -> pa.RecordBatchReader:
    return log.freeze(checkpoint, since)["rows"]


@pytest.mark.parametrize("seed", seeds(3, 60))
def test_rows_and_deltas_equal_lists(seed: int) -> None:
    rng = np.random.default_rng(seed)
    log, expected = AppendedRows(SCHEMA), [*_batch([]).to_pylist()]
    readers: list[tuple[pa.RecordBatchReader, int]] = []
    durable: int | None = None
    chain: list[pa.RecordBatchReader] = []
    for checkpoint in range(1, 12):
        for size in rng.integers(0, 700, 3).tolist():
            batch = _batch(_rows(rng, size)).slice(size // 3)
            log.append(batch)
            expected += batch.to_pylist()
        readers.append((_stored(log, 100 + checkpoint, None), len(expected)))
        chain.append(_stored(log, 200 + checkpoint, durable))
        durable = 200 + checkpoint
        log.durable(durable)
    assert log.count == len(expected)
    numbers = rng.integers(0, len(expected), 500).tolist()
    assert _read(log, numbers) == [expected[number] for number in numbers]
    for reader, count in readers:  # read late, after rows were added
        assert reader.read_all().drop_columns("/live").to_pylist() == expected[:count]
    parts = [{"rows": reader.read_all()} for reader in chain]
    restored = AppendedRows(SCHEMA)
    restored.restore(parts)
    assert _read(restored, list(range(restored.count))) == expected
    few = AppendedRows(SCHEMA)
    few.restore([{"rows": owned(part["rows"], 1, range(2, 5), 8)} for part in parts])
    groups = key_groups(hash_rows([_batch(expected).column("k")]), 8)
    mine = [row for row, group in zip(expected, groups.tolist(), strict=True) if 2 <= group < 5]
    assert _read(few, list(range(few.count))) == mine


def test_a_delta_since_the_restored_checkpoint_has_the_rows_after_the_restore() -> None:
    rng = np.random.default_rng(1)
    log, restored = AppendedRows(SCHEMA), AppendedRows(SCHEMA)
    log.append(_batch(_rows(rng, 5)))
    restored.restore([{"rows": _stored(log, 7, None).read_all()}])
    restored.durable(7)
    restored.append(_batch(_rows(rng, 3)))
    assert _stored(restored, 8, 7).read_all().num_rows == 3


def test_a_batch_of_a_checkpoint_has_little_text() -> None:
    schema = pa.schema({"k": pa.int64(), "text": pa.string()})
    log = AppendedRows(schema)
    log.append(pa.record_batch({"k": list(range(64)), "text": ["x" * (1 << 20)] * 64}, schema))
    sizes = [batch.nbytes for batch in _stored(log, 1, None)]
    assert len(sizes) >= 8
    assert max(sizes) <= PIECE_BYTES


def test_parts_without_a_base_without_rows_or_with_other_columns_are_refused() -> None:
    log = AppendedRows(SCHEMA)
    log.append(_batch(_rows(np.random.default_rng(2), 5)))
    base = _stored(log, 1, None).read_all()
    log.durable(1)
    delta = _stored(log, 2, 1).read_all()
    with pytest.raises(CheckpointDamaged, match="the base is missing"):
        AppendedRows(SCHEMA).restore([{"rows": delta}])
    with pytest.raises(CheckpointDamaged, match="no table of rows"):
        AppendedRows(SCHEMA).restore([{"rows": base}, {}])
    with pytest.raises(CheckpointMismatch, match="text"):
        AppendedRows(SCHEMA.remove(6)).restore([{"rows": base}])
