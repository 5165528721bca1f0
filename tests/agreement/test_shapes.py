"""Pipelines of every shape give the same tables on threads and on seeded schedules.

They run kind by kind: a scheduler that chooses among few tasks chooses one that has work sooner.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from tests.seeds import in_soak

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
SOME = [*(kind for kind in KINDS if kind != "keys"), *in_soak("keys")]
"""Dozens of aggregates in one job take seconds to take turns."""


@pytest.fixture(scope="module", params=SOME)
def some(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """The shapes of one kind."""
    return pictured(request.param, KINDS[request.param], tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def threads(some: Scene) -> flow.RunResult:
    """What they give on threads, one a task."""
    return some.pipeline.run(parallelism=1, timeout="60s")


def test_two_tasks_give_what_one_gives(some: Scene, threads: flow.RunResult) -> None:
    agree(some.pipeline.run(parallelism=2, timeout="60s"), threads, some)


def test_a_seeded_schedule_gives_what_threads_give(some: Scene, threads: flow.RunResult) -> None:
    agree_in_all(some.pipeline.run(flow.SimulatedRunner(seed=1), parallelism=1), threads, some)


def test_a_seeded_schedule_of_two_tasks_gives_what_threads_give(some: Scene, threads: flow.RunResult) -> None:
    agree(some.pipeline.run(flow.SimulatedRunner(1, Faults(skew=0.3)), parallelism=2), threads, some)


@pytest.mark.soak
def test_another_schedule_of_two_tasks_gives_what_threads_give(some: Scene, threads: flow.RunResult) -> None:
    agree(some.pipeline.run(flow.SimulatedRunner(2, Faults(skew=0.3)), parallelism=2), threads, some)
