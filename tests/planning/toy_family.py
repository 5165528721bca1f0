"""Kinds of operators that the library does not have.

`Ordinals` adds the number of rows before a row that had its key; `SplitOdd` has a side output.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

import dataflow as flow

__all__ = ["Ordinals", "OrdinalsOperator", "SplitOdd", "ordinals"]


@dataclass(frozen=True)
class Ordinals(flow.Spec):
    """Adds column ``name`` to rows that are partitioned by ``key``."""

    key: str
    name: str = "ordinal"

    def detail(self) -> dict[str, object]:  # type: ignore[override]
        return {"key": self.key}

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {self.key, *used} - {self.name}

    def origin_of(self, column: str) -> str | None:
        return None if column == self.name else column


class OrdinalsOperator(flow.Operator):
    """Counts the rows of each key."""

    def __init__(self, context: flow.OperatorContext, key: str, name: str) -> None:
        self.key, self.name = key, name
        restored = context.restored.tables.get("counts") if context.restored else None
        self.counts: dict[str, int] = {}
        if isinstance(restored, pa.Table):
            self.counts = dict(zip(restored["key"].to_pylist(), restored["n"].to_pylist(), strict=True))

    @classmethod
    def show(cls, spec: Ordinals, snapshot: flow.Snapshot, inputs: object, output: object) -> flow.Snapshot:
        counts = snapshot.tables["counts"]
        assert isinstance(counts, pa.Table)
        return flow.Snapshot({"keys": counts.num_rows}, {"rows": counts.rename_columns([spec.key, "n"])})

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        ordinals = []
        for key in batch.column(self.key).to_pylist():
            ordinals.append(self.counts.get(key, 0))
            self.counts[key] = ordinals[-1] + 1
        out.emit(batch.append_column(self.name, pa.array(ordinals, pa.int64())))

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(tables={"counts": pa.table({"key": list(self.counts), "n": list(self.counts.values())})})


flow.register(Ordinals, f"{__name__}:OrdinalsOperator")


def ordinals(stream: flow.Stream, key: str) -> flow.Stream:
    """Return the rows of ``stream`` with their ordinals."""
    schema = stream.schema.append(pa.field("ordinal", pa.int64()))
    return stream.key_by(key).then(Ordinals(key), schema=schema)


@dataclass(frozen=True)
class SplitOdd(flow.Spec):
    """Passes rows with an even number in ``column`` on, and sends the others to side output "odd"."""

    stateful = False
    row_wise = True

    column: str

    def reads(self, port: int, used: set[str]) -> Iterable[str]:
        return {self.column, *used}

    def origin_of(self, column: str) -> str:
        return column


class SplitOddOperator(flow.Operator):
    """Emits each batch in two parts."""

    stateless = True

    def __init__(self, context: flow.OperatorContext, column: str) -> None:
        self.column = column

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        odd = pc.equal(pc.bit_wise_and(batch.column(self.column), 1), 1)
        out.emit(batch.filter(odd), "odd")
        out.emit(batch.filter(pc.invert(odd)))


flow.register(SplitOdd, SplitOddOperator)
