"""The moment of a kill: chosen by what the directory shows, and missed for reasons that are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dataflow.compare.killing import MissedKill, Moment, kill_at, kill_moment
from dataflow.compare.options import KillPoint, Scene
from dataflow.compare.subject import Subject
from dataflow.compare.trial import LocalTrial

NOT_YET, RIGHT, TOO_LATE = Moment.NOT_YET, Moment.RIGHT, Moment.TOO_LATE
NOTHING, FIRST, DONE, NEXT = Scene(), Scene(in_progress=1), Scene(complete=1), Scene(complete=1, in_progress=2)


@pytest.mark.parametrize(
    ("point", "moments"),
    [
        (KillPoint.IN_CHECKPOINT, [NOT_YET, NOT_YET, NOT_YET, RIGHT]),
        (KillPoint.AFTER_CHECKPOINT, [NOT_YET, NOT_YET, RIGHT, NOT_YET]),
        (KillPoint.BEFORE_CHECKPOINT, [NOT_YET, RIGHT, TOO_LATE, TOO_LATE]),
        (KillPoint.NONE, [NOT_YET, NOT_YET, NOT_YET, NOT_YET]),
    ],
)
def test_each_point_has_its_moment(point: KillPoint, moments: list[Moment]) -> None:
    assert [kill_moment(point, scene) for scene in (NOTHING, FIRST, DONE, NEXT)] == moments


def test_patience_waits_for_a_later_checkpoint() -> None:
    scenes = [Scene(complete=n, in_progress=n + 1) for n in (1, 4, 5)]
    assert [kill_moment(KillPoint.IN_CHECKPOINT, scene, 5) for scene in scenes] == [NOT_YET, NOT_YET, RIGHT]


def _trial(home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> LocalTrial:
    monkeypatch.syspath_prepend(home)
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{home}")
    options: dict[str, Any] = {"mode": "aligned", "every": "20ms", "parallelism": 2, "credit": 4} | changes
    return LocalTrial(subject=Subject("mine:made"), folder=str(folder), **options)


@pytest.mark.parametrize(
    ("answer", "limit", "changes", "reason"),
    [
        (NOT_YET, None, {}, "the job ended before the right moment for the kill"),
        (TOO_LATE, None, {}, "a checkpoint was complete before the kill"),
        (NOT_YET, 0, {}, "the right moment did not come within 0 us"),
        (
            NOT_YET,
            None,
            {"mode": "sideways"},
            "the job failed by itself with exit code 1 (dataflow.errors.Pipeline",
        ),
    ],
)
def test_a_missed_moment_is_told_with_its_reason(
    answer: Moment,
    limit: int | None,
    changes: dict[str, Any],
    reason: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {} if limit is None else {"limit": limit}
    missed = kill_at(_trial(home, tmp_path, monkeypatch, **changes), lambda _: answer, **limits)
    assert isinstance(missed, MissedKill)
    assert missed.reason.startswith(reason)


@pytest.mark.soak  # test_compare kills a process of each mode in a checkpoint
def test_a_killed_process_leaves_the_scene_that_was_seen(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = _trial(home, tmp_path, monkeypatch, slow={"counts": "200us"})
    scene = kill_at(trial, lambda scene: kill_moment(KillPoint.IN_CHECKPOINT, scene))
    assert isinstance(scene, Scene)
    assert trial.run("auto").restore_report.checkpoint == scene.complete  # type: ignore[union-attr]
