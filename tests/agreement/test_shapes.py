"""Pipelines of every shape give the same tables on threads and on seeded schedules.

Each shape is a job of its own: a scheduler that chooses among few tasks chooses one that has work sooner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

import dataflow as flow
from dataflow.runners.faults import Faults
from tests.agreement.engines import agree, agree_in_all
from tests.agreement.shapes.keyed import KEYED, KEYS
from tests.agreement.shapes.rowwise import ROWWISE
from tests.agreement.shapes.scene import Scene, Shape, pictured
from tests.agreement.shapes.sessions import SESSIONS
from tests.agreement.shapes.signed import SIGNED
from tests.agreement.shapes.timed import TIMED
from tests.agreement.shapes.triggered import TRIGGERED
from tests.agreement.shapes.windowed import WINDOWED
from tests.seeds import each_once

pytestmark = pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")

KINDS: Mapping[str, Sequence[Shape]] = {
    "rowwise": ROWWISE,
    "keyed": KEYED,
    "signed": SIGNED,
    "timed": TIMED,
    "windowed": WINDOWED,
    "triggered": TRIGGERED,
    "sessions": SESSIONS,
    "keys": KEYS,
}
FEW = 280
"""Rows of a source with times, in seven batches. Those of a kind in one job have more than twice as many."""
SHAPES = [
    shape
    for of_each_kind in zip_longest(*(shapes for kind, shapes in KINDS.items() if kind != "keys"))
    for shape in of_each_kind
    if shape is not None
]
"""The first one of each kind, then the second ones, and so on, so that the default run has some of each."""


def two_tasks(scene: Scene, local: flow.RunResult) -> None:
    """Compare with two threads a vertex."""
    agree(scene.pipeline.run(parallelism=2, timeout="60s"), local, scene)


def a_schedule(scene: Scene, local: flow.RunResult) -> None:
    """Compare with a seeded schedule of the same tasks."""
    agree_in_all(scene.pipeline.run(flow.SimulatedRunner(seed=1), parallelism=1), local, scene)


def a_schedule_of_two_tasks(scene: Scene, local: flow.RunResult) -> None:
    """Compare with a seeded schedule of two tasks a vertex, some of them slow."""
    agree(scene.pipeline.run(flow.SimulatedRunner(1, Faults(skew=0.3)), parallelism=2), local, scene)


def another_schedule_of_two_tasks(scene: Scene, local: flow.RunResult) -> None:
    """Compare with another seed, which also draws which batches are joined, kept back and folded."""
    agree(scene.pipeline.run(flow.SimulatedRunner(2, Faults(skew=0.3, joins=1.0)), parallelism=2), local, scene)


COMPARISONS = [two_tasks, a_schedule, a_schedule_of_two_tasks, another_schedule_of_two_tasks]
Comparison = Callable[[Scene, flow.RunResult], None]


@pytest.mark.parametrize(("shape", "compare"), each_once(SHAPES, COMPARISONS, default=22))
def test_tasks_and_schedules_give_what_one_thread_a_vertex_gives(
    shape: Shape, compare: Comparison, tmp_path: Path
) -> None:
    scene = pictured(shape.__name__, [shape], tmp_path, clicks=FEW)
    compare(scene, scene.pipeline.run(parallelism=1, timeout="60s"))


@pytest.mark.soak
@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_shapes_of_a_kind_in_one_job_agree(kind: str, compare: Comparison, tmp_path: Path) -> None:
    """Dozens of aggregates in one job take seconds to take turns."""
    scene = pictured(kind, KINDS[kind], tmp_path)
    compare(scene, scene.pipeline.run(parallelism=1, timeout="60s"))
