"""Directories that were written before, with a base and deltas of every kind of operator that keeps state, restored."""

from __future__ import annotations

from pathlib import Path

import pytest

import dataflow as flow
from dataflow.runners.simulated import SimulatedRunner
from tests.golden.archives import unpack
from tests.golden.states import KEPT, MODES, Answer, answer, pipeline, states_with_deltas
from tests.keeping_state import STREAMS


@pytest.fixture(scope="module")
def expected() -> Answer:
    return answer(pipeline().run(SimulatedRunner(0), parallelism=2))


@pytest.mark.parametrize("mode", MODES)
def test_the_kept_state_of_every_operator_continues(mode: str, expected: Answer, tmp_path: Path) -> None:
    directory = unpack(KEPT.format(mode), tmp_path) / "ckpt"
    store = flow.DirectoryStore(directory)
    last = store.checkpoints()[-1]
    assert len({task.rpartition("[")[0] for task in states_with_deltas(directory, last)}) >= len(STREAMS) - 2
    settings = flow.Checkpointing(directory, mode=mode)
    result = pipeline().run(SimulatedRunner(1), parallelism=2, checkpoint=settings, restore="latest")
    assert result.restore_report is not None
    assert bool(result.restore_report.in_flight) == (mode == "unaligned-persisted")
    found = answer(result)
    assert {name: rows for name, rows in found.items() if rows != expected[name]} == {}
