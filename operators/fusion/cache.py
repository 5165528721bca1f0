"""Generated modules as files, so that numba caches the compiled code next to them, for every later process.

The folder is ``$BARRIERFLOW_CACHE``, else ``kernels`` in ``$XDG_CACHE_HOME/barrierflow`` or ``~/.cache/barrierflow``.
Numba's files are pickles, so a user who can write there can run code here. A folder or file is used only if it
belongs to the current user or to root, and no other user may write to it, nor rename a folder above it. Otherwise it
is ignored, with one warning (``UnsafeCacheWarning``), and this process uses a folder in the temporary directory. It
does so without a warning if the folder cannot be written. Other users get no right to write to the files, whatever the
umask is.

A file is named by the hash of its text, of the kernels compiled into it, and of numba's version. Its modification time
is set to a constant: some versions of numba drop the compiled code when the time changes, and processes that start
together all write the file.

Guarantees: a file exists complete or not at all, and its text is compared before it is run.
"""

from __future__ import annotations

import atexit
import os
import stat
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from dataflow.errors import UnsafeCacheWarning, user_frame

__all__ = ["compile_apart", "compiled", "folder", "forget", "load", "path_of"]

_INLINED = ("dataflow.state.kernels.words", "operators.kernels.arithmetic")
_TIME = 1_000_000_000
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def path_of(text: str) -> Path:
    """Return the path for the module of ``text``: in ``folder()``, unless another user may have written it there."""
    digest = blake2b(text.encode(), digest_size=16, key=_surroundings())
    path = folder() / f"barrierflow_loop_{digest.hexdigest()}.py"
    for kept in _kept(path):
        if not _is_safe(kept):
            _warn(kept)
            return Path(_temporary().name) / path.name
    return path


def _kept(path: Path) -> list[Path]:
    """Return the existing files of the module at ``path``, compiled or not, and the folder of compiled files."""
    compiled = path.parent / "__pycache__"
    return [found for found in (path, compiled, *compiled.glob(f"{path.stem}.*")) if os.path.lexists(found)]


def compiled(text: str) -> bool:
    """Return whether some process has compiled ``text`` before: then loading it takes milliseconds."""
    path = path_of(text)
    return path.exists() and any(path.parent.glob(f"__pycache__/{path.stem}.*.nbc"))


def load(text: str) -> ModuleType:
    """Write ``text`` if its file is missing or changed, and run it: numba loads cached code, else it compiles.

    Raises: OSError if not even the temporary directory can be written; numba's errors.
    """
    path = path_of(text)
    if not _holds(path, text):
        _write(path, text)
    (path.parent / "__pycache__").mkdir(mode=0o700, exist_ok=True)
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    sys.modules[path.stem] = module  # numba looks there for the globals of cached code
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except BaseException:
        del sys.modules[path.stem]
        raise
    _withdraw_rights(path)
    return module


def _withdraw_rights(path: Path) -> None:
    """Make files that numba wrote unwritable for others: numba leaves their rights to the umask."""
    for written in path.parent.glob(f"__pycache__/{path.stem}.*"):
        with suppress(OSError):  # another process has replaced it, or owns it
            written.chmod(stat.S_IMODE(written.lstat().st_mode) & ~_OTHERS_WRITE)


def compile_apart(text: str) -> subprocess.Popen[bytes] | None:
    """Start a process that compiles ``text`` into the folder; return None if no process can be started here.

    Numba compiles in Python: on a thread of this process it would hold the interpreter's lock most of the time, and
    each worker would wait for it after every kernel. This process need not wait for the other: if it ends first, the
    next process finds the result. Raises: OSError if the file cannot be written.
    """
    path = path_of(text)
    if not _holds(path, text):
        _write(path, text)
    if getattr(sys, "frozen", False):
        return None  # an application in one file: its executable is not Python
    program = (
        "import os, sys; os.nice(5); os.umask(0o077)\n"
        "from operators.fusion.cache import load; load(open(sys.argv[1]).read())"
    )
    surroundings = {**os.environ, "BARRIERFLOW_CACHE": str(folder()), "PYTHONPATH": os.pathsep.join(sys.path)}
    nowhere = subprocess.DEVNULL
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            env=surroundings,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            start_new_session=True,  # an interrupt of the job must not reach it
        )
    except OSError:
        return None
    atexit.register(_let_go, process)
    return process


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """Leave ``process`` running at the end of this one, without the warning of Popen about it."""
    if process.poll() is None:
        process.returncode = 0


def forget(text: str) -> None:
    """Remove the files of ``text``, compiled or not."""
    path = path_of(text)
    for found in [path, *path.parent.glob(f"__pycache__/{path.stem}.*")]:
        found.unlink(missing_ok=True)


@cache
def folder() -> Path:
    """Return the folder of this process. It is chosen once."""
    preferred = _wanted()
    try:
        preferred.mkdir(mode=0o700, parents=True, exist_ok=True)
        safe = _is_safe(preferred) and all(_holds_names(above) for above in preferred.resolve().parents)
        if safe and os.access(preferred, os.W_OK | os.X_OK):
            return preferred
    except OSError:
        safe = True  # the folder does not exist and cannot be created
    if not safe:
        _warn(preferred)
    return Path(_temporary().name)


@cache
def _warn(path: Path) -> None:
    """Warn once a process and path."""
    warnings.warn(
        f"the kernel cache {path} is ignored: expected it, and the folders above it, to belong to user {os.getuid()} "
        "or to root, with no right to write for others, because files in it are run; remove it, or set "
        "BARRIERFLOW_CACHE to a folder of your own. Until then, every process compiles loops again",
        UnsafeCacheWarning,
        stacklevel=user_frame(),
    )


def _wanted() -> Path:
    if own := os.environ.get("BARRIERFLOW_CACHE"):
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path("~/.cache").expanduser()) / "barrierflow" / "kernels"


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
def _temporary() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder, removed at the end of this process."""
    return tempfile.TemporaryDirectory(prefix="barrierflow-kernels-")


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text and int(path.stat().st_mtime) == _TIME
    except (OSError, UnicodeDecodeError):
        return False


def _write(path: Path, text: str) -> None:
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.utime(name, (_TIME, _TIME))
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@cache
def _surroundings() -> bytes:
    """Return a hash of the things that a compiled loop depends on, apart from its text."""
    digest = blake2b(metadata.version("numba").encode(), digest_size=16)
    for name in _INLINED:
        spec = find_spec(name)
        assert spec is not None, f"{name} is a module of this distribution"
        assert spec.origin is not None, f"{name} has a file"
        digest.update(Path(spec.origin).read_bytes())
    return digest.digest()
