"""Wait for kernels that are being compiled: inside ``start()`` before a restore, and after Ctrl-C."""

from __future__ import annotations

import sys
import threading
from typing import Final

from dataflow.runners.interrupts import CtrlC
from dataflow.runners.job_progress import NoLine, ProgressLine
from dataflow.runtime.task.kernel_loading import KernelLoader

__all__ = ["load_kernels", "wait_for_import"]

_SLICE: Final = 0.1
"""Seconds between two checks for signals and updates of the line."""


class _Meter:
    """The text about the kernels being compiled, for a progress line."""

    def __init__(self, loading: KernelLoader) -> None:
        self._loading = loading

    def read(self) -> str:
        return str(self._loading) or "restoring"


def load_kernels(loading: KernelLoader, line: ProgressLine | NoLine) -> None:
    """Load kernels on a separate thread while ``line`` shows what is being compiled.

    Raises: KeyboardInterrupt after Ctrl-C, with a note about the state of the job.
    """
    if loading.done:
        return
    line.follow(_Meter(loading))
    loaded = threading.Event()
    with CtrlC() as pressed:
        loading.start(loaded.set)
        while not loaded.wait(_SLICE) and not pressed.count:
            line.tick()
        if pressed.count:
            loading.stop()
            line.leave()
            print("interrupted: kernels were being compiled, and nothing was restored", file=sys.stderr, flush=True)
            wait_for_import(loading, pressed)
    if pressed.count:
        interrupt = KeyboardInterrupt()
        interrupt.add_note("no row had been read; run again with restore='auto' to restore the checkpoint")
        raise interrupt


def wait_for_import(loading: KernelLoader, pressed: CtrlC) -> None:
    """Wait until no kernels are being imported, or until Ctrl-C is pressed for the second time.

    A process that ends with KeyboardInterrupt reports that to the shell by the signal. CPython forgets it, and exits
    with code 1, if a thread runs ``exec`` on a text after the main thread is done. numba does so while it compiles.
    """
    while pressed.count < 2 and not loading.ended(_SLICE):
        pass
