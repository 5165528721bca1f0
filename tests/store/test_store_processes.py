"""The directory store between real processes, with real limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dataflow.errors import DirectoryInUse
from dataflow.store.directory import DirectoryStore
from dataflow.store.manifest import Manifest

Save = Callable[..., Manifest]

HOLD = """
import sys
from dataflow.store.directory import DirectoryStore
store = DirectoryStore(sys.argv[1])
store.open("the other run")
store.write(3, "task", b"unfinished")
print("held", flush=True)
sys.stdin.read()
"""

LIMITED = """
import resource, signal, sys
from dataflow.errors import StoreError
from dataflow.store.directory import DirectoryStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with DirectoryStore(sys.argv[1]) as store:
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    try:
        store.write(1, "big", bytes(10_000))
    except StoreError as error:
        print(error)
    assert store.read(1, store.write(1, "small", bytes(4_000))) == bytes(4_000)
    print(store.folder(1).path.exists(), sorted(path.name for path in store.folder(1).path.iterdir()))
"""


def test_a_directory_held_by_another_process_is_refused_until_that_is_killed(tmp_path: Path, save: Save) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        store = DirectoryStore(tmp_path)
        with pytest.raises(DirectoryInUse, match=rf"in use by process {holder.pid} on .* \(run 'the other run'"):
            store.open()
        holder.kill()
        holder.wait()
        with store:
            assert store.remove_orphans() == [3]
            save(store, store.highest_id() + 1)
            assert store.checkpoints() == [4]


def test_a_file_size_limit_is_a_store_error_and_leaves_no_torn_part(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "the file size limit is reached: raise it" in run.stdout
    assert run.stdout.endswith("True ['small.1.0.part']\n")
