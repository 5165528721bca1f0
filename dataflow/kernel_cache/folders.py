"""The folders of compiled loops, which are read in order; new files go to the first one that can be written.

The candidates are, in this order:

1. ``$BARRIERFLOW_CACHE``, if it is set;
2. ``barrierflow`` in ``$NUMBA_CACHE_DIR``, if it is set;
3. ``__pycache__`` of the package ``dataflow``, for the library's own kernels, but not for generated loops;
4. ``kernels`` in ``$XDG_CACHE_HOME/barrierflow`` or ``~/.cache/barrierflow``;
5. a temporary folder, which is removed when the process ends.

The first folder that this process can write ends the list. So a cache that belongs to root, or is on a read-only disk,
is read, and what is missing there goes to the user's own folder.

Compiled loops are pickles with machine code, so a user who can write a file here can run code here. A file in folder 1
or 4 is used only if it belongs to the current user or to root, and no other user may write to it, nor rename a folder
above it. Otherwise it is ignored, with one warning (``UnsafeCacheWarning``). Folder 2 is as safe as numba's own cache
there, and folder 3 as safe as the code of the package. Other users get no right to write to new files, whatever the
umask is.

Guarantees: a file exists complete or not at all. A folder that is full or cannot be written fails no job.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from dataflow.errors import UnsafeCacheWarning, user_frame

__all__ = ["Folder", "Folders", "forget_folders", "generated_folders", "package_folders", "use_temporary"]

log = logging.getLogger("dataflow.kernel_cache")

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_VARIANTS: Final = 8
"""Files of one loop that a folder keeps: versions of this library, of numba, of Python, and kinds of processors."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of compiled loops; ``checked``: its files are used only if no other user can have written them."""

    path: Path
    checked: bool


@dataclass(frozen=True, slots=True)
class Folders:
    """Folders to read, in order. Only the last one is written."""

    read: tuple[Folder, ...]
    lasting: bool = True
    """False if new files go to the temporary folder, or nowhere."""

    @property
    def written(self) -> Path | None:
        """The folder for new files, or None if no folder can be written."""
        last = self.read[-1].path if self.read else None
        return last if last is not None and _writable(last) else None

    def holds(self, name: str) -> bool:
        """Return whether a folder has a file ``name`` that may be used; warn of one that may not."""
        return any(_usable(folder, folder.path / name) for folder in self.read)

    def places(self, names: Iterable[str]) -> tuple[Path, ...]:
        """Return the folders from which the files ``names`` are read."""
        used = [next((f.path for f in self.read if _usable(f, f.path / name)), None) for name in names]
        return tuple(path for path in dict.fromkeys(used) if path is not None)

    def copies(self, name: str) -> Iterator[bytes]:
        """Yield the contents of the file ``name`` from each folder that has it and may be used."""
        for folder in self.read:
            path = folder.path / name
            if _usable(folder, path):
                with suppress(OSError):
                    yield path.read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """Write the file ``name`` at once, and remove the oldest variants of it; do nothing if that is impossible.

        The name of a file is that of its loop, "-", and a text that tells its variants apart.
        """
        folder = self.written
        if folder is None:
            return
        path = folder / name
        unfinished = folder / f"{name}.{os.getpid()}.{threading.get_ident()}.tmp"
        try:
            _write(unfinished, data)
            os.replace(unfinished, path)
            _remove_variants(folder, name)
        except OSError as error:
            log.info("a compiled loop is not stored: %s", error)
            with suppress(OSError):
                unfinished.unlink()

    def remove(self, name: str) -> None:
        """Remove the file ``name`` where that is possible."""
        for folder in self.read:
            with suppress(OSError):
                (folder.path / name).unlink()


@cache
def package_folders() -> Folders:
    """Return the folders of the library's own kernels. They are chosen once a process."""
    return _choose([*_configured(), Folder(Path(__file__).parents[1] / "__pycache__", checked=False), *_users_own()])


@cache
def generated_folders() -> Folders:
    """Return the folders of generated loops. They are chosen once a process."""
    return _choose([*_configured(), *_users_own()])


def forget_folders() -> None:
    """Choose the folders again at the next call, because the environment has changed."""
    for function in (package_folders, generated_folders, _warn, _temporary):
        function.cache_clear()


def _configured() -> Iterator[Folder]:
    if ours := os.environ.get("BARRIERFLOW_CACHE"):
        yield Folder(Path(ours), checked=True)
    if numbas := os.environ.get("NUMBA_CACHE_DIR"):
        yield Folder(Path(numbas) / "barrierflow", checked=False)


def _users_own() -> Iterator[Folder]:
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path(os.path.expanduser("~")) / ".cache"
    if base.is_absolute():  # else this user has no home, as in a container with a user id of its own
        yield Folder(base / "barrierflow" / "kernels", checked=True)


def _choose(candidates: list[Folder]) -> Folders:
    chosen = []
    for folder in candidates:
        try:
            with suppress(OSError):  # a folder that cannot be created may exist, and be read
                folder.path.mkdir(mode=0o700 if folder.checked else 0o777, parents=True, exist_ok=True)
            if not folder.path.is_dir():
                continue
            if folder.checked and not _is_safe_folder(folder.path):
                _warn(folder.path)
                continue
        except OSError:
            continue
        chosen.append(folder)
        if _writable(folder.path):
            return Folders(tuple(chosen))
    with suppress(OSError):
        chosen.append(Folder(_temporary(), checked=True))
    return Folders(tuple(chosen), lasting=False)


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _usable(folder: Folder, path: Path) -> bool:
    try:
        if not folder.checked or _is_safe(path):
            return path.is_file()
    except OSError:
        return False
    _warn(path)
    return False


def _is_safe_folder(path: Path) -> bool:
    return _is_safe(path) and all(_holds_names(above) for above in path.resolve().parents)


def _is_safe(path: Path) -> bool:
    """Return whether ``path`` is not a link, and only the user and root can have changed it."""
    status = path.lstat()
    shared = status.st_mode & _OTHERS_WRITE
    return not stat.S_ISLNK(status.st_mode) and status.st_uid in (0, os.getuid()) and not shared


def _holds_names(path: Path) -> bool:
    """Return whether other users cannot rename entries of a folder. They may add entries, as in /tmp.

    The user's own group counts as the user: with a umask of 002 the group may write to every folder.
    """
    status = path.stat()
    shared = status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getgid()))
    return status.st_uid in (0, os.getuid()) and (not shared or bool(status.st_mode & stat.S_ISVTX))


@cache
def _warn(path: Path) -> None:
    """Warn once a process and path."""
    warnings.warn(
        f"the kernel cache {path} is ignored: expected it, and the folders above it, to belong to user {os.getuid()} "
        "or to root, with no right to write for others, because files in it are run; remove it, or set "
        "BARRIERFLOW_CACHE to a folder of your own. Until then, loops are kept elsewhere or compiled again",
        UnsafeCacheWarning,
        stacklevel=user_frame(),
    )


_given: list[Path] = []
_removed_at_exit: list[tempfile.TemporaryDirectory[str]] = []


def use_temporary(folder: Path) -> None:
    """Use ``folder`` as the temporary folder of this process, which then does not remove it."""
    _given[:] = [folder]


@cache
def _temporary() -> Path:
    """Return the temporary folder of this process."""
    if _given:
        return _given[0]
    _removed_at_exit.append(tempfile.TemporaryDirectory(prefix="barrierflow-kernels-"))
    return Path(_removed_at_exit[-1].name)


def _write(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _remove_variants(folder: Path, name: str) -> None:
    """Keep the newest files of a loop, so that the folder does not grow with every new version."""
    files = list(folder.glob(f"{name.rpartition('-')[0]}-*"))
    for _, file in sorted([(file.stat().st_mtime, file) for file in files], reverse=True)[_VARIANTS:]:
        file.unlink(missing_ok=True)
