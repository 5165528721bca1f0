"""What an aggregate of one's own is to a graph: a name, functions of one value each, types, and a fingerprint.

Nothing here compiles or calls them: an engine does.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

__all__ = ["AggregateKernel"]


@dataclass(frozen=True, slots=True, eq=False)
class AggregateKernel:
    """A fold over the values of a key that are not null; ``operators.aggregate_kernel`` makes one, and says how."""

    name: str
    init: tuple[int | float, ...]
    step: Callable[..., Any]
    merge: Callable[..., Any] | None
    finish: Callable[..., Any]
    takes: pa.DataType
    gives: pa.DataType

    def fingerprint(self) -> str:
        """The name and a hash of everything else: of functions the text, less comments and spaces.

        What a function refers to outside of itself is not in it. Without its source, its bytecode stands for it.
        """
        parts = [repr(self.init), str(self.takes), str(self.gives)]
        parts += [_text(function) for function in (self.step, self.merge, self.finish) if function is not None]
        return f"{self.name}:{hashlib.sha256(chr(0).join(parts).encode()).hexdigest()[:12]}"


def _text(function: Callable[..., Any]) -> str:
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        code: Any = getattr(function, "__code__", None)
        return repr(function) if code is None else f"{code.co_code.hex()} {code.co_consts!r} {code.co_names!r}"
    try:
        return ast.unparse(ast.parse(source))
    except SyntaxError:  # a lambda in the middle of a statement
        return " ".join(source.split())
