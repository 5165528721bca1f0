"""Expansion of a user's paths (file, directory, glob, URI, or several of these) to a sorted list of files.

A URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) also names its filesystem; ``filesystem=`` takes any other.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from dataflow.errors import SourceError
from dataflow.store.urls import is_url
from operators.sources.files import Files, as_filesystem, check_text, file_infos

__all__ = ["Paths", "expand", "resolve"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

_MAGIC: Final = re.compile(r"[*\[]")  # not "?", which begins the options of a URI


def expand(paths: Paths, suffix: str | tuple[str, ...], filesystem: Any = None) -> tuple[Files, tuple[str, ...]]:
    """Return the filesystem of ``paths``, and their files: sorted, each once.

    A directory means every file below it whose name ends in ``suffix``, except files and folders whose names begin
    with ``_`` or ``.``, which writers use for what is not data. A path that exists is never read as a pattern.
    With ``filesystem`` all paths are paths in it, and never URIs.

    Raises: SourceError for a path or pattern without files, for a URI that pyarrow does not know, and for two paths on
    different filesystems.
    """
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not several:
        raise SourceError("expected a file, a directory, a glob pattern or a list of them, found an empty list")
    where: Files | None = None
    found: set[str] = set()
    for given in several:
        files, path = resolve(given, filesystem)
        if where is not None and files != where:
            raise SourceError(f"{several[0]!r} and {given!r} live on different filesystems; read them as two sources")
        where = files
        found.update(_local(path, suffix) if files.filesystem is None else _stored(files.filesystem, path, suffix))
    assert where is not None, "at least one path was resolved"
    return where, tuple(sorted(found))


def resolve(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[Files, str]:
    """Return the filesystem of ``path`` (perhaps a pattern), and its name there. Raises: SourceError."""
    text = os.fspath(path)
    try:
        check_text(text)
    except OSError as error:
        raise SourceError(f"{text!r}: {error.strerror}") from error
    filesystem_given = as_filesystem(filesystem)
    if filesystem_given is not None:
        return Files(filesystem_given), text.rstrip("/")
    if not is_url(text):
        return Files(), os.path.expanduser(text)
    if isinstance(path, os.PathLike):
        raise SourceError(f"{text!r}: pathlib removed one of the two slashes of a URI; give the URI as a str")
    plain, pattern = _parted(text)
    try:
        found, base = fs.FileSystem.from_uri(plain)
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{text!r}: pyarrow cannot open this URI: {error}; for another object store pass filesystem= "
            f"(a pyarrow.fs.FileSystem, or one of fsspec) and paths within it"
        ) from error
    return Files(as_filesystem(found)), f"{base.rstrip('/')}/{pattern}" if pattern else base


def _parted(uri: str) -> tuple[str, str]:
    """Split a URI before its first component with a pattern. Options stay with the first part."""
    rest, question, options = uri.partition("?")
    magic = _MAGIC.search(rest)
    if magic is None:
        return uri, ""
    cut = rest.rindex("/", 0, magic.start())
    return rest[:cut] + question + options, rest[cut + 1 :]


def _local(path: str, suffix: str | tuple[str, ...]) -> list[str]:
    if os.path.isdir(path):
        return _below(path, suffix) or _nothing(path, _no_file(suffix))
    if os.path.exists(path):
        return [path]
    if glob.has_magic(path):
        found = [file for file in glob.glob(path, recursive=True) if os.path.isfile(file)]
        return found or _nothing(path, "no file matches the pattern")
    return _nothing(path, "there is no such file or directory")


def _below(directory: str, suffix: str | tuple[str, ...]) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        found += [os.path.join(folder, name) for name in files if name.endswith(suffix) and name[0] not in "_."]
    return found


def _stored(store: fs.FileSystem, path: str, suffix: str | tuple[str, ...]) -> list[str]:
    try:
        match store.get_file_info(path).type:
            case fs.FileType.File:
                return [path]
            case fs.FileType.Directory:
                below = file_infos(store, fs.FileSelector(path, recursive=True))
                return [f.path for f in below if _is_data(f, path, suffix)] or _nothing(path, _no_file(suffix))
        if glob.has_magic(path):
            return list(_matching(store, "", path.split("/"))) or _nothing(path, "no file matches the pattern")
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path!r}: cannot be listed: {error}; check the path and its permissions") from error
    return _nothing(path, "there is no such file or directory")


def _is_data(info: fs.FileInfo, directory: str, suffix: str | tuple[str, ...]) -> bool:
    below = info.path[len(directory) :].strip("/").split("/")
    hidden = any(name.startswith(("_", ".")) for name in below)
    return info.type is fs.FileType.File and info.path.endswith(suffix) and not hidden


def _matching(store: fs.FileSystem, base: str, parts: list[str]) -> Iterator[str]:
    """Yield the files below ``base`` that match a pattern with the components ``parts``; ``**`` matches any depth."""
    head, rest = parts[0], parts[1:]
    if not glob.has_magic(head) and rest:
        yield from _matching(store, f"{base}/{head}" if base else head, rest)
        return
    entries = file_infos(store, fs.FileSelector(base, allow_not_found=True))
    if head == "**" and rest:
        yield from _matching(store, base, rest)
    for entry in entries:
        name = entry.base_name
        if name.startswith(".") and not head.startswith("."):
            continue
        if entry.type is fs.FileType.Directory and head == "**":
            yield from _matching(store, entry.path, parts)
        elif entry.type is fs.FileType.Directory and rest and fnmatchcase(name, head):
            yield from _matching(store, entry.path, rest)
        elif entry.type is fs.FileType.File and not rest and fnmatchcase(name, head):
            yield entry.path


def _no_file(suffix: str | tuple[str, ...]) -> str:
    endings = suffix if isinstance(suffix, str) else " or ".join(suffix)
    return f"the directory holds no file that ends in {endings}"


def _nothing(path: str, why: str) -> list[str]:
    raise SourceError(f"{path!r}: {why} (looked from {os.getcwd()}); check the path")
