"""A process that is killed while it copies a savepoint: there is none, or a whole one, and the next process goes on."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import dataflow as flow
from dataflow.store.export import Export
from dataflow.store.folder import CheckpointFolder


@pytest.mark.extended
def test_a_killed_copy_is_no_savepoint_or_a_whole_one_and_the_directory_can_be_used_again(tmp_path: Path) -> None:
    draws, seen = random.Random(50), set[bool]()
    for _ in range(12):
        command = [sys.executable, "-m", "tests.reality.saving", str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for _ in range(1 + draws.randrange(3)):
                assert process.stdout.readline() == "saving\n"
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=draws.uniform(0, 0.05))
            process.kill()
        folder = CheckpointFolder(tmp_path / "saved")
        seen.add(folder.exists)
        if folder.exists:
            assert folder.verify().kind == "savepoint"
        else:
            store = flow.DirectoryStore(tmp_path / "ckpt")
            export = Export(tmp_path / "saved")  # the lock of the dead process is gone
            export.reserve()
            if store.checkpoints():
                export.copy(store, store.checkpoints()[-1])
                assert folder.verify().kind == "savepoint"
            export.release()
    assert seen == {False, True}
