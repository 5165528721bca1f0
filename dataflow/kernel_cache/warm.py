"""Compile every kernel of this library ahead of time, for images and CI."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from dataflow.errors import ConfigurationError
from dataflow.kernel_cache.compile_progress import CompileProgress
from dataflow.kernel_cache.file_names import file_name, loops_in, package_modules, source_of_module
from dataflow.kernel_cache.folders import package_folders
from dataflow.kernel_cache.two_processes import compile_missing, missing_loops

__all__ = ["Warmed", "warm"]


@dataclass(frozen=True, slots=True)
class Warmed:
    """The result of ``warm``.

    Args:
        loops: the number of all loops, which are now in the cache.
        compiled: the number of loops that were missing or damaged.
        folders: the folders that have them.
    """

    loops: int
    compiled: int
    folders: tuple[Path, ...]


def warm(progress: CompileProgress) -> Warmed:
    """Compile the missing loops of all modules with kernels into the first folder of the cache that can be written.

    Call it in a process that has not imported kernels yet.

    Args:
        progress: is told which loops are missing, and which modules are compiled.

    Raises: ConfigurationError if no folder can be written that lasts, or the loops do not fit in it, or the folder that
        ``BARRIERFLOW_CACHE`` names cannot be used.
    """
    folders, modules = package_folders(), package_modules()
    names = [file_name(module, loop) for module in modules for loop in loops_in(source_of_module(module))]
    given = os.environ.get("BARRIERFLOW_CACHE")
    if given and Path(given) not in [folder.path for folder in folders.read]:
        raise ConfigurationError(
            f"BARRIERFLOW_CACHE={given} cannot be used: expected a folder that this user can write and other users "
            "cannot, or that can be made; name another one, or unset it"
        )
    missing = missing_loops(modules)
    if missing.loops and not folders.lasting:
        raise ConfigurationError(
            f"{missing.loops} loops are missing, and no folder of the kernel cache can be written: set "
            "BARRIERFLOW_CACHE to a folder that this user can write, and that other users cannot"
        )
    compile_missing(missing, begin=progress.begin, compiled=progress.compiled)
    repaired = _repair(modules)
    absent = [name for name in names if not folders.holds(name)]
    if absent:
        raise ConfigurationError(
            f"{len(absent)} of {len(names)} loops were not stored in {folders.written}: is the disk full? The first is "
            f"{absent[0]}; free space and run the command again"
        )
    return Warmed(len(names), missing.loops + repaired, folders.places(names))


def _repair(modules: Sequence[str]) -> int:
    """Load all loops, which compiles those again whose files are damaged; return their number."""
    from dataflow.kernel_cache.decorator import STORED

    stored = len(STORED)
    for module in modules:
        import_module(module)
    return len(STORED) - stored
