"""Every row goes to the owner of its key, in its order, and nothing is lost."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.state.hashing import hash_rows, key_groups, subtask_of
from dataflow.state.partition import hash_partition, partition_rows


def batch_of(rows: int, seed: int) -> pa.RecordBatch:
    rng = random.Random(seed)
    names = pa.array(rng.choices(["a", "b", None, "long name"], k=rows), pa.string())
    return pa.record_batch(
        {
            "key": pa.array(rng.choices([*range(40), None], k=rows), pa.int64()),
            "name": names,
            "dictionary": names.dictionary_encode(),
            "price": pa.array([rng.random() for _ in range(rows)], pa.float64()),
            "time": pa.array(range(rows), pa.timestamp("us", "UTC")),
            "small": pa.array([i % 7 for i in range(rows)], pa.int8()),
            "flag": pa.array([i % 3 == 0 for i in range(rows)]),
            "tags": pa.array([[i] for i in range(rows)], pa.list_(pa.int64())),
        }
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 200), st.integers(1, 9), st.integers(0, 5), st.sampled_from([["key"], ["name", "key"]]))
def test_each_part_is_the_filtered_batch(rows: int, parallelism: int, cut: int, keys: list[str]) -> None:
    batch = batch_of(rows, seed=rows).slice(cut)
    groups = key_groups(hash_rows([batch[key] for key in keys]), 128)
    owners = np.array([subtask_of(int(group), parallelism, 128) for group in groups], int)
    for target, part in enumerate(hash_partition(batch, keys, parallelism, 128)):
        expected = batch.take(pa.array(np.flatnonzero(owners == target)))
        assert part is None or part.validate(full=True) is None
        assert (part or batch.slice(0, 0)).equals(expected)


def test_a_batch_of_one_target_is_not_copied() -> None:
    batch = pa.record_batch({"k": [5] * 10})
    assert [part for part in hash_partition(batch, ["k"], 4, 128) if part is not None] == [batch]
    assert hash_partition(batch, ["k"], 1, 128)[0] is batch
    assert any(part is batch for part in hash_partition(batch, ["k"], 4, 128))


def test_parts_share_the_memory_of_one_gather() -> None:
    parts = hash_partition(batch_of(1000, seed=1), ["key"], 3, 128)
    assert len({part["time"].buffers()[1].address for part in parts if part is not None}) == 1


def test_more_subtasks_than_key_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="9 subtasks"):
        partition_rows(np.zeros(3, np.uint64), 9, 8)
