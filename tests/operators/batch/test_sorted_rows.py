"""Rows are sorted in memory and in files alike, and rows with equal keys keep their order."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import StoreError
from operators.batch.sorted_rows import SortedRows
from tests.seeds import seeds

SCHEMA = pa.schema({"text": pa.string(), "n": pa.int64()})


def filled(draw: Random, rows: SortedRows, count: int, width: int = 2) -> list[tuple[int, ...]]:
    """Add so many rows in batches, each with ``width`` keys; return their keys and numbers."""
    added, number = [], 0
    while number < count:
        size = min(draw.choice([0, 1, 7, 300]), count - number)
        keys = [[draw.randrange(-3, 4) for _ in range(size)] for _ in range(width)]
        numbers = list(range(number, number + size))
        added += list(zip(*keys, numbers, strict=True))
        batch = pa.record_batch([[f"text {n}" for n in numbers], numbers], schema=SCHEMA)
        rows.add(batch, [np.array(each, np.int64) for each in keys])
        number += size
    return added


@pytest.mark.parametrize("seed", seeds(20, 500))
def test_rows_come_in_order_of_their_keys(seed: int, tmp_path: Path) -> None:
    draw, width = Random(seed), seed % 4
    rows = SortedRows(SCHEMA, width, str(tmp_path), memory=draw.choice([1, 2_000, 20_000, 1 << 30]))
    expected = sorted(filled(draw, rows, draw.choice([0, 1, 50, 3_000]), width))
    found = []
    for batch, keys in rows.take():
        assert batch.schema == SCHEMA
        found += zip(*[each.tolist() for each in keys], batch["n"].to_pylist(), strict=True)
        assert batch["text"].to_pylist() == [f"text {n}" for n in batch["n"].to_pylist()]
    assert found == expected
    assert list(rows.take()) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(10))
def test_rows_that_agree_come_together(seed: int) -> None:
    draw = Random(seed)
    rows = SortedRows(SCHEMA, 2, memory=draw.choice([1, 2_000, 1 << 30]))
    expected = sorted(filled(draw, rows, 2_000))
    batches = [list(zip(*[each.tolist() for each in keys], strict=True)) for _, keys in rows.take_whole(2)]
    assert [key for batch in batches for key in batch] == [key[:2] for key in expected]
    for before, after in pairwise(batches):
        assert before[-1] != after[0]


def test_dictionaries_become_what_they_were(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    rows = SortedRows(pa.schema({"d": kind}), 1, str(tmp_path), memory=1)
    for text in ("b", "a"):
        rows.add(pa.record_batch({"d": pa.array([text]).dictionary_encode()}), [np.array([ord(text)])])
    batches = [batch for batch, _ in rows.take()]
    assert {batch.schema.field("d").type for batch in batches} == {kind}
    assert [text for batch in batches for text in batch["d"].to_pylist()] == ["a", "b"]


def test_rows_that_are_not_taken_leave_no_file(tmp_path: Path) -> None:
    rows = SortedRows(SCHEMA, 2, str(tmp_path), memory=1)
    filled(Random(1), rows, 500)
    assert rows.spilled > 0
    rows.close()
    assert list(tmp_path.iterdir()) == []
    assert not [link for link in os.listdir("/proc/self/fd") if _target(link).startswith(str(tmp_path))]


def _target(link: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{link}")
    except OSError:
        return ""


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    rows = SortedRows(SCHEMA, 2, str(tmp_path / "gone"), memory=1)
    with pytest.raises(StoreError, match=r"cannot write sorted rows to .*gone: .*LocalRunner\(spill="):
        filled(Random(1), rows, 10)
