"""Every barrier gets an answer, in every interleaving of small jobs with several checkpoints, up to their end."""

from __future__ import annotations

import pytest

from dataflow.contracts.checkpointing import Mode
from dataflow.protocol.coordinator_actions import AbortTasks, Inject
from dataflow.protocol.events import BarrierKind
from tests.protocol.barrier_model import ModelTask, Setting, interleavings
from tests.protocol.faults_put_back import pass_over_in_silence
from tests.seeds import in_soak

PAIR = {"s": "", "j": "s"}
FORK = {"s": "", "j": "s", "k": "s"}
JOIN = {"s": "", "t": "", "j": "st"}
LINE = {"s": "", "j": "s", "k": "j"}
CHECKPOINT, SAVEPOINT = BarrierKind.CHECKPOINT, BarrierKind.SAVEPOINT
OVERTAKING = (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)


@pytest.mark.parametrize(
    "mode", [Mode.ALIGNED, *in_soak(Mode.UNALIGNED), Mode.UNALIGNED_PERSISTED, *in_soak(Mode.ALIGNED_TIMEOUT)]
)
def test_a_cancel_that_overtakes_a_lower_barrier_leaves_no_checkpoint_without_an_answer(mode: Mode) -> None:
    assert interleavings(Setting(mode, PAIR, fails=frozenset({("s", 2)}))) > 1_000


def test_a_savepoint_that_a_checkpoint_overtakes_gets_an_answer() -> None:
    assert interleavings(Setting(Mode.UNALIGNED_PERSISTED, PAIR, (SAVEPOINT, CHECKPOINT))) > 1_000


def test_a_barrier_that_is_ignored_in_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pass_over_in_silence(monkeypatch, ModelTask)
    with pytest.raises(AssertionError, match="j has not settled checkpoint 1"):
        interleavings(Setting(Mode.UNALIGNED_PERSISTED, PAIR, (SAVEPOINT, CHECKPOINT), fails=frozenset({("j", 2)})))


def test_a_cancel_that_does_not_reach_a_task_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = ModelTask._receive

    def receive_some(task: ModelTask, message: Inject | AbortTasks) -> None:
        if task.name != "j" or isinstance(message, Inject):
            receive(task, message)

    monkeypatch.setattr(ModelTask, "_receive", receive_some)
    with pytest.raises(AssertionError, match="j has not settled checkpoint 1"):
        interleavings(Setting(Mode.ALIGNED, PAIR, (CHECKPOINT,), fails=frozenset({("s", 1)})))


@pytest.mark.parametrize(
    "mode", [*in_soak(Mode.ALIGNED, Mode.UNALIGNED, Mode.UNALIGNED_PERSISTED), Mode.ALIGNED_TIMEOUT]
)
def test_barriers_that_find_put_back_rows_get_an_answer(mode: Mode) -> None:
    assert interleavings(Setting(mode, PAIR, (SAVEPOINT, CHECKPOINT), put_back={"j": 2})) > 1_000


def test_a_barrier_that_aligns_ahead_of_put_back_rows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelTask, "_poll", lambda task, gate: gate.poll(task._job.now))
    with pytest.raises(AssertionError, match="aligns ahead of put-back rows"):
        interleavings(Setting(Mode.ALIGNED, PAIR, (CHECKPOINT,), put_back={"j": 2}))


@pytest.mark.soak
@pytest.mark.parametrize("fails", [(), (("s", 2),), (("j", 1),)])
@pytest.mark.parametrize("kinds", [(CHECKPOINT,) * 2, (SAVEPOINT, CHECKPOINT), (CHECKPOINT,) * 3])
@pytest.mark.parametrize("topology", [FORK, JOIN, LINE], ids=["fork", "join", "line"])
@pytest.mark.parametrize("mode", Mode)
def test_the_same_in_larger_jobs(
    mode: Mode, topology: dict[str, str], kinds: tuple[BarrierKind, ...], fails: tuple[tuple[str, int], ...]
) -> None:
    setting = Setting(mode, topology, kinds, max_concurrent=len(kinds), fails=frozenset(fails))
    assert interleavings(setting, limit=30_000) > 1_000
    one_edge = Setting(mode, topology, kinds, len(kinds), frozenset(fails), aligned_edges="s")
    assert mode not in OVERTAKING or interleavings(one_edge, limit=30_000) > 1_000
