"""Count Ctrl-C, and SIGTERM where it acts as Ctrl-C, instead of raising an exception at an arbitrary point.

KeyboardInterrupt can be raised between any two instructions of the main thread, also while it holds the lock inside a
``threading.Event``, which then stays locked for ever. A signal that arrives right before a wait without a timeout is
only handled after it. So a thread that waits for a job counts signals, and waits in slices.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final, Self

__all__ = ["CtrlC", "sigterm_as_ctrl_c"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class CtrlC:
    """While entered, Ctrl-C adds one to ``count`` and has no other effect; so does SIGTERM if it acts as Ctrl-C.

    It replaces only Python's own handler, which raises KeyboardInterrupt, or a handler for which ``replaces`` returns
    True, and only in the main thread; any other handler stays installed. SIGTERM has Python's handler only inside
    `sigterm_as_ctrl_c`, or if a user installed it. On exit the previous handlers are restored.

    >>> with CtrlC() as pressed:
    ...     signal.raise_signal(signal.SIGINT)
    ...     pressed.count
    1
    """

    def __init__(self, replaces: Callable[[Any], bool] = lambda handler: False) -> None:
        self.count = 0
        self._replaces = replaces
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                handler = signal.getsignal(number)
                if handler is signal.default_int_handler or self._replaces(handler):
                    signal.signal(number, self._add)
                    self._previous[number] = handler
        return self

    def _add(self, number: int, frame: FrameType | None) -> None:
        self.count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """Within the block, SIGTERM acts as Ctrl-C: it raises KeyboardInterrupt, or is counted by a `CtrlC`.

    This also holds if SIGINT is ignored, as in a process that a shell script started in the background. In another
    thread than the main one it changes nothing, because Python handles signals in the main thread.

    >>> with sigterm_as_ctrl_c(), CtrlC() as pressed:
    ...     signal.raise_signal(signal.SIGTERM)
    ...     pressed.count
    1
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
