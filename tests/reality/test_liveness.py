"""A process of a campaign fails if its job leaves a checkpoint unsettled."""

from __future__ import annotations

from pathlib import Path

from tests.reality.harness import spawn

SCRIPT = """
from dataflow import LocalRunner
from dataflow.runtime.task.task import Task
from tests import liveness
from tests.runtime.job.test_liveness import failing

liveness.LONGEST = 200_000
Task._decline = lambda *given: None
with failing(LocalRunner()) as job:
    job.wait()
"""


def test_a_process_whose_task_declines_without_a_word_fails(tmp_path: Path) -> None:
    script = tmp_path / "unsettled.py"
    script.write_text(SCRIPT)
    with spawn(script=script) as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "fails[0] has not settled checkpoint 1" in errors
