"""Ctrl-C as a count instead of an exception that may strike anywhere.

KeyboardInterrupt can be raised between any two instructions of the main thread, also while it holds the lock inside a
``threading.Event``, which then stays locked for ever. And a signal that comes right before a wait without end is only
seen behind it. So whoever waits for a job counts signals, and waits in slices.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

__all__ = ["CtrlC"]


class CtrlC:
    """While entered, Ctrl-C adds one to ``count`` and does nothing else.

    It steps in for Python's own handler only, and in the main thread only; a handler that somebody installed stays.

    >>> with CtrlC() as pressed:
    ...     signal.raise_signal(signal.SIGINT)
    ...     pressed.count
    1
    """

    def __init__(self) -> None:
        self.count = 0
        self._installed = False

    def __enter__(self) -> Self:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._add)
            self._installed = True
        return self

    def _add(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
