"""A run of filters and projections as the source of a module with two functions: ``choose`` and ``make``.

``choose`` finds the rows that pass all filters. The first filter is a loop over all rows that makes a mask, block by
block, and the numbers of the rows in it; each later filter is a loop over those numbers. No branch is hard to predict.
``make`` computes the columns of the chosen rows; their number is known by then, so its memory has the exact size. If
the rows go to subtasks by key, ``choose`` also finds the target of each row, and ``make`` writes the rows ordered by
target.

Both functions return -1 if an operation would raise. The checks of a projection run over exactly the rows that the
projection would see: before the next filter, or in ``make``.

A loop is generated for rows without nulls, or for rows with nulls in any column (``Nulls``). Columns that a loop cannot
copy are taken by pyarrow, or passed on unchanged if no row is dropped or moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa
from pyarrow import types

from dataflow.expressions.typing import resolve
from operators.fusion.runs import ComputedColumn, InputColumn, Run, Slot
from operators.fusion.statements import LoopValue, Statements, Unfusable, kind_of

__all__ = ["BLOCK", "Generated", "Nulls", "fuses", "source_of", "storage"]

BLOCK = 1024
"""Rows of one mask, a multiple of 8: it is read by eights, because a strict filter leaves most of them empty."""

_MOST_COPIED = 16
"""The most columns that a loop only copies: pyarrow takes the others, because each one makes compiling slower."""


class Nulls(Enum):
    """The nulls that a loop looks for: none, or in any column."""

    NONE = "none"
    ANY = "any"


def storage(dtype: pa.DataType) -> str | None:
    """Return the numpy type of a column's memory if a loop can copy it row by row; None: pyarrow must take it."""
    if types.is_dictionary(dtype):
        return storage(dtype.index_type)
    if types.is_boolean(dtype):
        return "bool"
    if types.is_float16(dtype):
        return "uint16"
    if kind_of(dtype) is None:
        return None
    if kind_of(dtype) == "float":
        return f"float{dtype.bit_width}"
    return f"{'u' if types.is_unsigned_integer(dtype) else ''}int{dtype.bit_width}"


@dataclass(frozen=True, slots=True)
class Generated:
    """A module's text, and the indices of the input columns that it reads, the output columns that it writes, and those
    of them that may get nulls.
    """

    text: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    nullable: tuple[int, ...]


def source_of(run: Run, nulls: Nulls) -> Generated:
    """Return the module of a run. Raises: Unfusable if an expression has no statements, or the keys have no words."""
    draft = _Writer(run, nulls, tuple(range(len(run.schema))))
    draft.module()
    reads = tuple(sorted(draft.used))
    final = _Writer(run, nulls, reads)
    return Generated(final.module(), reads, tuple(final.writes), tuple(final.nullable))


def fuses(run: Run) -> bool:
    """Return whether all of ``run`` can be a loop.

    >>> from dataflow import col
    >>> from dataflow.planning.specs import Filter
    >>> fuses(Run(pa.schema({"s": pa.string()}), (Filter(col("s") > "a"),)))
    False
    """
    try:
        source_of(run, Nulls.ANY)
    except Unfusable:
        return False
    return True


@dataclass
class _Body:
    """A loop body; in it, ``i`` is the input row's number."""

    statements: Statements
    stage: int
    values: dict[Slot, LoopValue] = field(default_factory=dict)


class _Writer:
    """Writes the module of a run whose loops read the input columns ``reads``."""

    def __init__(self, run: Run, nulls: Nulls, reads: Sequence[int]) -> None:
        self.run = run
        self.nulls = nulls
        self.layout = run.layout
        self.types = run.schema.types
        self.made_types = run.output.types
        self.reads = reads
        self.used: set[int] = set()
        self.writes: list[int] = []
        self.nullable: list[int] = []

    # --- values

    def body(self, stage: int) -> _Body:
        body = _Body(Statements(), stage)
        for made in self.layout.made[stage]:
            self.slot(made, body)  # also columns that are not used: they may raise
        return body

    def slot(self, slot: Slot, body: _Body) -> LoopValue:
        if slot not in body.values:
            body.values[slot] = self.load(slot, body) if isinstance(slot, InputColumn) else self.compute(slot, body)
        return body.values[slot]

    def compute(self, made: ComputedColumn, body: _Body) -> LoopValue:
        outer, body.statements.checked = body.statements.checked, made.stage == body.stage
        value = body.statements.value(made.typed, lambda label: self.slot(made.seen[label], body))
        body.statements.checked = outer
        return value

    def load(self, source: InputColumn, body: _Body) -> LoopValue:
        i, dtype = source.index, self.types[source.index]
        kind = kind_of(dtype)
        if kind is None:
            raise Unfusable(f"column {self.run.schema.names[i]!r}: no loop for {dtype}")
        self.used.add(i)
        return LoopValue(body.statements.name(_LOADS[kind].format(i)), self.valid(source, body), kind)

    def valid(self, source: InputColumn, body: _Body) -> str | None:
        i = source.index
        if self.nulls is Nulls.NONE:
            return None
        return body.statements.name(f"bit(b{i}, uint64(o{i}) + i) if b{i}.size else True")

    # --- functions

    def module(self) -> str:
        parts = [_HEAD]
        if self.run.filters or self.run.keys:
            parts.append(self.choose())
        parts.append(self.make())
        return "\n\n\n".join(parts) + "\n"

    def signature(self, name: str, before: list[tuple[str, str]], after: list[tuple[str, str]]) -> list[str]:
        columns = []
        for i in self.reads:
            dtype = storage(self.types[i]) or "uint8"  # any type will do for a draft
            columns += [(f"c{i}", "R(uint8)" if dtype == "bool" else f"R({dtype})")]
            columns += [(f"p{i}", "int64")] if dtype == "bool" else []
            columns += [(f"b{i}", "R(uint8)"), (f"o{i}", "int64")] if self.nulls is Nulls.ANY else []
        arguments = [*before, *columns, *after]
        return [
            f"@kernel(int64({', '.join(kind for _, kind in arguments)}), error_model='numpy')",
            f"def {name}({', '.join(name for name, _ in arguments)}):",
        ]

    def choose(self) -> str:
        after = [("chosen", "int32[::1]"), ("passed", "int64[::1]")]
        if self.run.keys:
            after += [("targets", "int32[::1]"), ("counts", "int64[::1]"), ("owners", "R(int32)")]
        lines = [*self.signature("choose", [("n", "int64")], after), "    bad = False"]
        for number in range(self.run.filters):
            lines += self.first() if number == 0 else self.later(number)
            lines += [f"    passed[{number}] = k", "    if bad: return -1"]
        if self.run.keys:
            lines += self.spread()
        return "\n".join([*lines, "    return " + ("k" if self.run.filters else "n")])

    def passes(self, number: int) -> tuple[list[str], str]:
        slots, schema, predicate = self.layout.before[number]
        body = self.body(number)
        typed = resolve(predicate, schema, "run")
        if not types.is_boolean(typed.dtype):
            raise Unfusable(f"{predicate} is {typed.dtype}")
        value = body.statements.value(typed, lambda label: self.slot(slots[label], body))
        return body.statements.lines, value.code if value.valid is None else f"({value.code}) & {value.valid}"

    def first(self) -> list[str]:
        lines, passes = self.passes(0)
        return [
            f"    mask = np.empty({BLOCK}, np.uint8)",
            "    eights = mask.view(np.uint64)",
            "    k = 0",
            f"    for start in range(0, n, {BLOCK}):",
            f"        rows = min({BLOCK}, n - start)",
            "        for j in range(rows):",
            "            i = uint64(start + j)",
            *(f"            {line}" for line in lines),
            f"            mask[j] = uint8({passes})",
            "        for j in range(rows, (rows + 7) & ~7):",
            "            mask[j] = 0",
            "        for eight in range((rows + 7) >> 3):",
            "            if eights[eight] != 0:",
            "                for j in range(8 * eight, 8 * eight + 8):",
            "                    chosen[uint64(k)] = start + j",
            "                    k += int64(mask[j])",
        ]

    def later(self, number: int) -> list[str]:
        lines, passes = self.passes(number)
        return [
            "    kept = 0",
            "    for j in range(k):",
            "        i = uint64(chosen[uint64(j)])",
            *(f"        {line}" for line in lines),
            "        chosen[uint64(kept)] = i",
            f"        kept += int64({passes})",
            "    k = kept",
        ]

    def spread(self) -> list[str]:
        """Return the lines that find each row's target, by the same words and hashes as ``dataflow.state.hashing``."""
        body = _Body(Statements(), self.run.filters)
        body.statements.checked = False
        hashed = ""
        for key in self.run.keys:
            one = body.statements.name(self.hashed(self.slot(self.layout.last[key], body)))
            hashed = body.statements.name(f"hash_word({hashed} * uint64(GOLDEN) + {one})") if hashed else one
        return [
            "    groups = uint64(owners.size)",
            f"    for j in range({'k' if self.run.filters else 'n'}):",
            f"        i = uint64({'chosen[uint64(j)]' if self.run.filters else 'j'})",
            *(f"        {line}" for line in body.statements.lines),
            f"        target = owners[(({hashed} >> uint64(32)) * groups) >> uint64(32)]",
            "        targets[uint64(j)] = target",
            "        counts[uint64(target)] += 1",
        ]

    def hashed(self, value: LoopValue) -> str:
        word = f"word_of({value.code})" if value.kind == "float" else f"uint64({value.code})"
        return f"hash_word({word})" + ("" if value.valid is None else f" if {value.valid} else uint64(NULL_HASH)")

    def make(self) -> str:
        stage, after = self.run.filters, []
        filtered, spread = bool(self.run.filters), bool(self.run.keys)
        body = self.body(stage)
        writes: list[str] = []
        copied = 0
        for place, slot in enumerate(self.layout.last.values()):
            dtype = self.made_types[place]
            kind = storage(dtype)
            if kind is None or (isinstance(slot, InputColumn) and not filtered and not spread):
                continue
            copied += isinstance(slot, InputColumn)
            if isinstance(slot, InputColumn) and copied > _MOST_COPIED:
                continue
            if isinstance(slot, InputColumn) and kind != "bool":
                self.used.add(slot.index)
                code, valid = f"c{slot.index}[i]", self.valid(slot, body)
            else:
                value = self.slot(slot, body)
                code, valid = value.code, value.valid
            after.append((f"r{place}", "uint8[::1]" if kind == "bool" else f"{kind}[::1]"))
            writes.append(_set_bit(f"r{place}", code) if kind == "bool" else f"r{place}[at] = {code}")
            self.writes.append(place)
            if valid is not None:
                self.nullable.append(place)
                after.append((f"n{place}", "uint8[::1]"))
                writes.append(_set_bit(f"n{place}", valid))
        before = [("k", "int64")]
        after += [("chosen", "int32[::1]")] if filtered else []
        after += [("targets", "int32[::1]"), ("places", "int64[::1]"), ("order", "int32[::1]")] if spread else []
        at = ["        to = uint64(targets[uint64(j)])", "        at = uint64(places[to])", "        places[to] += 1"]
        at += ["        order[at] = i"]
        return "\n".join(
            [
                *self.signature("make", before, after),
                "    bad = False",
                "    for j in range(k):",
                f"        i = uint64({'chosen[uint64(j)]' if filtered else 'j'})",
                *(at if spread else ["        at = uint64(j)"]),
                *(f"        {line}" for line in [*body.statements.lines, *writes]),
                "    return -1 if bad else 0",
            ]
        )


def _set_bit(bits: str, code: str) -> str:
    return f"{bits}[at >> uint64(3)] |= uint8(uint64({code}) << (at & uint64(7)))"


_LOADS = {
    "int": "int64(c{0}[i])",
    "uint": "uint64(c{0}[i])",
    "float": "float64(c{0}[i])",
    "bool": "bit(c{0}, uint64(p{0}) + i)",
}

_HEAD = '''"""Made by barrierflow."""

import numpy as np
from numba import float32, float64, int8, int16, int32, int64, types, uint8, uint16, uint32, uint64

from dataflow.kernel_cache.decorator import kernel
from dataflow.state.kernels.words import GOLDEN, NULL_HASH, hash_word
from operators.kernels.arithmetic import (
    bit,
    multiply,
    multiply_overflows,
    multiply_unsigned,
    multiply_unsigned_overflows,
    quotient,
    quotient_unsigned,
    remainder,
    remainder_unsigned,
    word_of,
)


def R(kind):
    return types.Array(kind, 1, "C", readonly=True)'''
