"""Expansion of a user's paths (file, directory, glob, URI, or several of these) to a sorted list of files.

A URI that pyarrow knows (``s3://``, ``gs://``, ``file://``) also names its filesystem; ``filesystem=`` takes any other.
"""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import pyarrow as pa
from pyarrow import fs

from dataflow.errors import FilesLeftOutWarning, SourceError, user_frame
from dataflow.store.urls import is_url
from operators.sources.files import CODECS, Files, as_filesystem, check_text, compression, file_infos

__all__ = ["SUFFIXES", "Paths", "advice", "expand", "has_suffix", "left_out", "resolve"]

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]

SUFFIXES: Final = {
    "read_csv": (".csv", ".csv.gz", ".csv.bz2", ".csv.zst"),
    "read_json": tuple(f"{end}{codec}" for end in (".jsonl", ".ndjson", ".json") for codec in ("", *CODECS)),
    "read_ipc": (".arrow", ".arrows", ".feather", ".ipc"),
    "read_parquet": (".parquet",),
}
"""How the names of files in a directory end, in lower case, by the function that reads them."""

_SHOWN: Final = 3
"""Limit for the files, and for the patterns, that a message has."""
_TOO: Final = "add {} to the paths to read them"
_INSTEAD: Final = "give {} in place of the directory to read them"
_UNREADABLE: Final = (
    ".xz",
    ".lz4",
    ".snappy",
    ".deflate",
    ".br",
    ".lzo",
    ".zip",
    ".tar",
    ".tgz",
    ".tar.gz",
    ".7z",
    ".rar",
    ".xls",
    ".xlsx",
    ".ods",
)
_MAGIC: Final = re.compile(r"[*\[]")  # not "?", which begins the options of a URI


def expand(paths: Paths, suffix: str | tuple[str, ...], filesystem: Any = None) -> tuple[Files, tuple[str, ...]]:
    """Return the filesystem of ``paths``, and their files: sorted, each once.

    A directory means every file below it whose name ends in ``suffix``, upper case or lower, except files and folders
    whose names begin with ``_`` or ``.``, which writers use for what is not data. A warning names the other files. A
    path that exists is never read as a pattern. With ``filesystem`` all paths are paths in it, and never URIs.

    Raises: SourceError for a path or pattern without files, for a pipe, socket or device among them, for a name that is
    not UTF-8, for a URI that pyarrow does not know, and for two paths on different filesystems.
    """
    several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not several:
        raise SourceError("expected a file, a directory, a glob pattern or a list of them, found an empty list")
    suffixes = (suffix,) if isinstance(suffix, str) else suffix
    where: Files | None = None
    found: set[str] = set()
    others: dict[str, list[str]] = {}  # by directory
    for given in several:
        files, path = resolve(given, filesystem)
        if where is not None and files != where:
            raise SourceError(f"{several[0]!r} and {given!r} live on different filesystems; read them as two sources")
        where = files
        matched = _local(path) if files.filesystem is None else _stored(files.filesystem, path)
        if isinstance(matched, _Below):
            is_uri = filesystem is None and is_url(os.fspath(given))
            directory = os.fspath(given) if is_uri else path
            unnamed = [file for file in matched.files if not has_suffix(file, suffixes)]
            others[directory] = [file for file in unnamed if files.filesystem is not None or os.path.isfile(file)]
            matched = [file for file in matched.files if has_suffix(file, suffixes)] or _nothing(
                path, _no_file(suffixes, directory, others[directory])
            )
        for file in matched:
            _check_name(file)
            files.check_regular(file)
        found.update(matched)
    for directory, below in others.items():
        if files_left := [file for file in below if file not in found]:
            text = left_out(repr(directory), suffixes, files_left, _patterns(directory, files_left, _TOO))
            warnings.warn(text, FilesLeftOutWarning, stacklevel=user_frame())
    assert where is not None, "at least one path was resolved"
    return where, tuple(sorted(found))


def has_suffix(name: str, suffixes: tuple[str, ...]) -> bool:
    """Return whether ``name`` ends in one of ``suffixes``, which are in lower case."""
    return name.lower().endswith(suffixes)


def resolve(path: str | os.PathLike[str], filesystem: Any = None) -> tuple[Files, str]:
    """Return the filesystem of ``path`` (perhaps a pattern), and its name there. Raises: SourceError."""
    text = os.fspath(path)
    _check_name(text)
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
    return Files(as_filesystem(found)), f"{glob.escape(base.rstrip('/'))}/{pattern}" if pattern else base


def _check_name(path: str) -> None:
    try:
        check_text(path)
    except OSError as error:
        raise SourceError(f"{path!r}: {error.strerror}") from error


def _parted(uri: str) -> tuple[str, str]:
    """Split a URI before its first component with a pattern. Options stay with the first part."""
    rest, question, options = uri.partition("?")
    magic = _MAGIC.search(rest)
    if magic is None:
        return uri, ""
    cut = rest.rindex("/", 0, magic.start())
    return rest[:cut] + question + options, rest[cut + 1 :]


@dataclass(frozen=True, slots=True)
class _Below:
    """The files below a directory, except hidden ones."""

    files: list[str]


def _local(path: str) -> list[str] | _Below:
    if os.path.isdir(path):
        return _Below(_below(path))
    if os.path.exists(path):
        return [path]
    if glob.has_magic(path):
        found = [file for file in glob.glob(path, recursive=True) if _is_no_folder(file)]
        return found or _nothing(path, "no file matches the pattern")
    return _nothing(path, "there is no such file or directory")


def _is_no_folder(path: str) -> bool:
    """Return whether something other than a directory is at ``path``, and it is no link to nowhere."""
    return os.path.exists(path) and not os.path.isdir(path)


def _below(directory: str) -> list[str]:
    found: list[str] = []
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        found += [os.path.join(folder, name) for name in files if name[0] not in "_."]
    return found


def _stored(store: fs.FileSystem, path: str) -> list[str] | _Below:
    try:
        match store.get_file_info(path).type:
            case fs.FileType.File:
                return [path]
            case fs.FileType.Directory:
                below = file_infos(store, fs.FileSelector(path, recursive=True))
                return _Below([info.path for info in below if _is_data(info, path)])
            case fs.FileType.Unknown:
                return _nothing(path, "it is neither a regular file nor a directory")
        if glob.has_magic(path):
            return list(_matching(store, "", path.split("/"))) or _nothing(path, "no file matches the pattern")
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{path!r}: cannot be listed: {error}; check the path and its permissions") from error
    return _nothing(path, "there is no such file or directory")


def _is_data(info: fs.FileInfo, directory: str) -> bool:
    below = info.path[len(directory) :].strip("/").split("/")
    return info.type is fs.FileType.File and not any(name.startswith(("_", ".")) for name in below)


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


def left_out(place: str, suffixes: tuple[str, ...], files: Sequence[str], advice: str) -> str:
    """Return the text of a FilesLeftOutWarning about ``files``; ``place`` is their directory, for the text."""
    count = "1 file is" if len(files) == 1 else f"{len(files):,} files are"
    return (
        f"{place}: {count} not read, because the names of files in a directory must end in {_endings(suffixes)}: "
        f"{_shown(files)}; {advice}"
    )


def _endings(suffixes: tuple[str, ...]) -> str:
    """Return the suffixes as text, each suffix of a codec once.

    >>> _endings((".csv", ".csv.gz", ".csv.zst"))
    '.csv (or that and .gz or .zst)'
    """
    plain = [suffix for suffix in suffixes if compression(suffix) is None]
    codecs = dict.fromkeys(os.path.splitext(suffix)[1] for suffix in suffixes if suffix not in plain)
    return " or ".join(plain) + (f" (or that and {' or '.join(codecs)})" if codecs else "")


def advice(files: Sequence[str], pattern: Callable[[str], str], to_read: str) -> str:
    """Return what to do to read ``files``, also those of other formats, and those that must be unpacked first.

    Args:
        pattern: returns the pattern of the names with a certain ending.
        to_read: what to do, with a place for the patterns.
    """
    packed = [file for file in files if has_suffix(file, _UNREADABLE)]
    known = {reader: [file for file in files if has_suffix(file, ends)] for reader, ends in SUFFIXES.items()}
    others = {reader: of_format for reader, of_format in known.items() if of_format}
    apart = frozenset([*packed, *(file for of_format in others.values() for file in of_format)])
    endings = sorted({_ending(os.path.basename(file)) for file in files if file not in apart})
    patterns = [repr(pattern(f"{'*' if end.startswith('.') else ''}{glob.escape(end)}")) for end in endings]
    more = f" and {len(patterns) - _SHOWN:,} more" if len(patterns) > _SHOWN else ""
    parts = [to_read.format(", ".join(patterns[:_SHOWN]) + more)] if patterns else []
    parts += [f"read {_shown(of_format)} with {reader}" for reader, of_format in others.items()]
    return "; ".join(parts + ([f"unpack {_shown(packed)}, which no reader reads"] if packed else []))


def _shown(files: Sequence[str]) -> str:
    more = f" and {len(files) - _SHOWN:,} more" if len(files) > _SHOWN else ""
    return ", ".join(repr(os.path.basename(file)) for file in sorted(files)[:_SHOWN]) + more


def _patterns(directory: str, files: Sequence[str], to_read: str) -> str:
    return advice(files, lambda end: _pattern(directory, end), to_read)


def _ending(name: str) -> str:
    """Return how files of the same kind as ``name`` end: its suffix, that of its codec included, or all of it.

    >>> _ending("bids.tsv.gz"), _ending("bids.txt"), _ending("part-00000")
    ('.tsv.gz', '.txt', 'part-00000')
    """
    inner, suffix = os.path.splitext(name)
    return (os.path.splitext(inner)[1] if compression(name) else "") + suffix or name


def _pattern(directory: str, name: str) -> str:
    """Return the pattern of the files below ``directory``, a path or a URI, whose names match ``name``."""
    rest, question, options = directory.partition("?") if is_url(directory) else (directory, "", "")
    inside = glob.escape(rest if rest.endswith("/") or not rest else f"{rest}/")
    return f"{inside}**/{name}{question}{options}"


def _no_file(suffixes: tuple[str, ...], directory: str, files: Sequence[str]) -> str:
    why = f"the directory holds no file that ends in {_endings(suffixes)}"
    return f"{why}, only {_shown(files)}; {_patterns(directory, files, _INSTEAD)}" if files else why


def _nothing(path: str, why: str) -> list[str]:
    raise SourceError(f"{path!r}: {why} (looked from {os.getcwd()}); check the path")
