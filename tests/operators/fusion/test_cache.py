"""Generated modules: their loops are compiled once a machine."""

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
from dataflow.kernel_cache.folders import forget_folders
from operators.fusion import cache
from operators.fusion.kernel import Kernel
from tests.seeds import in_soak

TEXT = """from numba import int64

from dataflow.kernel_cache.decorator import kernel


@kernel(int64(int64))
def twice(n):
    return 2 * n
"""
CHILD = f"""
import sys
from numba.core import event
from dataflow.kernel_cache.folders import forget_folders
from operators.fusion import cache
text = {TEXT!r}
with event.install_recorder("numba:compile") as compiled:
    module = cache.load(text)
print(module.twice(4), len(compiled.buffer) > 0, cache.compiled(text))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("BARRIERFLOW_CACHE", str(tmp_path / "kernels"))
    forget_folders()
    yield tmp_path / "kernels"
    forget_folders()


def child() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True, env=dict(os.environ))


def said(process: subprocess.Popen[str]) -> str:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.strip()


def test_a_second_process_compiles_nothing(folder: Path) -> None:
    assert said(child()) == "8 True True"
    assert said(child()) == "8 False True"


@pytest.mark.parametrize("processes", [2, *in_soak(3)])
def test_processes_that_begin_together_do_not_disturb_each_other(processes: int, folder: Path) -> None:
    begun = [child() for _ in range(processes)]
    assert {said(process)[:2] for process in begun} == {"8 "}
    assert said(child()) == "8 False True"
    assert not list(folder.glob("*.tmp"))


def test_an_unsafe_cache_is_warned_of_where_a_kernel_is_made_not_where_it_is_loaded(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning):
        kernel = Kernel(TEXT)
    assert not kernel.waits


@pytest.mark.parametrize("damage", [b"cut short", *in_soak(b"", b"\x80\x05K\x01.")])
def test_a_damaged_file_is_written_again(folder: Path, damage: bytes) -> None:
    (name,) = cache.file_names(TEXT)
    cache.load(TEXT)
    (folder / name).write_bytes(damage)
    assert cache.load(TEXT).twice(4) == 8
    assert len((folder / name).read_bytes()) > len(damage)
    assert said(child()) == "8 False True"


def test_a_job_is_warned_of_a_folder_that_others_may_write_when_it_is_started(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with flow.Pipeline("loops") as p:
        rows = p.source(op.from_arrow(pa.table({"n": range(10)})), name="rows").filter(flow.col("n") > 1)
        rows.with_columns(m=flow.col("n") * 2).sink(op.collect(), name="out")
    with pytest.warns(UnsafeCacheWarning):
        job = p.start()
    assert job.wait().warnings == ()


def test_a_text_without_loops_is_not_compiled(folder: Path) -> None:
    assert not cache.compiled("number = 1\n")


def test_other_texts_have_other_files(folder: Path) -> None:
    assert cache.file_names(TEXT) != cache.file_names(TEXT + "\n")
    assert not cache.compiled(TEXT)
