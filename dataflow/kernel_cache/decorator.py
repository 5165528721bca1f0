"""The decorator of every stored loop: its machine code is read from the cache, else compiled and written there.

Numba's own ``cache=True`` reads and writes one folder, the first that can be written; it ignores a cache that it can
only read, it does not see changes of a helper in another file, and it fails if the disk is full. This cache has the
same content and the rules of ``dataflow.kernel_cache.folders`` and ``file_names``. A file that cannot be loaded is
compiled again, and replaced.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.dispatcher import Dispatcher
from numba.core.runtime.nrt import rtsys
from numba.core.serialize import dumps

from dataflow.kernel_cache.file_names import file_name, source_of_module
from dataflow.kernel_cache.folders import generated_folders, package_folders

__all__ = ["STORED", "kernel"]

STORED: list[str] = []
"""The names of the files that this process wrote, or tried to write."""

log = logging.getLogger("dataflow.kernel_cache")


def kernel(signature: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for one signature, without the interpreter's lock, or load it from the cache.

    The function must be on the top level of its module, and the decorator begins a line: ``@kernel(``.

    Args:
        signature: a signature of numba, such as ``types.int64(types.int64)``.
        options: further options of ``numba.njit``.

    Returns: a decorator, which returns a function that can only be called with this signature.

    >>> from numba import int64
    >>> @kernel(int64(int64))
    ... def twice(n):
    ...     return 2 * n
    >>> twice(4)
    8
    """

    def load_or_compile(function: Callable[..., Any]) -> Any:
        dispatcher = njit(nogil=True, **options)(function)
        if not isinstance(dispatcher, Dispatcher):
            return dispatcher  # NUMBA_DISABLE_JIT is set
        dispatcher._cache = _StoredLoop(function)  # type: ignore[attr-defined]  # where enable_caching() puts numba's
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        return dispatcher

    return load_or_compile


class _StoredLoop(NullCache):  # type: ignore[misc]
    """The cache of one function, in the place of numba's ``FunctionCache``."""

    def __init__(self, function: Callable[..., Any]) -> None:
        assert function.__closure__ is None, f"{function} depends on variables, so its text is not all that matters"
        self._name = file_name(function.__module__, function.__qualname__)
        self._folders = package_folders() if source_of_module(function.__module__) else generated_folders()

    @property
    def cache_path(self) -> str | None:
        return None if self._folders.written is None else str(self._folders.written)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function, or None if no folder has it."""
        rtsys.initialize(target_context)  # refresh() would load all that the compiler needs, which takes 0.2 s
        machine = target_context.codegen().magic_tuple()
        for data in self._folders.copies(self._name):
            try:
                compiled_for, parts = pickle.loads(data)
                if compiled_for == machine:  # else numba was configured in a file of its own
                    return CompileResult._rebuild(target_context, *parts)
            except Exception as error:
                log.info("%s does not load, and is compiled again: %s: %s", self._name, type(error).__name__, error)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store the compiled function ``data``, unless it contains addresses of this process."""
        STORED.append(self._name)
        if not data.library.has_dynamic_globals:
            self._folders.write(self._name, dumps((data.codegen.magic_tuple(), data._reduce())))
