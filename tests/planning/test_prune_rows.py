"""The conditions that sources get from filters: only where a row that is left out could change nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow.contracts.source import Condition, Json, Source, SourceContext, Split, SplitReader
from dataflow.errors import GraphError
from dataflow.expressions import col, lit
from dataflow.planning.physical_plan import make_plan
from dataflow.planning.specs import Read

SCHEMA = pa.schema({
    "a": pa.int64(), "b": pa.int64(), "f": pa.float64(), "s": pa.string(), "t": pa.timestamp("us", "UTC"),
})  # fmt: skip


class Told(Source):
    """Remembers the conditions that it was told."""

    schema = SCHEMA

    def __init__(self, conditions: Sequence[Condition] = ()) -> None:
        self.conditions = list(conditions)

    def splits(self) -> list[Split]:
        return []

    def reader(self, split: Split, offset: Json, context: SourceContext) -> SplitReader:
        raise AssertionError("nothing is read")

    def skipping(self, conditions: Sequence[Condition]) -> Source:
        return Told([*self.conditions, *conditions])


def told(build: Callable[[flow.Stream], flow.Stream], parallelism: int = 1) -> list[str]:
    p = flow.Pipeline()
    build(p.source(Told())).sink(op.collect())
    spec = make_plan(p.graph, parallelism=parallelism).graph.nodes[0].spec
    assert isinstance(spec, Read)
    assert isinstance(spec.source, Told)
    return [f"{c.column} {c.operator} {c.value.as_py()}" for c in spec.source.conditions]


def test_each_comparison_with_a_constant_that_a_filter_needs_is_a_condition() -> None:
    assert told(lambda s: s.filter((col("a") > 1) & (lit(2) > col("b")) & (col("a") < col("b")))) == ["a > 1", "b < 2"]
    assert told(lambda s: s.filter((col("a") > 1) | (col("b") < 2))) == []
    assert told(lambda s: s.filter(~(col("a") > 1))) == []
    assert told(lambda s: s.filter((col("f") != 1) & (col("s") == "x"))) == ["f != 1.0", "s == x"]
    assert told(lambda s: s.filter((col("f") > float("nan")) & (col("f") > lit(None)))) == []


def test_filters_are_followed_through_each_other_and_through_columns_that_are_renamed() -> None:
    def build(stream: flow.Stream) -> flow.Stream:
        return stream.filter(col("a") > 1).select({"a": "b"}, "s").filter(col("a") < 9).filter(col("s") > "x")

    assert told(build) == ["a > 1", "b < 9", "s > x"]
    assert told(lambda s: s.select({"a": "b"}, {"b": "a"}).select({"a": "b"}, {"b": "a"}).filter(col("a") > 1)) == [
        "a > 1"
    ]
    assert told(lambda s: s.with_columns(a=col("f") / 2).filter((col("a") > 1) & (col("b") > 2))) == ["b > 2"]


AFTER: dict[str, Callable[[flow.Stream], flow.Stream]] = {
    "a filter that may raise": lambda s: s.filter(col("b") + 1 > 5),
    "a comparison that may raise beside one that cannot": lambda s: s.filter((col("a") > 5) & (col("b") * 2 > 5)),
    "a column that may raise": lambda s: s.with_columns(c=col("s").cast("int64")),
    "a function of batches": lambda s: s.map_batches(lambda batch: batch, schema=SCHEMA),
    "event time": lambda s: s.with_watermark("t"),
    "another operator": lambda s: s.apply(flow.Operator),
    "a union": lambda s: s.union(s),
    "a shuffle": lambda s: s.rebalance(),
    "more subtasks": lambda s: s.filter(col("a") > 0, parallelism=3),
}


@pytest.mark.parametrize("name", AFTER)
def test_a_filter_is_no_condition_after(name: str) -> None:
    assert told(lambda s: s.filter(col("a") > 0).filter(col("b") > 0)) == ["a > 0", "b > 0"]
    build = AFTER[name]
    assert told(lambda s: build(s.filter(col("a") > 0)).filter(col("b") > 0)) == ["a > 0"]


@dataclass(frozen=True)
class Above(flow.Spec):
    """An operator of a user that passes on the rows with ``column`` above ``limit``."""

    column: str
    limit: int

    @property
    def condition(self) -> flow.Expr:  # type: ignore[override]
        return col(self.column) > self.limit

    @property
    def expressions(self) -> Sequence[flow.Expr]:  # type: ignore[override]
        return (self.condition,)

    def origin_of(self, column: str) -> str:
        return column


def test_an_operator_of_a_user_may_have_a_condition() -> None:
    assert told(lambda s: s.then(Above("a", 1)).select(c="b").filter(col("c") > 2)) == ["a > 1", "b > 2"]
    assert told(lambda s: s.then(Above("a", 1), sides={"rest": None}).filter(col("b") > 2)) == []


def test_a_second_consumer_sees_every_row() -> None:
    p = flow.Pipeline()
    rows = p.source(Told())
    rows.filter(col("a") > 1).sink(op.collect(), name="some")
    rows.sink(op.collect(), name="all")
    spec = make_plan(p.graph).graph.nodes[0].spec
    assert isinstance(spec, Read)
    assert isinstance(spec.source, Told)
    assert spec.source.conditions == []


def test_a_filter_with_two_consumers_counts_but_those_after_it_do_not() -> None:
    def build(stream: flow.Stream) -> flow.Stream:
        passed = stream.filter(col("a") > 1)
        passed.sink(op.collect(), name="other")
        return passed.filter(col("b") > 2)

    assert told(build) == ["a > 1"]


def test_comparisons_are_in_the_type_in_which_the_filter_compares() -> None:
    p = flow.Pipeline()
    p.source(Told()).filter((col("a") > 1.5) & (col("f") > 1)).sink(op.collect())
    spec = make_plan(p.graph).graph.nodes[0].spec
    assert isinstance(spec, Read)
    assert isinstance(spec.source, Told)
    assert [c.value.type for c in spec.source.conditions] == [pa.float64(), pa.float64()]


def test_a_source_that_returns_something_else_is_blamed() -> None:
    class Wrong(Told):
        def skipping(self, conditions: Sequence[Condition]) -> Source:
            return None  # type: ignore[return-value]

    p = flow.Pipeline()
    p.source(Wrong(), name="in").filter(col("a") > 1).sink(op.collect())
    with pytest.raises(GraphError, match=r"source 'in' \(Wrong\): skipping\(conditions\) must return a Source"):
        make_plan(p.graph)
