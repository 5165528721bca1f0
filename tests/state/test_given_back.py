"""State that lost all its keys gives their memory back, and continues as new state does."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from dataflow.state import keyed_state
from dataflow.state.keyed_state import KeyedState, Ttl
from tests.state.test_keyed_state import KEYS, SHAPES, CalmRun, run

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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", KEYS)
def test_random_operations_agree_with_the_model_if_memory_is_given_back(
    monkeypatch: pytest.MonkeyPatch, kind: str, shape: str
) -> None:
    given: list[KeyedState] = []
    give_back = KeyedState._give_back
    monkeypatch.setattr(keyed_state, "_MANY", 1)
    monkeypatch.setattr("dataflow.state.changes._FEW", 2)
    monkeypatch.setattr(KeyedState, "_give_back", lambda one: (given.append(one), give_back(one)))
    for seed in (1, 2):
        run(kind, 5, seed, 150, shape, Leaving)
    assert given, "no state was ever empty"


class Leaving(CalmRun):
    """Now and then all keys are deleted."""

    def advance(self) -> None:
        super().advance()
        if self.rng.random() < 0.3:
            for stored in self.stored.values():
                stored.read()
            self.state.delete(np.arange(len(self.state.records)))
            for key in {*self.model.values, *[timer[0] for timer in self.model.timers]}:
                self.model.delete(key)
