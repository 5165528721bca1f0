"""Load the kernels that a job will call, before its first row.

A kernel is compiled, or loaded from the cache, when its module is imported. On a fresh machine that takes seconds, and
in a step it would hold up every barrier. So operators and sources name such modules (``Operator.kernels``), and a job
imports them before tasks are stepped and before its first checkpoint is due. A restore calls kernels, too, and imports
them before it builds the first operator from its state. Kernels that are not in the cache are first compiled in two
processes (``dataflow.kernel_cache.two_processes``).

Guarantees: a module that cannot be imported ends the loading and nothing else; the step that needs it raises.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

from dataflow.kernel_cache.compile_progress import CompileProgress
from dataflow.kernel_cache.two_processes import compile_missing, missing_loops
from dataflow.planning.graph import Partitioning
from dataflow.planning.specs import Read

if TYPE_CHECKING:
    from dataflow.contracts.operator import Operator
    from dataflow.contracts.source import Source
    from dataflow.planning.physical_plan import Plan

__all__ = ["KernelLoader", "kernels_of"]

_WORTH_A_LINE: Final = 5
"""Missing loops whose compilation is announced on standard error: fewer take less than a second on a quiet machine."""
_ADVICE: Final = " before the first row; `barrierflow warm` does it ahead of time"
_PARTITION = ("dataflow.state.kernels.hashing", "dataflow.state.kernels.partition")


def kernels_of(plan: Plan, operators: Iterable[Operator]) -> tuple[str, ...]:
    """Return the modules that ``operators``, and the sources, hash edges and users' classes of ``plan``, name."""
    names: dict[str, None] = {}
    for node in plan.graph:
        names.update(dict.fromkeys(node.spec.kernels))
        if isinstance(node.spec, Read):
            names.update(dict.fromkeys(_kernels(node.spec.source)))
    for operator in operators:
        names.update(dict.fromkeys(_kernels(operator)))
    for link in plan.links:
        if link.partitioning is Partitioning.HASH and plan.vertices[link.target].parallelism > 1:
            names.update(dict.fromkeys(_PARTITION))
    return tuple(names)


def _kernels(owner: Operator | Source) -> Sequence[str]:
    try:
        return tuple(owner.kernels)
    except Exception as error:
        error.add_note(f"raised by {type(owner).__name__}.kernels, which must return names of modules")
        raise


def _imported(name: str) -> bool:
    """Return whether a module is imported, and no other thread is still executing it."""
    module_spec = getattr(sys.modules.get(name), "__spec__", None)
    return module_spec is not None and not getattr(module_spec, "_initializing", False)


class KernelLoader:
    """Imports ``modules``; modules that are already imported cost nothing.

    ``start`` imports on a new thread, ``run`` on the caller's thread.

    >>> KernelLoader(["json"]).done
    True
    """

    def __init__(self, modules: Iterable[str] = ()) -> None:
        missing = [name for name in dict.fromkeys(modules) if not _imported(name)]
        self._modules = ["numba", *missing] if missing and "numba" not in sys.modules else missing
        self._loaded = 0  # written by the thread that imports
        self._progress = CompileProgress("barrierflow: ", _ADVICE, _WORTH_A_LINE)
        self._compiling = False  # written by the thread that imports
        self._stopped = False  # written by the thread that calls stop()
        self._started = False
        self._thread: threading.Thread | None = None
        self.done = not missing

    def __str__(self) -> str:
        """Return the kernels that are being imported, for the progress line; "" before and after."""
        if self.done or not self._started or self._loaded == len(self._modules):
            return ""
        if self._compiling:
            return f"compiling: {self._progress}"
        name = self._modules[self._loaded].rpartition(".")[2]
        what = name if name == "numba" else f"{name.replace('_', ' ')} kernels"
        return f"compiling: {what} ({self._loaded + 1} of {len(self._modules)})"

    def start(self, then: Callable[[], None]) -> None:
        """Import on a new thread, and call ``then`` there at the end.

        The thread is not a daemon: a process that ends while LLVM compiles on another thread may crash.
        """
        self._started = True
        self._thread = threading.Thread(target=self._import, args=(then,), name="dataflow-loading", daemon=False)
        self._thread.start()

    def run(self) -> None:
        """Import on this thread, unless ``start`` was called."""
        if not self._started and not self.done:
            self._started = True
            self._import(lambda: None)

    def stop(self) -> None:
        """Import no further module; the current import is finished."""
        self._stopped = True

    def ended(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the thread of ``start``; return True if it has ended or was never started."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self._thread is None or not self._thread.is_alive()

    def _import(self, then: Callable[[], None]) -> None:
        try:
            missing, progress = missing_loops(self._modules), self._progress
            self._compiling = bool(missing.modules)
            compile_missing(missing, begin=progress.begin, compiled=progress.compiled, stopped=lambda: self._stopped)
            self._compiling = False
            for name in self._modules:
                if self._stopped:
                    break
                import_module(name)
                self._loaded += 1
        except Exception:  # the step that needs it raises this again, and names the operator
            pass
        finally:
            self.done = True
            then()
