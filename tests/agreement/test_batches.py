"""A batch gives what a stream gives where no row of the stream is late, and the same on every runner.

The long look, 300 recipes: ``pytest -m soak tests/agreement/test_batches.py``.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import dataflow as flow
from dataflow.runners.faults import Faults
from dataflow.runners.run_result import RunResult
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.random_pipelines import Recipe, recipes
from tests.agreement.shapes.scene import Scene
from tests.agreement.test_random_pipelines import scene_of
from tests.seeds import part_of_the_examples

PATIENT = list(HealthCheck)


def in_a_batch(scene: Scene, runner: object = "local", parallelism: int = 1) -> RunResult:
    return scene.pipeline.run(runner, execution="batch", parallelism=parallelism)


def check_rows_come_once(found: RunResult, scene: Scene) -> None:
    """Raise AssertionError unless each row is there once: no update of another one, and no change taken back."""
    assert found.late == 0
    for sink, rows in scene.sinks.items():
        table = found.table(sink)
        if rows.last is not None:
            keys = table.select(rows.last).to_pylist()
            assert len({repr(key) for key in keys}) == len(keys), sink
        assert set(table["change"].to_pylist() if "change" in table.schema.names else []) <= {1}, sink


@settings(part_of_the_examples(25), deadline=None, suppress_health_check=PATIENT)
@given(recipes(), st.integers(0, 1_000))
def test_a_batch_gives_what_a_stream_gives(recipe: Recipe, seed: int) -> None:
    assume(not recipe.late)
    scene = scene_of([recipe])
    expected, found = scene.pipeline.run(), in_a_batch(scene)
    agree(found, expected, scene)
    check_rows_come_once(found, scene)
    agree(in_a_batch(scene, flow.SimulatedRunner(seed, Faults(skew=0.3)), parallelism=2), expected, scene)


@settings(part_of_the_examples(15), deadline=None, suppress_health_check=PATIENT)
@given(recipes(), st.integers(0, 1_000))
def test_a_batch_has_no_late_rows_however_its_rows_are_cut(recipe: Recipe, seed: int) -> None:
    assume(recipe.late)
    scene = scene_of([recipe])
    expected = in_a_batch(scene)
    check_rows_come_once(expected, scene)
    agree_in_all(in_a_batch(scene, parallelism=3), expected, scene)
    agree_in_all(in_a_batch(scene, flow.SimulatedRunner(seed, Faults(skew=0.3)), parallelism=2), expected, scene)


@pytest.mark.soak
@settings(max_examples=300, deadline=None, suppress_health_check=PATIENT)
@given(recipes(), st.integers(0, 1_000), st.sampled_from([1, 2, 3]))
def test_batches_in_the_long_run(recipe: Recipe, seed: int, parallelism: int) -> None:
    scene = scene_of([recipe])
    found = in_a_batch(scene, parallelism=parallelism)
    check_rows_come_once(found, scene)
    if not recipe.late:
        agree(found, scene.pipeline.run(), scene)
    agree_in_all(in_a_batch(scene, flow.SimulatedRunner(seed, Faults(skew=0.3)), parallelism=2), found, scene)
