"""Compile the loops of several modules in two processes: this one, and a child that writes into the same cache.

Both take the next module from one list, the longest first, so they end at about the same time. The child writes a line
when it has started, gets one name after the other on its standard input, and answers each with a line. At the end this
process imports all modules: what the child compiled is in the cache, and what it did not, because it failed or could
not be started, is compiled here.

Numba compiles in Python, and holds the interpreter's lock, so a second thread would not help.

Guarantees: the child has ended when ``compile_missing`` returns. It also ends by itself when this process dies, because
its standard input ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from dataflow.kernel_cache.child_process import start_python
from dataflow.kernel_cache.file_names import file_name, loops_in, source_of_module
from dataflow.kernel_cache.folders import Folders, package_folders

__all__ = ["Missing", "compile_missing", "missing_loops"]

_WORTH_A_PROCESS: Final = 6
"""Missing loops from which a second process saves time: it starts in the time in which this one compiles three."""
_SLICE: Final = 0.1
"""Seconds between two checks whether to stop."""
_IMPORTED = re.compile(r"^from ((?:dataflow\.state|operators)\.kernels\.\w+) import", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Missing:
    """The modules with loops that are not in the cache, in the order in which they are compiled.

    Args:
        by_module: the number of loops missing in each module, by its name.
    """

    by_module: Mapping[str, int]

    @property
    def modules(self) -> tuple[str, ...]:
        """The names of the modules."""
        return tuple(self.by_module)

    @property
    def loops(self) -> int:
        """The number of loops missing in all modules."""
        return sum(self.by_module.values())

    @property
    def pays(self) -> bool:
        """True if a second process saves time."""
        return len(self.modules) > 1 and self.loops >= _WORTH_A_PROCESS and _processors() > 1


def missing_loops(modules: Sequence[str], folders: Folders | None = None) -> Missing:
    """Return the modules, and those that they import, whose loops are not in the cache. Imports none of them.

    Modules that are imported already, and modules of other packages, do not count.
    """
    folders = folders or package_folders()
    missing: dict[str, int] = {}
    costs: dict[str, int] = {}
    names = deque(modules)
    while names:
        name = names.popleft()
        if name in costs or name in sys.modules:
            continue
        source = source_of_module(name)
        names.extend(_IMPORTED.findall(source))
        loops = sum([not folders.holds(file_name(name, loop)) for loop in loops_in(source)])
        # all others import `words`; the time grows with the text
        costs[name] = sys.maxsize if name.endswith(".words") else len(source)
        if loops:
            missing[name] = loops
    return Missing({name: missing[name] for name in sorted(missing, key=lambda name: -costs[name])})


def compile_missing(
    missing: Missing,
    *,
    begin: Callable[[Missing, int], None],
    compiled: Callable[[str], None],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Compile the missing loops into the cache, with a second process if that pays, and import their modules.

    Args:
        missing: the modules, from ``missing_loops``.
        begin: called before the first one with ``missing`` and the number of processes; not if nothing is missing.
        compiled: called with the name of each module, when it is imported here or compiled by the child, perhaps on
            another thread.
        stopped: asked between modules; if it returns True, no further module is begun.

    Raises: the exceptions of importing a module. The child has ended then, too.
    """
    if not missing.modules:
        return
    todo = _Todo(missing.modules, stopped, compiled)
    child = _start_child() if missing.pays else None
    if child is None:
        begin(missing, 1)
        todo.import_all()
        return
    feeder = threading.Thread(target=todo.feed, args=(child,), name="dataflow-compiling", daemon=True)
    try:
        begin(missing, 2)  # before a module is compiled
        feeder.start()
        todo.import_all()
        while feeder.is_alive() and not stopped():
            feeder.join(_SLICE)
    finally:
        _end(child)
        if feeder.ident is not None:
            feeder.join()
    for name in missing.modules:
        if not stopped():
            import_module(name)


class _Todo:
    """The modules that neither process has begun."""

    def __init__(self, modules: Sequence[str], stopped: Callable[[], bool], compiled: Callable[[str], None]) -> None:
        self._modules = deque(modules)  # its methods are atomic: two threads take from it
        self._stopped = stopped
        self._compiled = compiled

    def take(self) -> str | None:
        """Return the next module; None if there is none, or the work has been stopped."""
        with suppress(IndexError):
            if not self._stopped():
                return self._modules.popleft()
        return None

    def import_all(self) -> None:
        """Import one module after the other, until there is none left."""
        while (name := self.take()) is not None:
            import_module(name)
            self._compiled(name)

    def feed(self, child: subprocess.Popen[str]) -> None:
        """Give ``child`` one module after the other, until it has ended or there is none left."""
        assert child.stdin is not None, "the child has a pipe"
        assert child.stdout is not None, "the child has a pipe"
        name = None
        with suppress(OSError), child.stdout, child.stdin:  # an error: the child has ended
            while child.stdout.readline():
                if name is not None:
                    self._compiled(name)
                name = self.take()
                if name is None:
                    return
                child.stdin.write(f"{name}\n")
                child.stdin.flush()


def _end(child: subprocess.Popen[str]) -> None:
    """End the child: either it has nothing left to do, or its work is not wanted any more."""
    child.kill()
    child.wait()


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _start_child() -> subprocess.Popen[str] | None:
    written = package_folders().written
    if written is None:
        return None
    program = f"from dataflow.kernel_cache.child_process import compile_as_told; compile_as_told({str(written)!r})"
    return start_python(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
