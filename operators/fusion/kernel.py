"""A generated loop in this process: written once, loaded in the background, shared by all subtasks that run it.

Compiling takes a second or two, loading what was compiled tens of milliseconds, and importing numba some hundred: none
of it is done in a step, for a barrier waits for the step in progress. So a step *asks*, goes on with pyarrow, and uses
the loop from the batch on that finds it ready. A process of its own compiles, and a background thread of this one
loads what it made.
"""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
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
        with suppress(OSError):
            cache.path_of(text)  # warns of an unsafe cache here, where the job is built, and not on a worker's thread
        self._process: subprocess.Popen[bytes] | None = None
        self._loading = threading.Lock()  # guards all of the above; readers see module None or ready

    def load(self) -> None:
        """Make it ready where it has been compiled, else have it compiled: ``waits`` says when to call again."""
        with self._loading:
            if self.module is not None or self._failed:
                return
            try:
                self.module = self._attempt()
            except Exception as error:  # a loop is never worth a job
                self._failed = True
                log.warning("a loop could not be compiled, pyarrow does its work: %s: %s", type(error).__name__, error)

    @property
    def waits(self) -> bool:
        """Whether its process is over, and ``load`` would find what it made."""
        process = self._process
        return process is not None and process.poll() is not None and self.module is None and not self._failed

    def _attempt(self) -> ModuleType | None:
        if cache.compiled(self.text) and (self._process is None or self._process.poll() is not None):
            try:
                return cache.load(self.text)
            except Exception as error:
                log.info("the files of a loop are made anew: %s: %s", type(error).__name__, error)
                cache.forget(self.text)
        if self._process is None:
            self._process = cache.compile_apart(self.text)
            return None if self._process is not None else cache.load(self.text)
        if self._process.poll() is None:
            return None
        return cache.load(self.text)  # here, for if the process failed this raises the same


kernel_of: Callable[[str], Kernel] = lru_cache(maxsize=None)(Kernel)
"""The kernel of this process for a text."""
