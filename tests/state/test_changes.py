"""Intervals between checkpoints: how many are kept when checkpoints fail, and which numbers are refused."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state.changes import Changes
from dataflow.state.keyed_state import KeyedState, Ttl

KEYS = pa.schema({"k": pa.int64()})


def array(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def test_failed_checkpoints_do_not_pile_up_and_the_next_delta_has_all_that_changed() -> None:
    freed: list[int] = []
    changes = Changes(free=lambda slots: freed.extend(slots.tolist()))
    changes.close(1, None, 512)
    changes.durable(1)
    for checkpoint in range(2, 200):
        changes.note(array(checkpoint), 512)
        changes.remove(array(200 + checkpoint))
        delta = changes.close(checkpoint, 1, 512)
        assert delta is not None
        assert np.concatenate(list(delta.slots())).tolist() == list(range(2, checkpoint + 1))
        assert sorted(delta.gone()) == [200 + n for n in range(2, checkpoint + 1)]
        assert len(changes._closed) <= 8
    assert sum(len(interval.removed) for _, interval in changes._closed) <= 8
    assert not freed
    changes.durable(199)
    assert (sorted(freed), changes.waiting, changes._closed) == ([200 + n for n in range(2, 200)], 0, [])


def test_a_delta_since_a_checkpoint_within_a_merged_interval_has_at_least_what_changed() -> None:
    changes = Changes(free=lambda slots: None)
    changes.close(1, None, 64)
    for checkpoint in range(2, 14):
        changes.note(array(checkpoint), 64)
        changes.close(checkpoint, 1, 64)
    changes.durable(3)
    changes.note(array(50), 64)
    delta = changes.close(14, 3, 64)
    assert delta is not None
    assert {*range(4, 14), 50} <= set(np.concatenate(list(delta.slots())).tolist())


def test_merging_intervals_does_not_change_a_delta_that_is_still_read() -> None:
    changes = Changes(free=lambda slots: None)
    changes.close(1, None, 64)
    changes.note(array(5), 64)
    delta = changes.close(2, 1, 64)
    assert delta is not None
    for checkpoint in range(3, 20):
        changes.note(array(checkpoint + 20), 64)
        changes.close(checkpoint, 1, 64)
    assert [slots.tolist() for slots in delta.slots()] == [[5]]


@pytest.mark.parametrize(
    ("checkpoint", "since", "message"),
    [
        (2, None, "checkpoint 2 comes after checkpoint 2: expected a higher number"),
        (1, 1, "checkpoint 1 comes after checkpoint 2: expected a higher number"),
        (4, 3, "checkpoint 4 cannot begin at checkpoint 3, the last one was 2"),
        (4, 4, "checkpoint 4 cannot begin at checkpoint 4, the last one was 2"),
    ],
)
def test_numbers_of_checkpoints_that_do_not_ascend_are_refused(
    checkpoint: int, since: int | None, message: str
) -> None:
    state = KeyedState(KEYS, pa.schema({}))
    state.freeze(1)
    state.durable(1)
    state.freeze(2, since=1)
    with pytest.raises(ValueError, match=message):
        state.freeze(checkpoint, since)


def test_the_first_checkpoint_after_a_restore_may_begin_at_the_restored_one() -> None:
    state = KeyedState(KEYS, pa.schema({}))
    state.insert([pa.array([1])])
    restored = KeyedState(KEYS, pa.schema({}))
    restored.restore([{name: reader.read_all() for name, reader in state.freeze(7).items()}])
    assert restored.freeze(8, since=7)["keys"].read_all().num_rows == 0


@pytest.mark.parametrize(("limit", "removed"), [(3, [3, 3, 3, 1]), (10, [10]), (11, [10]), (7, [7, 3])])
def test_expire_looks_at_as_many_slots_as_its_limit_and_begins_again_at_the_end(limit: int, removed: list[int]) -> None:
    state = KeyedState(KEYS, pa.schema({}), ttl=Ttl(10))
    state.insert([pa.array(range(10))], 0, 0)
    assert state.expire(0, 4) == 0
    assert [state.expire(10, limit) for _ in removed] == removed


def test_a_base_of_a_chunk_with_removed_slots_converts_no_range_to_a_list() -> None:
    """Numpy does so one number at a time, which made a base six times slower."""
    state = KeyedState(KEYS, pa.schema({}))
    slots, _ = state.insert([pa.array(range(1000))])
    state.delete(slots[:1])
    reader = state.freeze(1)["keys"]
    with patch("dataflow.state.parts.np.asarray", side_effect=AssertionError("a range as a list")):
        assert reader.read_all().num_rows == 999
