"""Generated modules whose compiled loops are kept in the kernel cache, for every later process.

A module is named by the hash of its text, so other texts have other files; the folders, and what else the name of a
file contains, are in ``dataflow.kernel_cache``. The text itself is not stored.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import tempfile
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from dataflow.kernel_cache.child_process import start_python
from dataflow.kernel_cache.file_names import file_name, loops_in
from dataflow.kernel_cache.folders import generated_folders, use_temporary

__all__ = ["compile_apart", "compile_input", "compiled", "file_names", "forget", "load"]


def file_names(text: str) -> list[str]:
    """Return the names of the files of the loops in ``text``."""
    return [file_name(_module_name(text), loop) for loop in loops_in(text)]


def compiled(text: str) -> bool:
    """Return whether some process has compiled ``text`` before: then loading it takes milliseconds."""
    names, folders = file_names(text), generated_folders()
    return bool(names) and all([folders.holds(name) for name in names])


def load(text: str) -> ModuleType:
    """Run ``text`` as a module: its loops are loaded from the cache if they are there, else compiled.

    Raises: numba's errors.
    """
    module = ModuleType(_module_name(text))
    sys.modules[module.__name__] = module  # numba looks there for the globals of cached code
    try:
        exec(compile(text, f"<{module.__name__}>", "exec"), module.__dict__)
    except BaseException:
        del sys.modules[module.__name__]
        raise
    return module


def compile_apart(text: str) -> subprocess.Popen[str] | None:
    """Start a process that compiles ``text`` into the cache; return None if no process can do that here.

    Numba compiles in Python: on a thread of this process it would hold the interpreter's lock most of the time, and
    each worker would wait for it after every kernel. This process need not wait for the other: if it ends first, the
    next process finds the result. Raises: OSError if the text cannot be handed over.
    """
    written = generated_folders().written
    if written is None:
        return None
    program = f"from operators.fusion.cache import compile_input; compile_input({str(written)!r})"
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        file.write(text)
        file.seek(0)
        process = start_python(program, stdin=file, stdout=subprocess.DEVNULL)
    if process is not None:
        atexit.register(_let_go, process)
    return process


def compile_input(temporary: str) -> None:
    """Compile the text on standard input: the program of the process of ``compile_apart``.

    Args:
        temporary: the folder that the parent writes, in case it is a temporary one.
    """
    os.nice(5)
    use_temporary(Path(temporary))
    load(sys.stdin.buffer.read().decode())


def forget(text: str) -> None:
    """Remove the files of ``text``."""
    for name in file_names(text):
        generated_folders().remove(name)


@lru_cache(maxsize=64)
def _module_name(text: str) -> str:
    return f"barrierflow_loop_{blake2b(text.encode(), digest_size=16).hexdigest()}"


def _let_go(process: subprocess.Popen[str]) -> None:
    """Leave ``process`` running at the end of this one, without the warning of Popen about it."""
    if process.poll() is None:
        process.returncode = 0
