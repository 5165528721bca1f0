"""The positions in splits, as they are stored between micro-batches."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from dataflow.contracts.source import Split
from dataflow.errors import CheckpointDamaged
from dataflow.runners.spark.split_positions import SplitPositions
from dataflow.runtime.task.parts import TaskState
from dataflow.runtime.task.task_input import SplitState


def listed_of(count: int) -> list[Split]:
    return [Split(f"file-{number}", {"rows": 10}) for number in range(count)]


def stored(positions: SplitPositions) -> SplitPositions:
    """Return the positions as the next micro-batch reads them."""
    inlet = msgspec.json.decode(msgspec.json.encode(positions.stored()))
    return SplitPositions.of(positions.listed, TaskState("in[0]", inlet=inlet))


def moved(state: SplitState, rng: random.Random) -> None:
    """Read some rows of a split, or the rest."""
    state.rows = rng.randint((state.rows or 0), 10)
    state.offset = state.rows
    if state.rows == 10 or rng.random() < 0.1:
        state.done, state.rows = True, 10


@pytest.mark.parametrize("seed", range(100))
def test_positions_are_those_that_the_micro_batches_have_left(seed: int) -> None:
    rng = random.Random(seed)
    whole = [SplitState(split) for split in listed_of(rng.randint(1, 30))]  # as a checkpoint of a local run has them
    inlet: Any = {"splits": [state.to_json() for state in whole]}
    positions = SplitPositions.of([state.split for state in whole], TaskState("in[0]", inlet=inlet))
    for _ in range(rng.randint(1, 12)):
        going_on = [number for number, state in enumerate(whole) if not state.done]
        assert positions.live == going_on
        states = positions.states()
        assert states == [whole[number] for number in going_on]
        if not going_on:
            break
        for number in rng.sample(going_on, rng.randint(0, len(going_on))):
            moved(whole[number], rng)
        for place, number in enumerate(going_on):
            states[place] = SplitState(**{name: getattr(whole[number], name) for name in SplitState.__slots__})
        turn = rng.randrange(len(going_on))
        positions = stored(positions.after(states, turn))
        assert positions.rows == sum(state.rows or 0 for state in whole)
        assert positions.turn == going_on[turn]
        later = [number for number in positions.live if number >= going_on[turn]] or positions.live
        assert not later or positions.live[positions.place_of(positions.turn)] == later[0]
        assert [(s.done, s.rows) for s in positions.all()] == [(s.done, s.rows) for s in whole]
        assert positions.read_of(going_on) == [whole[number] for number in going_on]


def test_the_size_does_not_depend_on_the_splits_that_have_ended() -> None:
    positions, sizes = SplitPositions(listed_of(5_000)), []
    for _ in range(100):
        states = positions.states()
        for state in states[:50]:
            state.done, state.offset, state.rows = True, 10, 10
        positions = stored(positions.after(states, 0))
        sizes.append(len(msgspec.json.encode(positions.stored())))
    assert positions.live == []
    assert max(sizes) < min(sizes) * 1.5


def test_positions_beyond_the_splits_are_refused() -> None:
    stored = SplitPositions(listed_of(3), ended=[(0, 4)]).stored()
    with pytest.raises(CheckpointDamaged, match=r"the positions of in\[0\] name split number 3, but there are 3"):
        SplitPositions.of(listed_of(3), TaskState("in[0]", inlet=stored))
    with pytest.raises(CheckpointDamaged, match=r"the positions of in\[0\]"):
        SplitPositions.of(listed_of(3), TaskState("in[0]", inlet={"read": {"ended": "all"}}))
    others: Any = {"splits": [SplitState(split).to_json() for split in listed_of(2)]}
    with pytest.raises(CheckpointDamaged, match="are of 2 splits, but the job has 3 others"):
        SplitPositions.of(listed_of(3), TaskState("in[0]", inlet=others))
