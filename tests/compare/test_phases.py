"""The sentences before each phase say what happens next, and why."""

from __future__ import annotations

import pytest

from dataflow.compare.options import KillPoint, Options, RunnerName, Scene
from dataflow.compare.phases import describe_kill, describe_mode, describe_restore
from dataflow.contracts.checkpointing import Mode


@pytest.mark.parametrize("runner", RunnerName)
def test_a_mode_is_introduced_with_its_guarantee_and_its_effect_on_rows(runner: RunnerName) -> None:
    for mode in runner.modes:
        sentence = describe_mode(mode, 1, 4, runner)
        assert sentence.startswith(f"Mode 1 of 4, {mode}: ")
        assert "deliver" in sentence


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (KillPoint.IN_CHECKPOINT, "while a checkpoint is half written. This is the worst moment, because"),
        (KillPoint.AFTER_CHECKPOINT, "right after a checkpoint is complete, so that"),
        (KillPoint.BEFORE_CHECKPOINT, "before any checkpoint is complete, so that"),
    ],
)
def test_a_kill_says_when_and_why(point: KillPoint, reason: str) -> None:
    assert f"killed with SIGKILL {reason}" in describe_kill(Mode.ALIGNED, Options(kill=point), 1, "")


def test_a_kill_on_spark_is_in_a_micro_batch() -> None:
    sentence = describe_kill(Mode.ALIGNED, Options(runner=RunnerName.SPARK), 1, "")
    assert "driver, JVM and workers of a second run are killed with SIGKILL in the middle of a micro-batch" in sentence


def test_another_attempt_says_why_the_last_one_failed() -> None:
    sentence = describe_kill(Mode.ALIGNED, Options(), 2, "the job ended before the right moment for the kill")
    assert "attempt 2 of 5, because the last one failed: the job ended" in sentence


@pytest.mark.parametrize(
    ("scene", "words"),
    [
        (Scene(5, 6), "left checkpoint 5 complete and checkpoint 6 half written. The job resumes from checkpoint 5"),
        (Scene(5), "left checkpoint 5 complete. The job resumes from checkpoint 5"),
        (Scene(0, 1), "left no complete checkpoint, so the job starts from the beginning"),
    ],
)
def test_a_restore_says_what_the_kill_left(scene: Scene, words: str) -> None:
    assert words in describe_restore(Mode.ALIGNED, scene)
