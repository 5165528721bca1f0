"""The rows that were shown, and the changes that take them back, beside a dictionary."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state.keyed_state import KeyedState
from operators.stateful import changes
from operators.stateful.changes import ShownRows
from tests.forcing import Force
from tests.seeds import seeds

KEYS = pa.schema({"k": pa.int64()})


def rows_of(change: changes.Change) -> list[tuple[int, int, int]]:
    slots, (values,), weights = change
    return list(zip(slots.tolist(), values.to_pylist(), weights.tolist(), strict=True))


@pytest.mark.parametrize("seed", seeds(5, 300))
def test_rows_are_kept_until_the_changes_of_their_slots_are_emitted(seed: int, force: Force) -> None:
    """Slots are emitted in any order, some or all at a time, so batches lose rows at their beginning, middle or end."""
    draw = Random(seed)
    at_once = draw.choice([1, 3, 100])
    force(changes, "AT_ONCE", at_once, calls=changes._changed, within=changes.changes, times=1 if at_once == 100 else 2)
    state = KeyedState(KEYS, pa.schema({}))
    every = state.insert([pa.array(range(20))])[0].copy()
    shown, kept = ShownRows(state, KEYS, [pa.int64()]), dict[int, int]()
    for step in range(30):
        free = [slot for slot in every.tolist() if slot not in kept]
        new = draw.sample(free, draw.randrange(len(free) + 1))
        shown.keep(np.array(new, np.int32), [pa.array([step % 3] * len(new), pa.int64())])
        kept |= dict.fromkeys(new, step % 3)
        assert shown.slots.tolist() == sorted(kept)
        some = draw.choice([list(kept)[: draw.choice([1, 9, 99])], draw.sample(every.tolist(), draw.randrange(20))])
        is_present = np.array([draw.random() < 0.8 for _ in some], np.bool_)
        found = shown.changes(np.array(some, np.int32), lambda slots: [pa.array(slots % 3, pa.int64())], is_present)
        expected = []
        for slot, present in zip(some, is_present.tolist(), strict=True):
            old, now = kept.pop(slot, None), slot % 3 if present else None
            if old != now:
                expected += [(slot, value, w) for value, w in ((old, -1), (now, 1)) if value is not None]
        assert [row for change in found for row in rows_of(change)] == expected


def test_memory_follows_the_slots_of_the_state() -> None:
    state = KeyedState(KEYS, pa.schema({}))
    slots, shown = state.insert([pa.array(range(200_000))])[0].copy(), ShownRows(state, KEYS, [pa.int64()])
    shown.keep(slots, [pa.array(slots)])
    shown.drop(slots)
    state.delete(slots[10:])
    state.insert([pa.array([0])])  # the state gives memory back before it takes more
    shown.keep(slots[:10], [pa.array(range(10))])
    assert len(shown._numbers) < 1_000
    assert shown.slots.tolist() == slots[:10].tolist()


def test_the_only_new_row_comes_after_all_old_ones_and_is_compared_if_there_was_one() -> None:
    slots, shown = np.array([4, 5, 6, 7], np.int32), np.array([2, 1, 0, 1])
    old, present = [pa.array([1, 2, 3, 9])], np.array([True, True, True, False])
    (change,) = changes.changes(slots, shown, old, lambda slots: [pa.array([2, 3, 4])], present)
    assert rows_of(change) == [(4, 1, -1), (4, 2, -1), (4, 2, 1), (6, 4, 1), (7, 9, -1)]
