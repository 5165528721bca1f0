"""Stand-ins for sources and sinks in plans that go to workers which have nothing to do with them.

A table to read from, an open file to print to: what need not travel is not pickled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from dataflow.contracts.operator import Operator, OperatorContext
from dataflow.contracts.sink import Sink
from dataflow.contracts.source import Json, Source, SourceContext, Split, SplitReader

__all__ = ["NoSink", "NoSource"]


class NoSource(Source):
    """A source with columns and nothing else."""

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
        raise AssertionError("a stand-in for a source is not read")

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        raise AssertionError("a stand-in for a source is not read")


class NoSink(Sink):
    """A sink that nobody writes to."""

    def writer(self, context: OperatorContext) -> Operator:
        raise AssertionError("a stand-in for a sink is not written to")
