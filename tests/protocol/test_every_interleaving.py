"""Every barrier gets an answer, in every interleaving of small jobs with several checkpoints, up to their end."""

from __future__ import annotations

import pytest

from dataflow.checkpointing import Mode
from dataflow.events import BarrierKind
from dataflow.protocol.actions import Ignore
from dataflow.protocol.newest import NewestOnly
from tests.protocol.barrier_model import Setting, interleavings

PAIR = {"s": "", "j": "s"}
FORK = {"s": "", "j": "s", "k": "s"}
JOIN = {"s": "", "t": "", "j": "st"}
LINE = {"s": "", "j": "s", "k": "j"}
CHECKPOINT, SAVEPOINT = BarrierKind.CHECKPOINT, BarrierKind.SAVEPOINT
OVERTAKING = (Mode.UNALIGNED_PERSISTED, Mode.ALIGNED_TIMEOUT)


@pytest.mark.parametrize("mode", Mode)
def test_a_cancel_that_overtakes_a_lower_barrier_leaves_no_checkpoint_without_an_answer(mode: Mode) -> None:
    assert interleavings(Setting(mode, PAIR, fails=frozenset({("s", 2)}))) > 1_000


def test_a_savepoint_that_a_checkpoint_overtakes_gets_an_answer() -> None:
    assert interleavings(Setting(Mode.UNALIGNED_PERSISTED, PAIR, (SAVEPOINT, CHECKPOINT))) > 1_000


def test_a_barrier_that_is_ignored_in_silence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignores(handler: NewestOnly[object], checkpoint: int, actions: list[object]) -> bool:
        is_new = checkpoint > handler._latest
        handler._latest = max(handler._latest, checkpoint)
        actions += [] if is_new else [Ignore(checkpoint)]
        return is_new

    monkeypatch.setattr(NewestOnly, "_succeeds", ignores)
    with pytest.raises(AssertionError, match="no answer of"):
        interleavings(Setting(Mode.UNALIGNED_PERSISTED, PAIR, (SAVEPOINT, CHECKPOINT)))


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
