"""Writers that pass rows to a function of the user, or to an object with hooks.

The function is made when the writer is opened: its state is restored before, to see whether a checkpoint is damaged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.errors import ConfigurationError

__all__ = ["ReceiverWriter", "checked_function"]


class ReceiverWriter(Operator):
    """Calls the receiver of one subtask. If it has ``flush()``, that must deliver all rows that it holds back."""

    blocking = True
    receiver: Any = None

    def __init__(self, context: OperatorContext, factory: Callable[[OperatorContext], Any], called: str) -> None:
        self._context = context
        self._factory = factory
        self._called = called

    def open(self) -> None:
        self.receiver = self._factory(self._context)
        if not callable(self.receiver):
            raise ConfigurationError(
                f"sink {self._context.name!r}: {self._called}(factory=) must return something that can be called with "
                f"a batch, it returned a {type(self.receiver).__name__}"
            )

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


def checked_function(given: Any, called: str, arguments: Sequence[str] = ()) -> str:
    """Return the name of a user's function; ``arguments``: what it is called with, if it must take several.

    Raises: ConfigurationError if a call of it would not run it.
    """
    name: str = getattr(given, "__qualname__", type(given).__name__)
    if not callable(given) or inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(given):
        raise ConfigurationError(
            f"{called}: expected a plain function, got {name} ({type(given).__name__}); one that is async or "
            "yields does nothing when it is called"
        )
    if arguments and not _takes(given, len(arguments)):
        raise ConfigurationError(
            f"{called}: expected a function that is called as function({', '.join(arguments)}), got {name}"
            f"{inspect.signature(given)}"
        )
    return name


def _takes(given: Any, count: int) -> bool:
    """Return whether a function takes ``count`` arguments; of some functions in C this is not known, and may be."""
    try:
        inspect.signature(given).bind(*[None] * count)
    except ValueError:
        return True
    except TypeError:
        return False
    return True
