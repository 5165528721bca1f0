"""Sources and sinks with a schema only, in plans for workers that neither read nor write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.contracts.sink import Sink
from dataflow.contracts.source import Json, Source, SourceContext, Split, SplitReader

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["PlaceholderSink", "PlaceholderSource"]


class PlaceholderSource(Source):
    """A source with a schema only: takes the place of a source in plans for workers that do not read it."""

    def __init__(self, schema: pa.Schema, sides: Mapping[str, pa.Schema]) -> None:
        self._schema = schema
        self._sides = sides

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def sides(self) -> Mapping[str, pa.Schema]:
        return self._sides

    def splits(self) -> Sequence[Split]:
        raise AssertionError("a placeholder for a source is not read")

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        raise AssertionError("a placeholder for a source is not read")


class PlaceholderSink(Sink):
    """Takes the place of a sink of the driver in plans for workers."""

    def writer(self, context: OperatorContext) -> Operator:
        raise AssertionError("a placeholder for a sink is not written to")
