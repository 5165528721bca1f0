"""From what a user calls a path (file, directory, glob, several of these) to a sorted list of files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable
from typing import Final

from dataflow.errors import SourceError

__all__ = ["Paths", "expand", "is_url"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")  # pathlib makes one slash of two


def expand(paths: Paths, suffix: str) -> tuple[str, ...]:
    """The files of ``paths``, sorted, each once.

    A directory stands for every file below it whose name ends in ``suffix``, but for files and folders whose names
    begin with ``_`` or ``.``, which writers use for what is not data. A path that exists is never read as a pattern.

    Raises: SourceError naming the path or pattern that holds no file, or that is a URL.
    """
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not several:
        raise SourceError("expected a file, a directory, a glob pattern or a list of them, found an empty list")
    files = {file for path in several for file in _expand_one(os.path.expanduser(os.fspath(path)), suffix)}
    return tuple(sorted(files))


def is_url(path: str) -> bool:
    """Whether ``path`` begins like a URL, which is no local path.

    >>> is_url("s3://bucket/key"), is_url("data/2024")
    (True, False)
    """
    return _SCHEME.match(path) is not None


def _expand_one(path: str, suffix: str) -> list[str]:
    if is_url(path):  # also where a folder has such a name: Arrow would read it as a URL
        raise SourceError(
            f"{path!r}: object stores and other URLs are not supported (yet), only local paths; mount or copy the "
            f"files, and leave file:// out"
        )
    if os.path.isdir(path):
        return _below(path, suffix) or _nothing(path, f"the directory holds no file that ends in {suffix}")
    if os.path.exists(path):
        return [path]
    if glob.has_magic(path):
        found = [file for file in glob.glob(path, recursive=True) if os.path.isfile(file)]
        return found or _nothing(path, "no file matches the pattern")
    return _nothing(path, "there is no such file or directory")


def _below(directory: str, suffix: str) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        found += [os.path.join(folder, name) for name in files if name.endswith(suffix) and name[0] not in "_."]
    return found


def _nothing(path: str, why: str) -> list[str]:
    raise SourceError(f"{path!r}: {why} (looked from {os.getcwd()}); check the path")
