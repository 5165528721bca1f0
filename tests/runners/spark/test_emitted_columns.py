"""In a worker, too, columns of users' operators and readers are found by name, and errors name operator or source."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import END, SourceContext, Split, SplitReader
from dataflow.errors import SchemaMismatch
from dataflow.runners.spark.runner import SparkRunner

AWB = pa.schema({"a": pa.int64(), "w": pa.int64(), "b": pa.int64()})
ABW = pa.schema({"a": pa.int64(), "b": pa.int64(), "w": pa.int64()})


class Reader(SplitReader):
    """Gives one batch of ``columns``."""

    offset = None

    def __init__(self, offset: Any, columns: list[str]) -> None:
        self.columns, self.offset = columns, offset

    def poll(self, max_rows: int) -> Any:
        if self.offset is not None:
            return END
        self.offset = 1
        return pa.record_batch([[1, 2], [10, 20], [7, 8]], schema=ABW).select(self.columns)


class Given(flow.Source):
    """Declares the columns a, w and b, and gives ``columns``."""

    schema = AWB

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns

    def splits(self) -> list[Split]:
        return [Split("one")]

    def reader(self, split: Split, offset: Any, context: SourceContext) -> Reader:
        return Reader(offset, self.columns)


class Chosen(flow.Operator):
    """Emits ``columns`` of what it takes."""

    def __init__(self, context: flow.OperatorContext, columns: list[str]) -> None:
        self.columns = columns

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch.select(self.columns))
        out.emit(batch.select(self.columns), tag="again")


def collected(spark: Any, read: list[str], emitted: list[str]) -> dict[str, pa.Table]:
    with flow.Pipeline() as p:
        rows = p.source(Given(read), name="given").key_by("a")
        mine = rows.apply(lambda context: Chosen(context, emitted), schema=AWB, sides={"again": None}, name="mine")
        mine.sink(op.collect(), name="out")
        mine.side("again").sink(op.collect(), name="again")
    return dict(p.run(SparkRunner(spark), parallelism=1, max_key_groups=2, timeout="2min").tables)


@pytest.mark.soak
def test_columns_in_another_order_keep_their_names_in_a_worker(spark: Any) -> None:
    expected = [{"a": 1, "w": 7, "b": 10}, {"a": 2, "w": 8, "b": 20}]
    tables = collected(spark, ["a", "b", "w"], ["w", "b", "a"])
    assert [table.sort_by("a").to_pylist() for table in tables.values()] == [expected, expected]


@pytest.mark.soak
def test_an_operator_that_emits_other_columns_in_a_worker_is_named(spark: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"operator 'mine', subtask mine\[.*column 'b' \(int64\) is missing"):
        collected(spark, ["a", "b", "w"], ["a", "w"])


def test_a_reader_that_gives_other_columns_in_a_worker_is_named(spark: Any) -> None:
    with pytest.raises(SchemaMismatch, match=r"source 'given' .*subtask given\[0\].*column 'w' \(int64\) is missing"):
        collected(spark, ["a", "b"], ["a"])
