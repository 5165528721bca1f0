"""A generated loop in this process: written once, loaded in the background, shared by all subtasks that run it.

Compiling takes about a second, loading what an earlier process compiled tens of milliseconds, and importing numba some
hundred: none of it is done in a step, for a barrier waits for the step in progress. So a step *asks*, goes on with
pyarrow, and uses the loop from the batch on that finds it ready.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType

from operators.fusion import cache

__all__ = ["Kernel", "kernel_of"]

log = logging.getLogger("dataflow.fusion")


class Kernel:
    """The loop of one text.

    ``module`` is None until it is ready, and stays so where it cannot be made: then pyarrow does all the work.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.module: ModuleType | None = None
        self._failed = False
        self._loading = threading.Lock()  # guards _failed and the way to module; readers see module None or ready

    def load(self) -> None:
        """Make it ready, on the thread that calls; nothing happens where it is or cannot be."""
        with self._loading:
            if self.module is not None or self._failed:
                return
            try:
                self.module = self._attempt()
            except Exception as error:  # a loop is never worth a job
                self._failed = True
                log.warning("a loop could not be compiled, pyarrow does its work: %s: %s", type(error).__name__, error)

    def _attempt(self) -> ModuleType:
        try:
            return cache.load(self.text)
        except Exception as error:
            log.info("the files of a loop are made anew: %s: %s", type(error).__name__, error)
            cache.forget(self.text)
            return cache.load(self.text)


kernel_of: Callable[[str], Kernel] = lru_cache(maxsize=None)(Kernel)
"""The kernel of this process for a text."""
