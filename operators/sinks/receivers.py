"""Writers that pass rows to a function of the user, or to an object with hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataflow.contracts.operator import Operator, Out, Snapshot
from dataflow.errors import ConfigurationError

__all__ = ["ReceiverWriter", "checked_receiver"]


class ReceiverWriter(Operator):
    """Calls the receiver of one subtask. If it has ``flush()``, that must deliver all rows that it holds back."""

    blocking = True

    def __init__(self, receiver: Callable[..., object]) -> None:
        self.receiver = receiver

    def snapshot(self) -> Snapshot:
        self._call_hook("flush")
        return Snapshot()

    def finish(self, out: Out) -> None:
        self._call_hook("flush")

    def close(self) -> None:
        self._call_hook("close")

    def _call_hook(self, name: str) -> None:
        hook = getattr(self.receiver, name, None)
        if callable(hook):
            hook()


def checked_receiver(receiver: Any, called: str, sink: str) -> Callable[..., object]:
    """Return what a factory returned. Raises: ConfigurationError if it cannot be called."""
    if not callable(receiver):
        raise ConfigurationError(
            f"sink {sink!r}: {called}(factory=) must return something that can be called with a batch, it returned a "
            f"{type(receiver).__name__}"
        )
    return receiver
