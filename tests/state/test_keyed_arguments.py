"""Keyed state refuses slots, times and columns that it would read or write wrong memory with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state.keyed_state import KeyedState, Ttl

KEYS = pa.schema({"k": pa.int64()})
X = pa.schema({"x": pa.int64()})
ONE = np.array([5])
ROW = pa.record_batch({"x": [5]})

CALLS: dict[str, Callable[[KeyedState, Any], Any]] = {
    "touch": lambda state, slots: state.touch(slots),
    "change": lambda state, slots: state.change(slots),
    "write": lambda state, slots: state.write(slots, ROW),
    "append": lambda state, slots: state.append(slots, ONE, ROW),
    "set_timers": lambda state, slots: state.set_timers(slots, ONE),
    "keys": lambda state, slots: state.keys(slots),
}
LENIENT: dict[str, Callable[[KeyedState, Any], Any]] = {
    "delete": lambda state, slots: state.delete(slots),
    "cancel_timers": lambda state, slots: state.cancel_timers(slots, ONE),
    "visible": lambda state, slots: state.visible(slots).tolist(),
    "read": lambda state, slots: state.read(slots).to_pylist(),
    "between": lambda state, slots: state.between(slots, 0, 9)[0].tolist(),
    "drop_before": lambda state, slots: state.drop_before(9, slots),
}
OF_ABSENT = {
    "delete": None,
    "cancel_timers": None,
    "visible": [False],
    "read": [{"x": None}],
    "between": [0, 0],
    "drop_before": 0,
}


def filled() -> KeyedState:
    """State with three keys, whose last one has a row and a timer."""
    state = KeyedState(KEYS, X, rows=X, ttl=Ttl(1000))
    slots, _ = state.insert([pa.array([10, 20, 30])])
    state.write(slots, pa.record_batch({"x": [1, 2, 3]}))
    state.append(slots[2:], ONE, ROW)
    state.set_timers(slots[2:], ONE)
    return state


def contents(state: KeyedState) -> list[Any]:
    slots = state.find([pa.array([10, 20, 30])])
    return [slots.tolist(), state.read(slots).to_pylist(), state.live, state.next_due(), state.between(slots, 0, 9)[1]]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_needs_a_key_refuses_the_slot_of_an_absent_one(call: str) -> None:
    state = filled()
    with pytest.raises(ValueError, match="slot -1 has no key: call insert for keys that may be new"):
        CALLS[call](state, state.find([pa.array([99])]))
    state.validate()
    assert contents(state) == contents(filled())


@pytest.mark.parametrize("call", LENIENT)
def test_other_calls_find_nothing_at_the_slot_of_an_absent_key(call: str) -> None:
    state = filled()
    assert LENIENT[call](state, state.find([pa.array([99])])) == OF_ABSENT[call]
    state.validate()
    assert contents(state) == contents(filled())


@pytest.mark.parametrize("slot", [3, 10**6, -2, 2**31, -(2**40)])
@pytest.mark.parametrize("call", [*CALLS, *LENIENT])
def test_a_slot_outside_of_the_table_is_refused(call: str, slot: int) -> None:
    state = filled()
    with pytest.raises(ValueError, match=r"fetch (slots|them) with find or insert"):
        (CALLS | LENIENT)[call](state, np.array([slot]))
    state.validate()
    assert contents(state) == contents(filled())


@pytest.mark.parametrize("call", [*CALLS, *LENIENT])
def test_slots_that_are_no_integers_are_refused(call: str) -> None:
    with pytest.raises(TypeError, match="slots: expected integers, got ndarray of float64"):
        (CALLS | LENIENT)[call](filled(), np.array([0.0]))


@pytest.mark.parametrize(
    "slots", [[0], np.array([0]), np.array([0, 5], np.int32)[::2], pa.array([0]), np.array([0], np.uint8)]
)
@pytest.mark.parametrize("call", [*CALLS, *LENIENT])
def test_slots_may_be_any_integers(call: str, slots: Any) -> None:
    (CALLS | LENIENT)[call](filled(), slots)
