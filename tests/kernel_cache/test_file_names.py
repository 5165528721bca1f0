"""A file of compiled code is found again only where everything that it depends on is the same."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from dataflow.kernel_cache import file_names

ROOT = Path(__file__).parents[2]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package ``dataflow``, which the names depend on."""
    folder = tmp_path / "dataflow"
    shutil.copytree(ROOT / "dataflow", folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(file_names, "_package_paths", lambda: (("dataflow.state.kernels", folder / "state/kernels"),))
    return folder


def name() -> str:
    """Return the name of a file as a new process makes it."""
    file_names._surroundings.cache_clear()
    return file_names.file_name("module", "loop")


@pytest.fixture(autouse=True)
def _unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_names, "_surroundings", file_names.cache(file_names._surroundings.__wrapped__))


def test_a_change_of_a_helper_in_another_file_is_seen(package: Path) -> None:
    before = name()
    assert before == name()
    words = package / "state" / "kernels" / "words.py"
    words.write_text(words.read_text() + "\n# changed\n")
    assert name() != before


def test_another_processor_has_other_files(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = name()
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    assert name() != before


def test_kernels_in_an_archive_have_names_that_change_with_it(package: Path) -> None:
    shutil.rmtree(package)
    package.write_bytes(b"an archive")
    before = name()
    os.utime(package, (1, 1))
    assert name() != before
