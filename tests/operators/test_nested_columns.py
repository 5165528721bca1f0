"""Rows with nested columns are kept as bytes, and those of a checkpoint are checked."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from dataflow.errors import CheckpointDamaged
from dataflow.state.parts import check_parts
from operators.stateful.nested_columns import NestedColumns

SCHEMA = pa.schema(
    {
        "l": pa.list_(pa.float64()),
        "n": pa.int64(),
        "s": pa.struct({"at": pa.timestamp("us"), "d": pa.decimal128(9, 2), "deep": pa.list_(pa.list_(pa.string()))}),
        "m": pa.map_(pa.string(), pa.int32()),
    }
)
STRUCT = {"at": datetime(2026, 1, 2), "d": Decimal("1.25"), "deep": [["a", None], None, []]}
ROWS = pa.RecordBatch.from_pylist(
    [
        {"l": [1.0, math.inf, None], "n": 1, "s": STRUCT, "m": [("x", 1)]},
        {"l": None, "n": None, "s": None, "m": None},
        {"l": [], "n": 3, "s": {"at": None, "d": None, "deep": None}, "m": []},
    ],
    SCHEMA,
)


def test_rows_of_every_nested_type_are_kept_and_read() -> None:
    columns = NestedColumns(SCHEMA)
    assert columns.decode(columns.encode(ROWS)).equals(ROWS)
    assert columns.decode(columns.encode(ROWS.slice(1))).equals(ROWS.slice(1))
    assert columns.decode(columns.encode(ROWS)[:0]).equals(ROWS[:0])


def test_a_row_does_not_keep_the_values_of_its_neighbours() -> None:
    columns = NestedColumns(pa.schema({"l": pa.list_(pa.int64())}))
    kept = columns.encode(pa.record_batch({"l": [list(range(10_000)), [1]]}, schema=columns.schema))
    assert len(kept.column(0)[1].as_py()) < 1_000


@pytest.mark.parametrize("damage", ["cut", "two rows", "null", "bytes"])
def test_a_damaged_row_of_a_checkpoint_is_refused(damage: str) -> None:
    columns = NestedColumns(SCHEMA)
    kept = columns.encode(ROWS)
    check_parts([{"rows": pa.Table.from_batches([kept])}], {"rows": columns.kept})
    *first, last = kept.column("barrierflow:nested").to_pylist()
    two = ROWS.select(["l", "s", "m"]).slice(0, 2).serialize().to_pybytes()
    bad = {"cut": last[:-8], "two rows": two, "null": None, "bytes": b"\xff" * 64}[damage]
    damaged = kept.set_column(1, "barrierflow:nested", pa.array([*first, bad], pa.binary()))
    with pytest.raises(CheckpointDamaged, match=r"barrierflow:nested|^column"):
        check_parts([{"rows": pa.Table.from_batches([damaged])}], {"rows": columns.kept})
