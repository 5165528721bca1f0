"""A run: consecutive filters and projections, and the origin of each of its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from dataflow.expressions import Expr, output_schema
from dataflow.expressions.nodes import Alias, Column
from dataflow.expressions.typing import Typed, resolve
from dataflow.planning.specs import Filter, Project
from operators.fusion.statements import Unfusable

__all__ = ["Columns", "RunColumns", "ComputedColumn", "Run", "Slot", "InputColumn", "RunStep"]

RunStep = Filter | Project


@dataclass(frozen=True, slots=True, eq=False)
class InputColumn:
    """A column of the input, by its index."""

    index: int


@dataclass(frozen=True, slots=True, eq=False)
class ComputedColumn:
    """A column that a projection computes from its input columns, ``seen``. ``stage`` counts the filters before it."""

    typed: Typed
    seen: Columns
    stage: int


Slot = InputColumn | ComputedColumn
Columns = Mapping[str, Slot]


@dataclass(frozen=True)  # without slots, for the cached properties: types of many columns take time
class Run:
    """Consecutive filters and projections over rows of ``schema``; ``keys``: columns to split the output by, if any.

    >>> from dataflow import col
    >>> run = Run(pa.schema({"a": pa.int64(), "s": pa.string()}), (Filter(col("a") > 1), Project((col("s"),))))
    >>> run.output.names, run.filters
    (['s'], 1)
    """

    schema: pa.Schema
    steps: tuple[RunStep, ...]
    keys: tuple[str, ...] = ()

    @property
    def filters(self) -> int:
        return sum(isinstance(step, Filter) for step in self.steps)

    @cached_property
    def output(self) -> pa.Schema:
        """The schema of the last step's output."""
        schema = self.schema
        for step in self.steps:
            schema = output_schema(step.columns, schema, "run") if isinstance(step, Project) else schema
        return schema

    @cached_property
    def layout(self) -> RunColumns:
        """The columns after each step. Raises: Unfusable."""
        return RunColumns(self)

    @property
    def columns(self) -> tuple[Slot, ...]:
        """The origin of each column of the output."""
        return tuple(self.layout.last.values())

    @property
    def operations(self) -> int:
        """The number of operations in the expressions, as a measure of the time that one pass saves."""
        exprs = [e for s in self.steps for e in (s.columns if isinstance(s, Project) else (s.predicate,))]
        return sum(map(_operations, exprs))


def _operations(expr: Expr) -> int:
    return sum(map(_operations, expr.operands())) + bool(expr.operands()) - isinstance(expr, Alias)


class RunColumns:
    """The columns after each step: ``before[i]`` has the input columns of filter i, their schema and its predicate."""

    def __init__(self, run: Run) -> None:
        schema = run.schema
        columns: Columns = {name: InputColumn(i) for i, name in enumerate(schema.names)}
        self.before: list[tuple[Columns, pa.Schema, Expr]] = []
        self.made: list[list[ComputedColumn]] = [[]]
        for step in run.steps:
            if isinstance(step, Filter):
                self.before.append((columns, schema, step.predicate))
                self.made.append([])
                continue
            if not step.columns:
                raise Unfusable("a projection on no columns still has rows")
            columns = {expr.name: self._slot(expr, columns, schema) for expr in step.columns}
            schema = output_schema(step.columns, schema, "run")
        self.last = columns

    def _slot(self, expr: Expr, seen: Columns, schema: pa.Schema) -> Slot:
        plain = expr
        while isinstance(plain, Alias):
            plain = plain.operand
        if isinstance(plain, Column):
            return seen[plain.label]
        slot = ComputedColumn(resolve(expr, schema, "run"), seen, len(self.before))
        self.made[-1].append(slot)
        return slot
