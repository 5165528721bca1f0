"""A run of filters and projections done twice, by the operators one by one and by the loop, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from dataflow.clock import ManualClock
from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.expressions import output_schema
from dataflow.planning.operator_table import make_operator
from dataflow.planning.specs import Filter, Project
from operators.fusion import cache
from operators.fusion.operator import Fused, Patience, Spread
from operators.fusion.runs import Run, RunStep

FRESH = Patience(load=1 << 40, compile=1 << 40)
"""Nobody asks: the test loads."""


def contexts(steps: Sequence[RunStep], schema: pa.Schema) -> list[OperatorContext]:
    found = []
    for step in steps:
        made = output_schema(step.columns, schema, "test") if isinstance(step, Project) else schema
        found.append(
            OperatorContext("op", 0, 1, (schema,), made, range(128), 128, None, ManualClock(), lambda due: None)
        )
        schema = made
    return found


@dataclass
class Emitted:
    """What leaves the last operator: at most one batch, or its parts."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    parts: list[Sequence[pa.RecordBatch | None]] = field(default_factory=list)
    counts: list[Sequence[int]] = field(default_factory=list)

    def emit(self, batch: pa.RecordBatch, tag: str | None = None) -> None:
        assert batch.num_rows, "an empty batch was emitted"
        batch.validate(full=True)
        self.batches.append(batch)

    def emit_parts(self, parts: Sequence[pa.RecordBatch | None]) -> None:
        for part in parts:
            if part is not None:
                assert part.num_rows, "an empty part was emitted"
                part.validate(full=True)
        self.parts.append(parts)

    def passed(self, rows: Sequence[int]) -> None:
        self.counts.append(rows)


class OneByOne:
    """The operators of a run, each the output of the one before it; ``rows`` is what each emitted."""

    def __init__(self, steps: Sequence[RunStep], schema: pa.Schema) -> None:
        self.operators: list[Operator] = [
            make_operator(step, context)
            for step, context in zip(steps, contexts(steps, schema), strict=True)
            if isinstance(step, Filter | Project)
        ]
        self.rows = [0] * len(self.operators)

    def __call__(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        self.rows = [0] * len(self.operators)
        batches = [batch]
        for i, operator in enumerate(self.operators):
            out = Emitted()
            for each in batches:
                operator.process(0, each, out)
            batches = out.batches
            self.rows[i] = sum(each.num_rows for each in batches)
        return batches


class Looped:
    """A ``Fused`` whose loops are loaded; ``fell_back`` says that its last batch went to the first operator."""

    def __init__(
        self, steps: Sequence[RunStep], schema: pa.Schema, keys: tuple[str, ...] = (), spread: Spread | None = None
    ) -> None:
        self.plain = OneByOne(steps, schema)
        self.emitted = Emitted()
        self.fell_back = False
        first, looped = self.plain.operators[0], self

        class First(Operator):
            def process(self, port: int, batch: pa.RecordBatch, out: object) -> None:
                looped.fell_back = True
                looped.emitted.batches.extend(looped.plain(batch))

        assert first is not None
        output = contexts(steps, schema)[-1].output_schema
        self.fused = Fused(
            Run(schema, tuple(steps), keys),
            First(),
            self.emitted,
            lambda lane, job: None,
            output=output,
            spread=spread,
            patience=FRESH,
        )
        for loop in self.fused.loops.values():
            cache.load(loop.generated.text)  # compiles here, which is faster where nobody is in a hurry
            loop.kernel.load()
            assert loop.kernel.module is not None, f"not compiled:\n{loop.generated.text}"

    def __call__(self, batch: pa.RecordBatch) -> Emitted:
        self.emitted.__init__()  # type: ignore[misc]
        self.fell_back = False
        self.fused.process(0, batch, self.emitted)
        return self.emitted


def spelt(batches: Sequence[pa.RecordBatch | None]) -> list[object]:
    """Batches to compare, in which NaN is NaN and the two zeros differ."""
    return [None if batch is None else (batch.schema, *map(_bits, batch.columns)) for batch in batches]


def _bits(column: pa.Array) -> pa.Array:
    if not pa.types.is_floating(column.type):
        return column
    wide = column.cast(pa.float64())
    return pc.if_else(pc.is_nan(wide), float("nan"), wide).view(pa.int64())


def outcome(batches: object) -> object:
    """Of a call: its batches, or the error it raises."""
    try:
        return spelt(batches())  # type: ignore[operator]
    except Exception as error:
        return type(error), str(error)
