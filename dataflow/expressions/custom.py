"""The declaration of a user's own aggregate: a name, functions of one value each, types, and a fingerprint.

Nothing here compiles or calls the functions: an engine does.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Final

import pyarrow as pa

__all__ = ["AggregateKernel", "PythonAggregate"]

_EXECUTED: Final = "<string>"
"""The file of all texts that ``exec`` takes, and of the program of ``python -c``.

Python 3.13 finds lines of the program there, whichever text a function is from.
"""


@dataclass(frozen=True, slots=True, eq=False)
class AggregateKernel:
    """A fold over the values of a key that are not null, built by ``operators.aggregate_kernel``; see there."""

    name: str
    init: tuple[int | float, ...]
    step: Callable[..., Any]
    merge: Callable[..., Any] | None
    finish: Callable[..., Any]
    takes: pa.DataType
    gives: pa.DataType
    fingerprint: str = field(init=False)
    """The name and a hash of all other fields; functions count by their source without comments and spaces.

    Globals that a function refers to do not count. A function without source counts by its bytecode.
    """

    def __post_init__(self) -> None:
        digest = _digest([repr(self.init), str(self.takes), str(self.gives)], self.step, self.merge, self.finish)
        object.__setattr__(self, "fingerprint", f"{self.name}:{digest}")


@dataclass(frozen=True, slots=True, eq=False)
class PythonAggregate:
    """A fold over the rows of a key, built by ``operators.aggregate_python``; see there."""

    zero: Any
    add: Callable[..., Any]
    merge: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any] | None
    state: pa.DataType
    returns: pa.DataType
    fingerprint: str = field(init=False)
    """A hash of all other fields, with functions as in ``AggregateKernel``."""

    def __post_init__(self) -> None:
        texts = [repr(self.zero), str(self.state), str(self.returns)]
        object.__setattr__(self, "fingerprint", _digest(texts, self.add, self.merge, self.finish))


def _digest(texts: list[str], *functions: Callable[..., Any] | None) -> str:
    parts = [*texts, *[_text(function) for function in functions if function is not None]]
    return hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]


def _text(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    try:
        if code is not None and code.co_filename == _EXECUTED:
            raise OSError("functions that exec() defines have no source")
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return _bytecode(code) or type(function).__name__
    try:
        return ast.unparse(ast.parse(source))
    except SyntaxError:  # a lambda in the middle of a statement
        return " ".join(source.split())


def _bytecode(code: CodeType | None) -> str:
    if code is None:
        return ""
    constants = [_bytecode(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names}"
