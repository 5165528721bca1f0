"""Generated modules on disk: compiled once, private, whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.errors import UnsafeCacheWarning
from operators.fusion import cache
from operators.fusion.kernel import Kernel

TEXT = """from numba import int64, njit


@njit(int64(int64), nogil=True, cache=True)
def twice(n):
    return 2 * n
"""
CHILD = f"""
import sys
from numba.core import event
from operators.fusion import cache
text = {TEXT!r}
with event.install_recorder("numba:compile") as compiled:
    module = cache.load(text)
print(module.twice(4), len(compiled.buffer) > 0, cache.compiled(text))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("BARRIERFLOW_CACHE", str(tmp_path / "kernels"))
    cache.folder.cache_clear()
    cache._warn.cache_clear()
    yield tmp_path / "kernels"
    cache.folder.cache_clear()


def child() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def said(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.strip()


def test_a_second_process_compiles_nothing(folder: Path) -> None:
    assert said(child()) == "8 True True"
    assert said(child()) == "8 False True"


def test_processes_that_begin_together_do_not_disturb_each_other(folder: Path) -> None:
    assert {said(process)[:2] for process in [child(), child(), child()]} == {"8 "}
    assert said(child()) == "8 False True"
    assert not list(folder.glob("*.tmp"))


def test_whatever_the_umask_is_the_next_process_uses_what_was_compiled(folder: Path) -> None:
    before = os.umask(0o002)
    try:
        cache.load(TEXT)
    finally:
        os.umask(before)
    assert cache.path_of(TEXT).parent == folder  # without a warning, which would be an error
    assert cache.compiled(TEXT)


def test_an_unsafe_cache_is_warned_of_where_a_kernel_is_made_not_where_it_is_loaded(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning):
        kernel = Kernel(TEXT)
    assert not kernel.waits


@pytest.mark.parametrize("damage", [b"", b"def twice(n): return 5\n", b"\xff\xfe"])
def test_a_damaged_file_is_written_again(folder: Path, damage: bytes) -> None:
    path = cache.path_of(TEXT)
    cache.load(TEXT)
    path.write_bytes(damage)
    assert cache.load(TEXT).twice(4) == 8
    assert path.read_text() == TEXT


def test_the_folder_is_the_users_alone(folder: Path) -> None:
    assert cache.path_of(TEXT).parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_may_write_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning, match=f"{folder} is ignored"):
        assert cache.folder() != folder
    assert cache.folder().stat().st_mode & 0o777 == 0o700
    assert cache.load(TEXT).twice(4) == 8


def test_a_job_is_warned_of_a_folder_that_others_may_write_when_it_is_started(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with flow.Pipeline("loops") as p:
        rows = p.source(op.from_arrow(pa.table({"n": range(10)})), name="rows").filter(flow.col("n") > 1)
        rows.with_columns(m=flow.col("n") * 2).sink(op.collect(), name="out")
    with pytest.warns(UnsafeCacheWarning):
        job = p.start()
    assert job.wait().warnings == ()


def test_a_link_is_not_used(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UnsafeCacheWarning):
        assert cache.folder() != folder


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, -1)
    with pytest.warns(UnsafeCacheWarning):
        assert cache.folder() != folder


def test_a_folder_that_others_may_rename_is_not_used(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning):
        assert cache.folder() != folder


def test_a_folder_in_the_temporary_directory_is_used(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert cache.folder() == folder


@pytest.mark.parametrize("which", ["barrierflow_loop_*.py", "__pycache__", "__pycache__/*.nbc", "__pycache__/*.nbi"])
def test_what_others_may_have_compiled_is_not_loaded(folder: Path, which: str) -> None:
    cache.load(TEXT)
    (planted,) = folder.glob(which)
    planted.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning, match=f"{planted} is ignored"):
        assert cache.path_of(TEXT).parent != folder
    assert cache.load(TEXT).twice(4) == 8, "without another warning"
    assert not cache.path_of(TEXT).is_relative_to(folder)


def test_a_folder_that_cannot_be_made_is_not_used(folder: Path, tmp_path: Path) -> None:
    folder.write_text("a file is in the way")
    assert cache.folder().is_dir()


def test_the_users_cache_is_where_the_system_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BARRIERFLOW_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cache.folder.cache_clear()
    assert cache.folder() == tmp_path / "barrierflow" / "kernels"
    cache.folder.cache_clear()


def test_other_texts_have_other_files(folder: Path) -> None:
    assert cache.path_of(TEXT) != cache.path_of(TEXT + "\n")
    assert not cache.compiled(TEXT)
