"""Constants of the library that a test sets to force a path, which fails if the path then does not run.

A test of a rare path with a limit of its own goes on passing when the limit moves or means something else, but it does
not test anything any more. So each such test names what only runs on that path.

>>> from dataflow.runtime.job import checkpoint_history
>>> from dataflow.runtime.job.checkpoint_history import CheckpointHistory
>>> with forced(checkpoint_history, "KEPT", 10, calls=CheckpointHistory.mark_durable):
...     pass
Traceback (most recent call last):
    ...
AssertionError: KEPT = 10 forces nothing: CheckpointHistory.mark_durable was called 0 times instead of 1 or more
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["Force", "counted_calls", "forced"]

Force = Callable[..., None]
"""The fixture ``force``: it takes what `forced` takes, and counts until the test ends."""


class Calls:
    """The number of calls of a function: all, and the most within one call of another function."""

    def __init__(self) -> None:
        self.total = self.most = self.now = 0

    def add(self) -> None:
        self.total, self.now = self.total + 1, self.now + 1
        self.most = max(self.most, self.now)

    def begin(self) -> None:
        self.now = 0


@contextmanager
def forced(
    where: object,
    name: str,
    value: object,
    *,
    calls: Callable[..., Any] | None = None,
    times: int = 1,
    within: Callable[..., Any] | None = None,
    without: Callable[..., Any] | None = None,
    giving: Callable[[Any], bool] | None = None,
) -> Iterator[None]:
    """Set a constant for a while, and show that a path ran because of it.

    Args:
        where: the module or class that has the constant.
        name: its name.
        value: its value meanwhile.
        calls: a function, method or property that is called on the forced path only.
        times: how often it is called at least.
        within: a function, in one call of which it is called so often: for what is done piece by piece.
        without: a function that is called on the other path only, in place of ``calls``: it must not be called.
        giving: counts only the calls that return such a value.

    Raises: AssertionError if the path did not run.
    """
    assert (calls is None) != (without is None), f"{name}: name what runs if it is {value!r}, or what does not"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, value)
        with counted_calls(calls or without, within=within, giving=giving) as counted:
            yield
    count = counted.total if within is None else counted.most
    enough, expected = (count >= times, f"{times} or more") if without is None else (count == 0, "0")
    called = f"{_title(calls or without)} was called {count} times instead of {expected}"
    assert enough, f"{name} = {value!r} forces nothing: {called}"


@contextmanager
def counted_calls(function: Any, *, within: Any = None, giving: Callable[[Any], bool] | None = None) -> Iterator[Calls]:
    """Count the calls of a function, wherever the library has it; see `forced`."""
    calls = Calls()
    with pytest.MonkeyPatch.context() as patch:

        def after(result: Any) -> None:
            if giving is None or giving(result):
                calls.add()

        _wrap(patch, function, after=after)
        if within is not None:
            _wrap(patch, within, before=calls.begin)
        yield calls


def _title(function: Any) -> str:
    return str(getattr(function, "fget", function).__qualname__)


def _wrap(
    patch: pytest.MonkeyPatch,
    function: Any,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[Any], None] = lambda _: None,
) -> None:
    plain = getattr(function, "fget", function)

    @functools.wraps(plain)
    def wrapper(*args: Any, **options: Any) -> Any:
        before()
        result = plain(*args, **options)
        after(result)
        return result

    *classes, name = plain.__qualname__.split(".")
    if not classes:
        for path, module in list(sys.modules.items()):
            if path.startswith(("dataflow.", "operators.", "benchmarks.")) and vars(module).get(name) is plain:
                patch.setattr(module, name, wrapper)
        return
    owner = functools.reduce(getattr, classes, sys.modules[plain.__module__])
    as_stored = vars(owner)[name]
    patch.setattr(owner, name, type(as_stored)(wrapper) if isinstance(as_stored, property | staticmethod) else wrapper)
