"""State that lost all its keys gives their memory back, and continues as new state does."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state.free_numbers import FreeNumbers
from dataflow.state.keyed_state import KeyedState, Ttl
from tests.state.test_keyed_state import KEYS, SHAPES, Run, run

X = pa.schema({"x": pa.int64(), "t": pa.string()})


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


@pytest.mark.parametrize("ttl", [None, 5])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
def test_random_operations_agree_with_the_model_if_memory_is_given_back(
    monkeypatch: pytest.MonkeyPatch, kind: str, shape: str, ttl: int | None
) -> None:
    sorted_: list[bool] = []
    sort = FreeNumbers.sort
    monkeypatch.setattr("dataflow.state.free_numbers.MANY", 1)
    monkeypatch.setattr("dataflow.state.changes._FEW", 2)
    monkeypatch.setattr(FreeNumbers, "sort", lambda *arguments: sorted_.append(sort(*arguments)) or sorted_[-1])
    for seed in (1, 2, 3):
        run(kind, ttl, seed, 150, shape, Leaving)
    assert sorted_, "there were never few keys of many"


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
