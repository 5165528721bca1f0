"""The passes that fold a batch: which fields of a record each loop over the rows changes.

A pass reads one argument and changes up to five words of a record, so that a row's record is found in the cache once:
the flags, a count, a sum and two extremes. Fields that do not fit into the passes of their argument get one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dataflow.state.arrays import GREATEST
from operators.kernels.instructions import ARGUMENTS, COUNT, EXTREME, PASS_WORDS

__all__ = ["Field", "Program", "program"]

_TOUCH = 1
"""The flag of a touched record."""

Program = list[tuple[npt.NDArray[np.int64], list[int]]]
"""The calls of ``operators.kernels.aggregate.fold``: a pass a row, and the arguments of each call."""


@dataclass(frozen=True, slots=True)
class Field:
    """One word of a record, and the operation that changes it. The kernel's docstring explains the attributes."""

    name: str
    operation: int
    word: int
    argument: int
    flip: int = 0
    mask: int = 0
    largest: int = GREATEST


@dataclass(slots=True)
class _Pass:
    """One loop over the rows where ``argument`` is not null; 0 is no argument."""

    argument: int
    flags: int = 0
    count: Field | None = None
    sum: Field | None = None
    extremes: list[Field] = field(default_factory=list)

    def add(self, new: Field) -> bool:
        """Let the pass change the word of ``new`` too; False if there is no room for it."""
        if new.operation == EXTREME:
            if len(self.extremes) == 2:
                return False
            self.extremes.append(new)
        elif new.operation == COUNT:
            if self.count is not None:
                return False
            self.count = new
        else:
            if self.sum is not None:
                return False
            self.sum = new
        return True

    def row(self) -> list[int]:
        """Return the words that describe the pass to the kernel; word 0 stands for no field."""
        total = [0, 0] if self.sum is None else [self.sum.operation, self.sum.word]
        extremes = [number for f in self.extremes for number in (f.word, f.flip, f.mask, f.largest)]
        words = [self.flags, 0 if self.count is None else self.count.word, *total, *extremes]
        return [*words, *[0] * (PASS_WORDS - len(words))]


def program(columns: Sequence[tuple[int, Sequence[Field]]], nullable: Sequence[bool]) -> Program:
    """Return the passes for ``columns``, the flag (or 0) and the fields of each aggregate.

    ``nullable`` says which arguments have nulls in this batch.

    Every row touches its record, in the first pass over all rows, which also sets the flags of aggregates without
    nulls. Their counts count rows, so any such pass may change them.
    """
    passes: list[_Pass] = []

    def place(new: Field, argument: int) -> _Pass:
        free = [p for p in passes if p.argument == argument or not (argument or nullable[p.argument])]
        chosen = next((p for p in free if p.add(new)), None)
        if chosen is None:
            passes.append(chosen := _Pass(argument))
            chosen.add(new)
        return chosen

    fields = [f for _, some in columns for f in some]
    for new in sorted(fields, key=lambda f: f.operation == COUNT):  # counts last: they fit into most passes
        place(new, 0 if new.operation == COUNT and not nullable[new.argument] else new.argument)
    touching = next((p for p in passes if not nullable[p.argument]), None)
    if touching is None:
        passes.insert(0, touching := _Pass(0))
    touching.flags = _TOUCH
    for flag, some in columns:
        argument = some[0].argument
        marking = next(p for p in passes if p.argument == argument) if nullable[argument] else touching
        marking.flags |= flag
    table = np.array([p.row() for p in passes], np.int64)
    reads = [p.argument for p in passes]
    calls = range(0, len(passes), ARGUMENTS)
    return [(table[i : i + ARGUMENTS].copy(), (reads[i:] + [0] * ARGUMENTS)[:ARGUMENTS]) for i in calls]
