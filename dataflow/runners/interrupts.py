"""Ctrl-C as a count instead of an exception that may strike anywhere.

KeyboardInterrupt can be raised between any two instructions of the main thread, also while it holds the lock inside a
``threading.Event``, which then stays locked for ever. And a signal that comes right before a wait without end is only
seen behind it. So whoever waits for a job counts signals, and waits in slices.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

__all__ = ["CtrlC"]


class CtrlC:
    """While entered, Ctrl-C adds one to ``count`` and does nothing else.

    It steps in for Python's own handler, or one of which ``replaces`` says that it does no better, and in the main
    thread only; a handler that somebody else installed stays. Afterwards everything is as it was found.

    >>> with CtrlC() as pressed:
    ...     signal.raise_signal(signal.SIGINT)
    ...     pressed.count
    1
    """

    def __init__(self, replaces: Callable[[Any], bool] = lambda handler: False) -> None:
        self.count = 0
        self._replaces = replaces
        self._found: Any = None

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        ordinary = handler is signal.default_int_handler or self._replaces(handler)
        if ordinary and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._add)
            self._found = handler
        return self

    def _add(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._found is not None:
            signal.signal(signal.SIGINT, self._found)
