"""Waits for the kernels that a restore calls, inside ``start()``, where there is no job yet to ask how far it is."""

from __future__ import annotations

import sys
import threading
from typing import Final

from dataflow.runners.interrupts import CtrlC
from dataflow.runners.watching import NoLine, ProgressLine
from dataflow.runtime.loading import Loading

__all__ = ["load_kernels"]

_SLICE: Final = 0.1
"""Seconds between two looks at signals, and at the line."""


class _Meter:
    """What is compiling, for a line."""

    def __init__(self, loading: Loading) -> None:
        self._loading = loading

    def read(self) -> str:
        return str(self._loading) or "restoring"


def load_kernels(loading: Loading, line: ProgressLine | NoLine) -> None:
    """Load kernels on a thread of their own while ``line`` says what is compiling.

    Raises: KeyboardInterrupt after Ctrl-C, with a note on what was done.
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
        interrupt = KeyboardInterrupt()
        interrupt.add_note("no row had been read; run again with restore='auto' to restore the checkpoint")
        raise interrupt
