"""The names of the files of compiled loops: the name of the loop, and a hash of all that its machine code depends on.

The hash is made of the text of every kernel of this library, the versions of numba, llvmlite and Python, and the
processor. So a file of an older version of this library, or of another machine, is not found: it is never checked
whether a file is out of date. A loop that is compiled into another one counts, because all texts do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

__all__ = ["file_name", "loops_in", "package_modules", "source_of_module"]

_PACKAGES = {"dataflow.state.kernels": "state/kernels", "operators.kernels": "kernels"}


def file_name(module: str, function: str) -> str:
    """Return the name of the file of a loop, on this machine, with the versions that are installed."""
    return f"{module}.{function}-{_surroundings()}.nbc"


def loops_in(source: str) -> list[str]:
    """Return the names of the functions that have the decorator ``kernel`` in the text of a module.

    >>> loops_in("@kernel(int64(int64))\\ndef twice(n):\\n    return 2 * n\\n\\ndef once(n): ...\\n")
    ['twice']
    """
    names, decorated = [], False
    for line in source.splitlines():
        if line.startswith("@kernel("):
            decorated = True
        elif line.startswith("def ") and decorated:
            names.append(line[len("def ") :].partition("(")[0])
            decorated = False
    return names


def package_modules() -> list[str]:
    """Return the names of the modules with the library's own kernels; [] if they are not files, but in an archive."""
    return [
        f"{package}.{path.stem}"
        for package, folder in _package_paths()
        for path in sorted(folder.glob("*.py"))
        if path.stem != "__init__"
    ]


def source_of_module(module: str) -> str:
    """Return the text of one of the library's modules with kernels; "" if it is no such module, or has no text."""
    package, _, name = module.rpartition(".")
    try:
        return (dict(_package_paths())[package] / f"{name}.py").read_text()
    except (KeyError, OSError):
        return ""


@cache
def _package_paths() -> tuple[tuple[str, Path], ...]:
    paths = []
    for package, folder in _PACKAGES.items():
        spec = find_spec(package.partition(".")[0])
        if spec is not None and spec.origin is not None:
            paths.append((package, Path(spec.origin).parent / folder))
    return tuple(paths)


@cache
def _surroundings() -> str:
    """Return a hash of the things that a compiled loop depends on, apart from its own text if that is generated."""
    digest = blake2b(digest_size=10)
    for part in (*_environment(), *_texts()):
        digest.update(part + b"\0")
    return digest.hexdigest()


def _environment() -> Iterator[bytes]:
    from llvmlite import binding

    yield metadata.version("numba").encode()
    yield metadata.version("llvmlite").encode()
    yield (sys.implementation.cache_tag or sys.version).encode()
    yield binding.get_process_triple().encode()
    yield from map(str.encode, _processor())


def _processor() -> tuple[str, str]:
    """Return the name of the processor that numba compiles for, and its features."""
    from llvmlite import binding

    name = os.environ.get("NUMBA_CPU_NAME")
    features = os.environ.get("NUMBA_CPU_FEATURES", "" if name is not None and name.lower() == "generic" else None)
    if features is None:
        with suppress(RuntimeError):  # LLVM does not know this processor; numba then uses no features
            features = binding.get_host_cpu_features().flatten()
    return name or binding.get_host_cpu_name(), features or ""


def _texts() -> Iterator[bytes]:
    for package, folder in _package_paths():
        yield package.encode()
        if folder.is_dir():
            for path in sorted(folder.glob("*.py*")):  # or compiled ones, if the texts were removed
                yield path.name.encode()
                yield path.read_bytes()
        else:  # the package is in an archive, or in an application in one file
            archive = next((above for above in folder.parents if above.is_file()), Path(sys.executable))
            yield f"{archive} {archive.stat().st_size} {archive.stat().st_mtime_ns}".encode()
