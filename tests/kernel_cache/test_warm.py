"""``barrierflow warm``, and a job that finds loops missing. Both run in processes that have not imported kernels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from dataflow.kernel_cache.decorator import _StoredLoop
from dataflow.kernel_cache.file_names import file_name, loops_in, package_modules, source_of_module
from dataflow.kernel_cache.folders import package_folders

ROOT = Path(__file__).parents[2]
JOB = """
import sys
import pyarrow as pa
import dataflow as flow, operators as op
with flow.Pipeline("keyed") as p:
    rows = p.source(op.generate({"key": op.sequence()}, rows=2_000, batch_rows=100), name="rows")
    rows.key_by("key").agg(op.count().alias("n"), name="counts").sink(op.collect(), name="out")
with p.start(parallelism=2, checkpoint=flow.Checkpointing(sys.argv[1], every="10ms"), restore="auto") as job:
    job.wait()
print(job.restore_report is not None)
"""
SMALL = ("dataflow.state.kernels.hashing", "dataflow.state.kernels.partition")
"""Modules that are compiled fast, and that a job with two subtasks needs."""


def loops(module: str) -> list[str]:
    return loops_in(source_of_module(module))


@pytest.fixture(scope="module")
def complete() -> Path:
    """The folder of this package's kernels, with all of them."""
    run("-m", "dataflow", "warm")
    return package_folders().read[0].path


@pytest.fixture
def partial(complete: Path, tmp_path: Path) -> Path:
    """A folder without the kernels of ``SMALL``."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for module in package_modules():
        for loop in loops(module) if module not in SMALL else ():
            shutil.copy(complete / file_name(module, loop), folder)
    return folder


def run(*arguments: str | Path, cache: Path | None = None, code: int = 0) -> tuple[str, str]:
    """Run Python; return what it prints on standard output and standard error."""
    child = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT)} | ({} if cache is None else {"BARRIERFLOW_CACHE": str(cache)}),
    )  # fmt: skip
    assert child.returncode == code, child.stderr
    return child.stdout.strip(), child.stderr.strip()


def test_every_kernel_is_found_in_the_text_of_its_module_and_has_the_cache() -> None:
    stored = {
        module: [
            name
            for name, value in vars(import_module(module)).items()
            if isinstance(getattr(value, "_cache", None), _StoredLoop) and value.py_func.__module__ == module
        ]
        for module in package_modules()
    }
    assert stored == {module: loops(module) for module in package_modules()}
    assert sum(map(len, stored.values())) > 40


def test_no_loop_is_in_numbas_own_cache() -> None:
    sources = [path for package in ("dataflow", "operators") for path in (ROOT / package).rglob("*.py")]
    assert [path for path in sources if re.search(r"njit\(.*cache=True", path.read_text(), re.DOTALL)] == []


def test_a_complete_cache_is_left_as_it_is(complete: Path) -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in complete.glob("*.nbc"))
    said, errors = run("-m", "dataflow", "warm")
    assert re.fullmatch(rf"all \d+ loops were compiled before: {complete}", said)
    assert errors == ""
    assert before == sorted((path.name, path.stat().st_mtime_ns) for path in complete.glob("*.nbc"))


def test_missing_loops_are_compiled_into_the_cache(partial: Path) -> None:
    said, errors = run("-m", "dataflow", "warm", cache=partial)
    assert re.fullmatch(rf"compiled 8 of \d+ loops in [0-9.]+ m?s: {partial}", said)
    assert re.fullmatch(r"compiling 8 loops in (two processes|one process)", errors)
    assert all([(partial / file_name(module, loop)).exists() for module in SMALL for loop in loops(module)])


@pytest.mark.soak  # a damaged file of a generated loop, which is read by the same code, is in test_cache
def test_damaged_loops_are_compiled_again(partial: Path) -> None:
    damaged = [partial / file_name(module, loop) for module in SMALL for loop in loops(module)]
    for path in damaged:
        path.write_bytes(b"damaged")
    said, errors = run("-m", "dataflow", "warm", cache=partial)
    assert re.fullmatch(rf"compiled 8 of \d+ loops in [0-9.]+ m?s: {partial}", said)
    assert errors == ""
    assert all([path.stat().st_size > 1_000 for path in damaged])


def test_where_nothing_lasts_warm_fails_with_what_to_do(tmp_path: Path) -> None:
    program = (
        "from dataflow.kernel_cache import folders\n"
        "folders._writable = lambda folder: False\n"
        "folders.__file__ = '/proc/no/package/folders.py'\n"
        "from dataflow.cli import main\n"
        "main(['warm'])\n"
    )
    (tmp_path / "empty").mkdir(mode=0o700)
    said, errors = run("-c", program, cache=tmp_path / "empty", code=2)
    assert said == ""
    assert errors.startswith("error: ")
    assert "set BARRIERFLOW_CACHE to a folder that this user can write" in errors


def test_a_cache_that_is_named_and_cannot_be_used_fails_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    said, errors = run("-m", "dataflow", "warm", cache=tmp_path / "file", code=2)
    assert (said, errors.splitlines()[0][:6]) == ("", "error:")
    assert f"BARRIERFLOW_CACHE={tmp_path / 'file'} cannot be used" in errors


@pytest.mark.parametrize("restored", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_job_says_once_that_loops_are_compiled_and_compiles_them(
    *, restored: bool, complete: Path, partial: Path, tmp_path: Path
) -> None:
    if restored:
        assert run("-c", JOB, tmp_path / "checkpoints", cache=complete) == ("False", "")
    said, errors = run("-c", JOB, tmp_path / "checkpoints", cache=partial)
    assert said == str(restored)
    assert re.fullmatch(
        r"barrierflow: compiling 8 loops in (two processes|one process) before the first row; "
        r"`barrierflow warm` does it ahead of time", errors,
    )  # fmt: skip
    assert all([(partial / file_name(module, loop)).exists() for module in SMALL for loop in loops(module)])


@pytest.mark.soak
def test_an_empty_cache_is_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir(mode=0o700)
    said, _ = run("-m", "dataflow", "warm", cache=tmp_path / "empty")
    assert re.match(r"compiled (\d+) of \1 loops in ", said)
    assert run("-m", "dataflow", "warm", cache=tmp_path / "empty")[0].startswith("all ")
