"""Rows before a row that found its key expired do not count."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from dataflow.state.index import Slots
from operators.stateful.lives import Lives


def counts(slots: Slots, fresh: npt.NDArray[np.bool_]) -> list[bool]:
    """The rule, row by row."""
    rows = list(zip(slots.tolist(), fresh.tolist(), strict=True))
    return [(slot, True) not in rows[i + 1 :] for i, (slot, _) in enumerate(rows)]


@pytest.mark.parametrize("seed", range(5))
def test_each_batch_is_judged_by_itself(seed: int) -> None:
    draw, lives = np.random.default_rng(seed), Lives()
    for _ in range(50):
        slots = draw.integers(0, 1 + draw.integers(20), draw.integers(30)).astype(np.int32)
        fresh = draw.random(len(slots)) < 0.3
        found, expected = lives.lasting(slots, fresh, 20), counts(slots, fresh)
        assert (found is None) == all(expected)
        assert found is None or found.tolist() == expected


def test_memory_for_slots_is_kept_between_calls_and_follows_their_number() -> None:
    lives, slots, fresh = Lives(), np.array([0, 5, 0], np.int32), np.ones(3, np.bool_)
    memory = []
    for used in (6, 1_000_000, 900_000, 2_000_000, 6):
        assert lives.lasting(slots, fresh, used) is not None
        memory.append(lives.nbytes)
    assert memory[1] == memory[2] == memory[3] == 8_000_000, "a call costs what the batch costs"
    assert memory[4] < 1_000
