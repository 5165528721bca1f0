"""State that lost all its keys gives their memory back, and continues as new state does."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state import changes, free_numbers
from dataflow.state.changes import Changes
from dataflow.state.free_numbers import FreeNumbers
from dataflow.state.keyed_state import KeyedState, Ttl
from tests.forcing import Force
from tests.seeds import each_once
from tests.state.test_keyed_state import KEYS, SHAPES, Run, run

X = pa.schema({"x": pa.int64(), "t": pa.string()})
BURSTS = {
    "int64": pa.schema({"k": pa.int64()}),
    "text": pa.schema({"k": pa.string()}),
    "two columns": pa.schema({"a": pa.int64(), "b": pa.string()}),
}


def state(type_: pa.DataType) -> KeyedState:
    return KeyedState(pa.schema({"k": type_}), X, rows=pa.schema({"r": pa.int64()}), ttl=Ttl(10))


def fill(held: KeyedState, type_: pa.DataType, count: int, time: int) -> None:
    slots, _ = held.insert([pa.array(np.arange(count)).cast(type_)], time, time)
    numbers = pa.array(np.arange(count))
    held.write(slots, pa.record_batch({"x": numbers, "t": numbers.cast(pa.string())}))
    held.append(slots, np.full(count, time), pa.record_batch({"r": numbers}))
    held.set_timers(slots, np.full(count, time))


def memory() -> int:
    return tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("checkpoints", [[], [1]])
def test_memory_returns_when_the_last_key_has_expired(type_: pa.DataType, checkpoints: list[int]) -> None:
    fill(state(type_), type_, 10, time=0)  # imports the kernels
    held = state(type_)
    tracemalloc.start()
    try:
        before, held = memory(), state(type_)
        for checkpoint in checkpoints:
            held.freeze(checkpoint)
            held.durable(checkpoint)
        fill(held, type_, 100_000, time=0)
        full = memory() - before
        held.due(0, limit=10**6)
        held.expire(10, 10**6)
        held.expire(10, 0)
        assert memory() - before < full // 20
        assert held.live == 0
    finally:
        tracemalloc.stop()
    held.validate()
    fill(held, type_, 10, time=20)
    held.validate()
    assert held.read(held.slots)["x"].to_pylist() == list(range(10))


def test_a_checkpoint_that_is_read_later_has_the_state_before_its_memory_was_given_back() -> None:
    held = state(pa.string())
    fill(held, pa.string(), 70_000, time=0)
    readers = held.freeze(1)
    expected = {name: reader.read_all() for name, reader in held.freeze(2).items()}
    held.due(0, limit=10**6)
    held.expire(10, 10**6)
    held.expire(10, 0)
    fill(held, pa.string(), 1000, time=30)
    assert {name: reader.read_all() for name, reader in readers.items()} == expected
    del readers
    held.expire(60, 10**6)
    held.due(60, limit=10**6)
    fill(held, pa.string(), 5, time=70)
    held.validate()


@pytest.mark.parametrize(("kind", "shape", "ttl"), each_once(list(KEYS), list(SHAPES), [None, 5]))
def test_random_operations_agree_with_the_model_if_memory_is_given_back(
    force: Force, kind: str, shape: str, ttl: int | None
) -> None:
    force(free_numbers, "MANY", 1, calls=FreeNumbers.sort)
    force(changes, "_FEW", 2, calls=Changes.give_up)
    run(kind, ttl, 1, 120, shape, Leaving)


@pytest.mark.soak
@pytest.mark.parametrize("ttl", [None, 5, 30])
@pytest.mark.parametrize("kind", KEYS)
def test_many_random_operations_agree_with_the_model_if_memory_is_given_back(
    force: Force, kind: str, ttl: int | None
) -> None:
    force(free_numbers, "MANY", 1, calls=FreeNumbers.sort)
    force(changes, "_FEW", 2, calls=Changes.give_up)
    for shape in SHAPES:
        for seed in range(100, 120):
            run(kind, ttl, seed, 300, shape, Leaving)


@pytest.mark.parametrize("survivors", ["first", "last"])
@pytest.mark.parametrize("kind", BURSTS)
def test_memory_follows_the_live_keys_after_a_burst(kind: str, survivors: str) -> None:
    """Keys with the highest slots keep the memory while they live, and no longer."""
    schema, count, few = BURSTS[kind], 200_000, 1_000

    def keys(low: int, high: int) -> list[pa.Array]:
        return [pa.array(np.arange(low, high)).cast(type_) for type_ in schema.types]

    def live_on(held: KeyedState) -> None:
        """Let few keys come and go, as many as live at a time."""
        for step in range(1, 30):
            held.insert(keys(10**6 + step * few, 10**6 + (step + 1) * few), 10 * step, 10 * step)
            held.expire(10 * step, 10**6)

    first = KeyedState(schema, X, ttl=Ttl(10))
    live_on(first)
    tracemalloc.start()
    try:
        before, held = memory(), KeyedState(schema, X, ttl=Ttl(10))
        for start in range(0, count, 10_000):
            slots, _ = held.insert(keys(start, start + 10_000), 0, 0)
            numbers = pa.array(np.arange(10_000))
            held.write(slots, pa.record_batch({"x": numbers, "t": numbers.cast(pa.string())}))
        full = memory() - before
        stay = keys(0, few) if survivors == "first" else keys(count - few, count)
        held.insert(stay, 5, 5)
        held.expire(10, 10**6)
        assert held.live == few
        live_on(held)
        assert memory() - before < full // 20
        assert len(held.records) < 4 * few
    finally:
        tracemalloc.stop()
    held.validate()


def test_slots_that_do_not_exist_any_more_are_those_of_keys_that_are_gone() -> None:
    held = state(pa.int64())
    fill(held, pa.int64(), 70_000, time=0)
    held.delete(np.arange(10, 70_000))
    held.insert([pa.array([0])], 1, 1)
    assert len(held.records) == 10
    gone = np.array([60_000, -1, 3], np.int32)
    held.delete(gone)
    held.cancel_timers(gone, np.zeros(3, np.int64))
    assert held.drop_before(0, gone) == 0
    assert held.visible(gone).tolist() == [False, False, False]
    assert held.read(gone)["x"].to_pylist() == [None, None, None]
    with pytest.raises(ValueError, match="slot 60000 does not exist, there are 10: fetch slots with find or insert"):
        held.touch(gone[:1])
    assert held.live == 9
    held.validate()


@pytest.mark.parametrize("type_", [pa.int64(), pa.string()], ids=str)
def test_a_checkpoint_that_is_read_later_has_the_keys_that_lived_on(type_: pa.DataType) -> None:
    held = state(type_)
    fill(held, type_, 70_000, time=0)
    held.delete(np.arange(10, 70_000))
    readers = held.freeze(1)
    expected = {name: reader.read_all() for name, reader in held.freeze(2).items()}
    fill(held, type_, 20_000, time=5)
    assert len(held.records) == 20_000
    held.delete(np.arange(10))
    assert {name: reader.read_all() for name, reader in readers.items()} == expected
    assert expected["keys"].num_rows == expected["rows"].num_rows == 10
    held.validate()


def test_entries_of_rows_and_timers_that_do_not_exist_any_more_are_skipped() -> None:
    """A third of the entries of each range of times is of removed rows, whose numbers are beyond the table."""
    held, count, few = state(pa.int64()), 100_000, 10_000
    slots, _ = held.insert([pa.array(np.arange(count))], 0, 0)
    slots = slots.copy()
    times = np.where(slots < few, slots.astype(np.int64), np.where(slots < few + few // 2, 2 * (slots - few), 10**6))
    held.append(slots, times, pa.record_batch({"r": pa.array(times)}))
    held.set_timers(slots, times)
    held.delete(slots[few:])
    held.insert([pa.array([0])], 1, 1)
    assert len(held.row_records) < 2 * few
    held.validate()
    assert held.due(few // 2 - 1, limit=few)[0].tolist() == list(range(few // 2))
    assert held.next_due() == few // 2
    assert held.drop_before(few // 2) == few // 2
    held.validate()


class Leaving(Run):
    """Now and then most keys are deleted, or all."""

    largest = 40

    def advance(self) -> None:
        super().advance()
        if self.rng.random() < 0.5:
            stay = {key for key in self.model.values if self.rng.random() < self.rng.choice([0, 0.1])}
            slots = np.flatnonzero(self.state._in_use(np.arange(len(self.state.records)))).astype(np.int32)
            keys = self.key_list(self.state.keys(slots))
            gone = np.array([key not in stay for key in keys], bool)
            self.state.delete(slots[gone])
            for key in {*self.model.values, *[timer[0] for timer in self.model.timers]} - stay:
                self.model.delete(key)
