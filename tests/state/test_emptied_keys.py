"""Keys whose value goes while their timers stay: what checkpoints say of them, and when their slots are freed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state.keyed_state import KeyedState, Ttl
from dataflow.state.parts import resolved

KEYS = pa.schema({"k": pa.int64()})
ROWS = pa.schema({"x": pa.int64()})
Part = Mapping[str, pa.Table]


def only_rows() -> KeyedState:
    return KeyedState(KEYS, pa.schema({}), rows=ROWS)


def only_keys() -> KeyedState:
    return KeyedState(KEYS, pa.schema({}), ttl=Ttl(10))


def keys(*values: int) -> list[pa.Array]:
    return [pa.array(values, pa.int64())]


def part(state: KeyedState, checkpoint: int, since: int | None = None) -> Part:
    read = {name: reader.read_all() for name, reader in state.freeze(checkpoint, since).items()}
    state.durable(checkpoint)
    return read


def with_timer_and_row(key: int, time: int) -> KeyedState:
    state = only_rows()
    slots, _ = state.insert(keys(key))
    state.append(slots, np.array([time]), pa.record_batch({"x": [time]}))
    state.set_timers(slots, np.array([99]))
    return state


def test_a_key_that_lost_its_last_row_has_no_value_after_a_restore() -> None:
    state = with_timer_and_row(7, time=1)
    base = part(state, 1)
    state.drop_before(5)
    restored = only_rows()
    restored.restore([base, part(state, 2, since=1)])
    restored.validate()
    assert restored.find(keys(7)).tolist() == [-1]
    assert restored.next_due() == 99
    assert restored.insert(keys(7))[1].tolist() == [True]


def test_a_value_that_expired_before_its_timer_is_not_in_a_restored_state() -> None:
    state = only_keys()
    slots, _ = state.insert(keys(7), 0, 0)
    state.set_timers(slots, np.array([99]))
    base = part(state, 1)
    state.expire(50, 10)
    restored = only_keys()
    restored.restore([base, part(state, 2, since=1)])
    assert restored.find(keys(7), 0).tolist() == [-1], "also if the clock goes back"
    restored.due(99)
    restored.expire(0, 10)
    assert restored.live == 0


def test_a_key_that_lost_and_regained_its_value_has_one_after_a_restore() -> None:
    state = with_timer_and_row(7, time=1)
    base = part(state, 1)
    state.drop_before(5)
    slots, _ = state.insert(keys(7))
    state.append(slots, np.array([8]), pa.record_batch({"x": [8]}))
    restored = only_rows()
    restored.restore([base, part(state, 2, since=1)])
    assert restored.between(restored.find(keys(7)), 0, 99)[1]["x"].to_pylist() == [8]
    assert restored.next_due() == 99


def test_an_emptied_key_whose_timer_then_fires_is_gone_after_a_restore() -> None:
    state = with_timer_and_row(7, time=1)
    parts = [part(state, 1)]
    state.drop_before(5)
    state.freeze(2, since=1)  # fails
    state.due(99)
    state.insert(keys(8))
    parts.append(part(state, 3, since=1))
    restored = only_rows()
    restored.restore(parts)
    restored.validate()
    assert restored.live == 1


def shown(parts: list[Part]) -> list[int]:
    """Return the keys that a reader of a checkpoint finds in its parts."""
    return resolved(parts)["keys"]["k"].to_pylist()


def test_a_reader_finds_a_key_that_was_deleted_and_came_back_before_a_checkpoint() -> None:
    state = only_keys()
    slots, _ = state.insert(keys(7, 8), 0, 0)
    base = part(state, 1)
    state.delete(slots.copy())
    state.insert(keys(7), 0, 0)
    assert shown([base, part(state, 2, since=1)]) == [7]


def test_a_reader_passes_over_the_parts_before_the_last_base() -> None:
    state = only_keys()
    slots, _ = state.insert(keys(7, 8), 0, 0)
    base = part(state, 1)
    state.delete(slots[:1])
    assert shown([base, part(state, 2)]) == [8]


def test_a_slot_that_due_returned_can_be_written_after_another_timer_is_cancelled() -> None:
    state = with_timer_and_row(7, time=1)
    state.drop_before(5)
    _, slots = state.due(99)
    state.cancel_timers(slots, np.array([120]))
    assert state.touch(slots).tolist() == [True]
    state.validate()
    assert state.find(keys(7)).tolist() == slots.tolist()


@pytest.mark.parametrize("call", ["insert", "due", "expire"])
def test_a_key_without_a_value_goes_with_the_next_call_after_its_last_timer_is_cancelled(call: str) -> None:
    state = with_timer_and_row(7, time=1)
    state.drop_before(5)
    state.cancel_timers(np.array([0], np.int32), np.array([99]))
    state.validate()
    {"insert": lambda: state.insert(keys()), "due": lambda: state.due(0), "expire": lambda: state.expire(0, 1)}[call]()
    assert state.live == 0


@pytest.mark.parametrize("call", ["touch", "change", "set_timers", "append", "write", "keys"])
def test_a_slot_whose_key_is_gone_is_refused_by_what_writes_and_by_keys(call: str) -> None:
    state = only_rows()
    slots, _ = state.insert(keys(1, 2))
    stale = slots.copy()
    state.delete(stale)
    calls = {
        "touch": lambda: state.touch(stale),
        "change": lambda: state.change(stale),
        "keys": lambda: state.keys(stale),
        "set_timers": lambda: state.set_timers(stale, np.array([1, 2])),
        "append": lambda: state.append(stale, np.array([1, 2]), pa.record_batch({"x": [1, 2]})),
        "write": lambda: state.write(stale, pa.record_batch({"": pa.nulls(2)}).select([])),
    }
    with pytest.raises(ValueError, match=r"slot 0 (belongs to no key any more|has no value: call insert)"):
        calls[call]()
    state.validate()


def test_deleting_a_key_and_cancelling_a_timer_twice_has_no_effect() -> None:
    state = with_timer_and_row(7, time=1)
    slots = np.array([0], np.int32)
    for _ in range(2):
        state.cancel_timers(slots, np.array([99]))
    for _ in range(2):
        state.delete(slots)
    state.cancel_timers(slots, np.array([99]))
    state.expire(0, 1)
    state.validate()
    assert state.live == 0


def test_a_delta_does_not_name_slots_that_were_freed_before_it() -> None:
    """The bytes of their keys may be gone, so that they would seem to be the empty text."""
    state = KeyedState(pa.schema({"k": pa.string()}), pa.schema({}), ttl=Ttl(10))
    state.insert([pa.array([""])], 100, 100)
    base = part(state, 1)
    slots, _ = state.insert([pa.array([f"{i:01000}" for i in range(4000)])], 0, 0)
    state.set_timers(slots, 99)
    state.expire(50, 10_000)
    state.delete(slots)
    restored = KeyedState(pa.schema({"k": pa.string()}), pa.schema({}), ttl=Ttl(10))
    restored.restore([base, part(state, 2, since=1)])
    assert restored.find([pa.array([""])], 100).tolist() == [0]
