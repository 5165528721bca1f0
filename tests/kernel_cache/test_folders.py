"""Which folders of compiled loops are read, and which one is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataflow.errors import UnsafeCacheWarning
from dataflow.kernel_cache.folders import Folders, forget_folders, generated_folders, package_folders

ROOT = Path(__file__).parents[2]
NAME = "module.loop-1.nbc"
NOBODY = 65534
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user, and give files away")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's cache directory; no other one is configured."""
    for variable in ("BARRIERFLOW_CACHE", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    forget_folders()
    yield tmp_path / "barrierflow" / "kernels"
    forget_folders()


@pytest.fixture
def ours(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory named by BARRIERFLOW_CACHE, which does not exist yet."""
    monkeypatch.setenv("BARRIERFLOW_CACHE", str(tmp_path / "ours"))
    return tmp_path / "ours"


def paths(folders: Folders) -> list[Path]:
    return [folder.path for folder in folders.read]


def test_generated_loops_are_where_the_system_keeps_caches(home: Path) -> None:
    assert paths(generated_folders()) == [home]
    assert home.stat().st_mode & 0o777 == 0o700


def test_kernels_of_the_library_are_beside_the_package_if_it_can_be_written(home: Path) -> None:
    assert paths(package_folders()) == [ROOT / "dataflow" / "__pycache__"]


def test_our_variable_is_asked_before_numbas(ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert paths(package_folders()) == paths(generated_folders()) == [ours]


def test_numbas_variable_replaces_the_folder_beside_the_package(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert paths(package_folders()) == paths(generated_folders()) == [tmp_path / "numba" / "barrierflow"]


def test_a_folder_that_cannot_be_made_is_left_out(ours: Path, home: Path) -> None:
    ours.write_text("a file is in the way")
    assert paths(generated_folders()) == [home]


def test_what_was_written_is_read(ours: Path) -> None:
    generated_folders().write(NAME, b"code")
    assert list(generated_folders().copies(NAME)) == [b"code"]
    assert not list(ours.glob("*.tmp"))


def test_whatever_the_umask_is_others_may_not_write(ours: Path) -> None:
    before = os.umask(0o002)
    try:
        generated_folders().write(NAME, b"code")
    finally:
        os.umask(before)
    assert generated_folders().holds(NAME)  # without a warning, which would be an error


def test_a_folder_keeps_the_newest_variants_of_a_loop(ours: Path) -> None:
    for number in range(12):
        generated_folders().write(f"module.loop-{number}.nbc", b"code")
        os.utime(ours / f"module.loop-{number}.nbc", (number, number))
    generated_folders().write("module.looping-1.nbc", b"code")
    assert {path.name for path in ours.iterdir()} == {
        *(f"module.loop-{number}.nbc" for number in range(4, 12)), "module.looping-1.nbc",
    }  # fmt: skip


def test_a_folder_that_others_may_write_is_not_used(ours: Path, home: Path) -> None:
    ours.mkdir()
    ours.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning, match=f"{ours} is ignored"):
        assert paths(generated_folders()) == [home]


def test_a_link_is_not_used(ours: Path, home: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    ours.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UnsafeCacheWarning):
        assert paths(generated_folders()) == [home]


@as_root
def test_a_folder_of_another_user_is_not_used(ours: Path, home: Path) -> None:
    ours.mkdir(mode=0o700)
    os.chown(ours, NOBODY, -1)
    with pytest.warns(UnsafeCacheWarning):
        assert paths(generated_folders()) == [home]


def test_a_folder_that_others_may_rename_is_not_used(ours: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.warns(UnsafeCacheWarning):
        assert not any(path.is_relative_to(tmp_path) for path in paths(generated_folders()))


def test_a_folder_in_the_temporary_directory_is_used(ours: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    assert paths(generated_folders()) == [ours]


def test_a_file_that_others_may_have_written_is_not_read_but_replaced(ours: Path) -> None:
    generated_folders().write(NAME, b"code")
    (ours / NAME).chmod(0o666)
    with pytest.warns(UnsafeCacheWarning, match=f"{NAME} is ignored"):
        assert list(generated_folders().copies(NAME)) == []
    generated_folders().write(NAME, b"own code")
    assert list(generated_folders().copies(NAME)) == [b"own code"]


BECOME_NOBODY = f"import os; os.setgroups([]), os.setgid({NOBODY}), os.setuid({NOBODY})"
CHILD = f"""
from dataflow.kernel_cache.folders import generated_folders
{BECOME_NOBODY}
folders = generated_folders()
before = list(folders.copies("of_root-1.nbc"))
folders.write("of_root-1.nbc", b"own copy")
folders.write("of_user-1.nbc", b"own")
print(before, list(folders.copies("of_root-1.nbc")), list(folders.copies("of_user-1.nbc")), end=" ")
print(folders.written, folders.lasting)
"""
KERNELS = f"""
import sys
from numba.core import event
import dataflow.state.kernels.words  # compiles as root, and imports all that the user cannot reach on this machine
for name in ("kernel_cache.folders", "kernel_cache.decorator", "state.kernels.words"):
    del sys.modules["dataflow." + name]
{BECOME_NOBODY}
with event.install_recorder("numba:compile") as compiled:
    import dataflow.state.kernels.words
print(len(compiled.buffer), end=" ")
from dataflow.kernel_cache.decorator import package_folders
package_folders().write("new-1.nbc", b"code")
print(*[folder.path for folder in package_folders().read])
"""


def as_nobody(program: str, path: Path = ROOT, **environment: str) -> str:
    """Run ``program``, which begins as root and becomes the user nobody; return what it prints."""
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=path, capture_output=True, text=True, timeout=120,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )  # fmt: skip
    assert (child.returncode, child.stderr) == (0, "")
    return child.stdout.strip()


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that every user can reach; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@as_root
def test_a_folder_of_root_is_read_and_new_files_go_to_the_users_own(open_path: Path) -> None:
    shared, own = open_path / "shared", open_path / "own"
    shared.mkdir(mode=0o755)
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    (shared / "of_root-1.nbc").write_bytes(b"shared")
    said = as_nobody(CHILD, BARRIERFLOW_CACHE=str(shared), XDG_CACHE_HOME=str(own))
    assert said == f"[b'shared'] [b'shared', b'own copy'] [b'own'] {own}/barrierflow/kernels True"
    assert [path.name for path in shared.iterdir()] == ["of_root-1.nbc"]


@as_root
def test_where_no_folder_can_be_written_a_temporary_one_is_used_and_removed(open_path: Path) -> None:
    said = as_nobody(CHILD, XDG_CACHE_HOME=str(open_path / "missing"))
    values, _, rest = said.partition("] /")
    assert (values, rest.endswith(" False")) == ("[] [b'own copy'] [b'own'", True)
    assert not Path("/" + rest.partition(" ")[0]).exists()


@as_root
def test_kernels_beside_a_package_of_root_are_loaded_and_new_ones_go_to_the_users_own(open_path: Path) -> None:
    package, own = open_path / "installed", open_path / "own"
    shutil.copytree(ROOT / "dataflow", package / "dataflow", ignore=shutil.ignore_patterns("__pycache__"))
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    said = as_nobody(KERNELS, package, XDG_CACHE_HOME=str(own))
    assert said == f"0 {package}/dataflow/__pycache__ {own}/barrierflow/kernels"
    assert (own / "barrierflow" / "kernels" / "new-1.nbc").exists()
