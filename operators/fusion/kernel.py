"""A generated loop in this process: written once, loaded in the background, shared by all subtasks that run it.

Compiling takes a second or two, loading compiled code tens of milliseconds, importing numba some hundred. A step does
none of it, because a barrier waits for the step in progress. Instead a step *asks* for the loop, continues with
pyarrow, and uses the loop once it is ready. A separate process compiles, and a background thread of this one loads the
result.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType

from operators.fusion import cache

__all__ = ["Kernel", "kernel_of"]

log = logging.getLogger("dataflow.fusion")


class Kernel:
    """The loop of one text.

    ``module`` is None until it is ready, and stays None if it cannot be compiled: then pyarrow does all the work.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.module: ModuleType | None = None
        self._failed = False
        cache.compiled(text)  # warn of an unsafe cache here, where the job is built, not on a worker's thread
        self._process: subprocess.Popen[str] | None = None
        self._loading = threading.Lock()  # guards all of the above; readers see module None or ready

    def load(self) -> None:
        """Load the module if it has been compiled, else start compiling it; ``waits`` is true when to call again."""
        with self._loading:
            if self.module is not None or self._failed:
                return
            try:
                self.module = self._attempt()
            except Exception as error:  # a missing loop must not fail a job
                self._failed = True
                log.warning("a loop cannot be compiled, pyarrow replaces it: %s: %s", type(error).__name__, error)

    @property
    def waits(self) -> bool:
        """True if the compiling process has ended and ``load`` should be called again."""
        process = self._process
        return process is not None and process.poll() is not None and self.module is None and not self._failed

    def _attempt(self) -> ModuleType | None:
        if cache.compiled(self.text) and (self._process is None or self._process.poll() is not None):
            try:
                return cache.load(self.text)
            except Exception as error:
                log.info("the cached files of a loop do not load, compiling again: %s: %s", type(error).__name__, error)
                cache.forget(self.text)
        if self._process is None:
            self._process = cache.compile_apart(self.text)
            return None if self._process is not None else cache.load(self.text)
        if self._process.poll() is None:
            return None
        return cache.load(self.text)  # if the process failed, this raises the same error


kernel_of: Callable[[str], Kernel] = lru_cache(maxsize=None)(Kernel)
"""Return this process's kernel for a text."""
