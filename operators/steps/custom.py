"""Aggregates of users: their functions, compiled, and the loops over rows and records around them.

A loop is compiled for each kernel, once a process: numba cannot cache it in a file, because it contains a function
passed in at run time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

import numpy as np
import pyarrow as pa

from dataflow.errors import ConfigurationError
from dataflow.expressions.custom import AggregateKernel
from dataflow.state.arrays import from_words, validity, words
from dataflow.state.copy_on_write import CopyOnWriteRows
from dataflow.state.index import Slots
from operators.steps.step import Rows, Step, StepPlace, seen

__all__ = ["CustomStep", "compiled"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """The loops of a kernel: see ``operators.kernels.custom``."""

    fold: Callable[..., Any]
    merge: Callable[..., Any] | None
    finish: Callable[..., Any]


class CustomStep(Step):
    """A user's aggregate; its state is one word per number, ints or the bits of floats."""

    def __init__(self, place: StepPlace, kernel: AggregateKernel) -> None:
        super().__init__(place)
        self._compiled = compiled(kernel)
        init = np.array(kernel.init)
        self.initial = tuple(init.view(np.int64).tolist())
        type_ = pa.float64() if init.dtype.kind == "f" else pa.int64()
        self.words = tuple((f"{i}", type_) for i in range(len(init)))
        self.mergeable = kernel.merge is not None

    def fold(self, rows: CopyOnWriteRows, slots: Slots, inputs: Sequence[pa.Array]) -> None:
        (array,) = inputs
        where = (self.place.word, len(self.initial), self.place.flag)
        self._compiled.fold(rows.rows, slots, words(array), *validity(array), *where)

    def merge(self, records: Rows, slots: Slots, partials: Rows) -> None:
        assert self._compiled.merge is not None, f"{self.name} does not merge"
        where = (self.place.word, len(self.initial), self.place.flag)
        self._compiled.merge(records, slots, partials, *where)

    def read(self, records: Rows, always: int) -> pa.Array:
        out = np.zeros(len(records), np.int64)
        self._compiled.finish(records, self.place.word, len(self.initial), self.place.flag, out)
        return from_words(out, self.dtype, seen(self.place.flag, records, always))


@lru_cache(maxsize=256)
def compiled(kernel: AggregateKernel) -> Compiled:
    """Return the loops of ``kernel``. Raises ``ConfigurationError`` if numba cannot compile one of its functions."""
    from numba.core.errors import NumbaError

    from operators.kernels import custom

    integers = all(type(number) is int for number in kernel.init)
    state = np.int64 if integers else np.float64
    loops: list[Any] = []
    for role, make, function, dtype in (
        ("step", custom.fold_loop, kernel.step, kernel.takes),
        ("merge", custom.merge_loop, kernel.merge, kernel.takes),
        ("finish", custom.finish_loop, kernel.finish, kernel.gives),
    ):
        if function is None:
            loops.append(None)
            continue
        try:
            loops.append(_loop(make, function, state, np.float64 if pa.types.is_floating(dtype) else np.int64))
        except (NumbaError, TypeError) as error:
            raise ConfigurationError(
                f"aggregate_kernel {kernel.name!r}: {role} does not compile: {_shortened(error)}; it must take "
                f"{_SIGNATURES[role].format(state.__name__, kernel.takes)} and use only what numba compiles"
            ) from error
    return Compiled(*loops)


@lru_cache(maxsize=256)
def _loop(make: Callable[..., Any], function: Callable[..., Any], state: type, dtype: type) -> Any:
    """Return the loop around ``function``; kernels with the same function share its loop."""
    return make(function, state, dtype)


_SIGNATURES = {
    "step": "(state: {0}[:], value: {1})",
    "merge": "(state: {0}[:], other: {0}[:])",
    "finish": "(state: {0}[:])",
}

_NOISE = re.compile(r"^(Failed in |Overload|There are|>>>|- Of which)")


def _shortened(error: Exception) -> str:
    """Return the lines of numba's message that say what is wrong, without its locations."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()]
    head = [line for line in takewhile(lambda line: not line.startswith(("File ", "During:")), lines) if line]
    return " ".join([line for line in head if not _NOISE.match(line)][:2]) or type(error).__name__
