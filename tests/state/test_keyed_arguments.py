"""Keyed state refuses slots, times and columns that it would read or write wrong memory with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.errors import CheckpointMismatch, ConfigurationError, SchemaMismatch
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


KEY = [pa.array([10])]
BAD_CALLS: dict[str, tuple[Callable[[KeyedState], Any], type[Exception], str]] = {
    "fewer times": (
        lambda state: state.insert([pa.array([1, 2, 3])], np.array([1, 2]), 0),
        ValueError,
        "now has 2 entries for 3 rows: give one for each row, or one for all",
    ),
    "fewer stamps": (
        lambda state: state.touch([0, 1, 2], 0, np.array([1, 2])),
        ValueError,
        "stamps has 2 entries for 3 rows",
    ),
    "times to find": (lambda state: state.find(KEY, np.array([1, 2])), ValueError, "now has 2 entries for 1 rows"),
    "fractional times": (
        lambda state: state.find(KEY, np.array([1.5])),
        TypeError,
        "now: expected integers, got ndarray of float64: cast to int64",
    ),
    "times of Arrow": (
        lambda state: state.find(KEY, pa.array([1], pa.timestamp("us"))),
        TypeError,
        r"now: expected integers, got an Arrow array of timestamp\[us\] with 0 nulls",
    ),
    "dues": (lambda state: state.set_timers([0], np.array([1, 2])), ValueError, "dues has 2 entries for 1 rows"),
    "low": (lambda state: state.between([0, 1], [1, 2, 3], 9), ValueError, "low has 3 entries for 2 rows"),
    "rows to write": (lambda state: state.write([0, 1], ROW), ValueError, "2 slots for 1 rows to write"),
    "key type": (
        lambda state: state.insert([pa.array(["a"])]),
        SchemaMismatch,
        r"the keys of this state are {'k': 'int64'}, got \['StringArray of 1 string'\]",
    ),
    "key columns": (lambda state: state.find([*KEY, *KEY]), SchemaMismatch, "one pa.Array of the type of each"),
    "chunks": (lambda state: state.find([pa.chunked_array([[1]])]), SchemaMismatch, "'ChunkedArray of 1 int64'"),
    "no time of 64 bits": (lambda state: state.drop_before(2**63), ValueError, "time is 9223372036854775808: expected"),
    "fractional time": (lambda state: state.drop_before(5.5), TypeError, "time: expected a whole number"),
    "late time of due": (lambda state: state.due(2**63), ValueError, "upto is 9223372036854775808"),
    "late time of expire": (lambda state: state.expire(-(2**63) - 1, 9), ValueError, "now is -9223372036854775809"),
    "unsigned times": (
        lambda state: state.insert(KEY, np.array([2**63], np.uint64)),
        ValueError,
        r"now has 9223372036854775808: expected integers below 2\*\*63",
    ),
    "times to search from": (
        lambda state: state.first_rows([2, 2, 2], np.array([1, 2])),
        ValueError,
        "2 entries for 3",
    ),
    "row": (lambda state: state.read_rows([10**6]), ValueError, "row 1000000 does not exist, there are 1"),
    "row -1": (lambda state: state.read_rows([0, -1]), ValueError, "row -1 does not exist"),
    "slot of first rows": (lambda state: state.first_rows([99], ONE), ValueError, "slot 99 does not exist"),
    "domain": (lambda state: state.set_timers([0], ONE, "event"), TypeError, "TimeDomain.EVENT or .*, got 'event'"),
    "domain of due": (lambda state: state.due(1, "clock"), TypeError, "got 'clock'"),
}


@pytest.mark.parametrize("call", BAD_CALLS)
def test_bad_arguments_are_refused_and_change_nothing(call: str) -> None:
    state = filled()
    bad, error, message = BAD_CALLS[call]
    with pytest.raises(error, match=message):
        bad(state)
    state.validate()
    assert contents(state) == contents(filled())


@pytest.mark.parametrize(
    "now", [np.int64(5), [5], np.array([5], np.int32), np.array([5, 6])[::2], pa.array([5]), pa.chunked_array([[5]])]
)
def test_times_may_be_any_integers(now: Any) -> None:
    state = filled()
    assert state.find(KEY, now).tolist() == [0]
    assert state.insert(KEY, now, now)[1].tolist() == [False]
    state.set_timers([0], now)
    assert state.due(5)[0].tolist() == [5, 5]


def test_one_due_time_may_be_given_for_all() -> None:
    state = filled()
    state.set_timers([0, 1], 3)
    assert state.due(3)[1].tolist() == [0, 1]


@pytest.mark.parametrize("length", [0, -1, 1.5, 2**63, True, None])
def test_a_length_that_is_no_time_to_live_is_refused(length: Any) -> None:
    with pytest.raises(ConfigurationError, match="a ttl "):
        Ttl(length)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"words": -1}, ConfigurationError, "got words=-1"),
        ({"columns": pa.schema([*X, *X])}, SchemaMismatch, r"several columns with the names \['x'\]: rename them"),
        ({"keys": pa.schema([*KEYS, *KEYS])}, SchemaMismatch, r"the names \['k'\]"),
        ({"rows": pa.schema([*X, *X])}, SchemaMismatch, r"the names \['x'\]"),
    ],
)
def test_a_state_that_cannot_be_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        KeyedState(**{"keys": KEYS, "columns": X} | arguments)


def restored_with(*names: str) -> KeyedState:
    """Restore the checkpoint of a state with the columns x and y, in that order, to one with columns ``names``."""
    state = KeyedState(KEYS, pa.schema({"x": pa.int64(), "y": pa.int64()}))
    slots, _ = state.insert([pa.array([1])])
    state.write(slots, pa.record_batch({"x": [7], "y": [8]}))
    restored = KeyedState(KEYS, pa.schema([(name, pa.int64()) for name in names]))
    restored.restore([{name: reader.read_all() for name, reader in state.freeze(1).items()}])
    return restored


@pytest.mark.parametrize("names", [("y", "x"), ("y", "z")])
def test_columns_that_are_swapped_or_moved_do_not_restore(names: tuple[str, str]) -> None:
    with pytest.raises(CheckpointMismatch, match="the checkpoint's state has"):
        restored_with(*names)


def test_columns_with_new_names_restore() -> None:
    assert restored_with("a", "y").read([0]).to_pylist() == [{"a": 7, "y": 8}]
