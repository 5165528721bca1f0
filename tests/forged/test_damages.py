"""What is declared of a piece of state is checked before anything is made of it, and errors name operator and piece."""

from __future__ import annotations

import warnings
from itertools import islice
from pathlib import Path

import pytest

from tests.forged.damages import damages, read_states, wrong_outcome
from tests.forged.pipelines import PIPELINES, prepare

MORE = [pytest.param(name, 40, marks=pytest.mark.extended) for name in ("sessions", "joined", "processed")]
SOAK = [pytest.param(name, 1, marks=pytest.mark.soak) for name in sorted(PIPELINES)]


@pytest.mark.parametrize(("name", "step"), [("written", 20), *MORE, *SOAK])
def test_damage_of_a_piece_is_refused_by_the_name_of_operator_and_piece(name: str, step: int, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepare(tmp_path, name)
        checkpoint, states = read_states(tmp_path)
        chosen = list(islice(damages(states), 0, None, step))
        wrong = [wrong_outcome(tmp_path, name, checkpoint, damage) for damage in chosen]
    assert len(chosen) > 9
    assert [each for each in wrong if each] == []


def test_state_that_is_missing_and_a_table_too_many_are_refused_though_sessions_convert_them(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepare(tmp_path, "sessions")
        checkpoint, states = read_states(tmp_path)
        chosen = [d for d in damages(states) if d.piece == "state" and d.what in ("missing", "0: more tables")]
        assert len(chosen) > 3
        assert [wrong_outcome(tmp_path, "sessions", checkpoint, damage) for damage in chosen] == [None] * len(chosen)
