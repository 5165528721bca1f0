"""What the tests of agreement ask of both engines: a pipeline's rows, and those of a query over the same files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.expressions import Aggregation
from tests.agreement.data import SUMMED

__all__ = [
    "ALL",
    "FEW",
    "MERGEABLE",
    "Asked",
    "aggregated",
    "aggregated_by_each",
    "grouped",
    "queried",
    "quoted",
    "summed",
]


def quoted(name: object) -> str:
    """A column's name in SQL."""
    return f'"{name}"'


@dataclass(frozen=True, slots=True)
class Asked:
    """An aggregate, in our words and in SQL."""

    aggregation: Aggregation
    sql: str


def summed(type_: pa.DataType) -> Asked:
    """The sum of a column that is called by its type."""
    name = quoted(type_)
    sql = f"sum({name})"
    if pa.types.is_integer(type_):
        sql = f"sum({name})::{'ubigint' if pa.types.is_unsigned_integer(type_) else 'bigint'}"
    elif pa.types.is_boolean(type_):
        sql = f"sum({name}::int)::bigint"
    return Asked(col(str(type_)).sum(), sql)


def _mergeable() -> dict[str, Asked]:
    asked = {
        "rows": Asked(op.count(), "count(*)"),
        "prices": Asked(col("price").count(), "count(price)"),
        "paid": Asked(col("price").sum(), "sum(price)::bigint"),
        "mean": Asked(col("price").mean(), "avg(price)"),
        "cents": Asked(col("decimal128(12, 2)").mean(), 'avg("decimal128(12, 2)")'),
        "variance": Asked(col("price").variance(), "var_samp(price)"),
        "deviation": Asked(col("price").stddev(ddof=0), "stddev_pop(price)"),
        "first": Asked(col("price").first("n"), "first(price order by n)"),
        "last": Asked(
            col("timestamp[ns]").last("n", ignore_nulls=True),
            'last("timestamp[ns]" order by n) filter ("timestamp[ns]" is not null)',
        ),
        "dear": Asked(op.count(where=col("price") > 100), "count(*) filter (price > 100)"),
        "dear prices": Asked(col("price").sum(where=col("bool")), "(sum(price) filter (bool))::bigint"),
        "first dear": Asked(
            col("price").first("n", where=col("price") > 100), "first(price order by n) filter (price > 100)"
        ),
        "at": Asked(col("int64").arg_max("n", ignore_nulls=True), 'arg_max("int64", n)'),
        "at any": Asked(col("int64").arg_min("n"), 'arg_min_null("int64", n)'),
    }
    asked |= {f"sum of {type_}": summed(type_) for type_ in SUMMED}
    for type_ in (pa.int64(), pa.uint64(), pa.float64(), pa.date32(), pa.timestamp("us", "UTC"), pa.bool_()):
        for word in ("min", "max"):
            asked[f"{word} of {type_}"] = Asked(getattr(col(str(type_)), word)(), f"{word}({quoted(type_)})")
    return asked


MERGEABLE = _mergeable()
"""Aggregates that are folded before the shuffle."""

ALL = MERGEABLE | {
    "texts": Asked(col("string").count_distinct(), 'count(distinct "string")'),
    "numbers": Asked(col("double").count_distinct(), 'count(distinct "double")'),
    "least text": Asked(col("large_string").min(), "min(large_string)"),
    "greatest bytes": Asked(col("binary").max(), 'max("binary")'),
    "most": Asked(col("decimal128(38, 10)").max(), 'max("decimal128(38, 10)")'),
    "first text": Asked(
        col("string").first("n", ignore_nulls=True), 'first("string" order by n) filter ("string" is not null)'
    ),
    "last text": Asked(col("string").last("n"), 'last("string" order by n)'),
    "median": Asked(col("int64").quantile(0.5), "quantile_cont(int64::double, 0.5)"),
    "list": Asked(col("string").to_list("n", where=col("int64") > 0), 'list("string" order by n) filter (int64 > 0)'),
}
"""Aggregates that keep the shuffle from being saved, for their state does not merge, and all others."""


_FEW = ("rows", "paid", "variance", "first", "max of double", "min of timestamp[us, tz=UTC]", "sum of float")
FEW = {name: MERGEABLE[name] for name in _FEW}
"""Some of those that are folded before the shuffle."""


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all queries, of which none leaves anything behind: to open one takes longer than most queries."""
    return duckdb.connect()


def queried(files: Sequence[str], select: str, rest: str = "") -> pa.Table:
    """What DuckDB makes of Parquet files."""
    return _database().sql(f"select {select} from read_parquet({list(files)}) {rest}").to_arrow_table()


def grouped(files: Sequence[str], keys: Sequence[str], asked: dict[str, Asked], rest: str = "") -> pa.Table:
    """DuckDB's groups; ``rest`` may filter."""
    names = ", ".join(quoted(key) for key in keys)
    aggregates = ", ".join(f"{one.sql} as {quoted(name)}" for name, one in asked.items())
    return queried(files, f"{names}, {aggregates}", f"{rest} group by {names}")


def aggregated_by_each(source: Any, keys: Sequence[Sequence[str]], asked: dict[str, Asked]) -> list[pa.Table]:
    """Our groups over ``source`` by each of ``keys``, in one job of two subtasks."""
    with flow.Pipeline("groups by each") as p:
        rows, aggregations = p.source(source, name="rows"), {name: one.aggregation for name, one in asked.items()}
        for n, names in enumerate(keys):
            groups = rows.key_by(*names).agg(**aggregations, name=f"groups {n}")
            groups.sink(op.collect(), name=f"out {n}")
    result = p.run(parallelism=2, timeout="60s")
    return [result.table(f"out {n}") for n in range(len(keys))]


def aggregated(
    source: Any, keys: Sequence[str], asked: dict[str, Asked], runner: Any = "local", **options: Any
) -> pa.Table:
    """Our groups over ``source``."""
    with flow.Pipeline("groups") as p:
        aggregations = {name: one.aggregation for name, one in asked.items()}
        p.source(source, name="rows").key_by(*keys).agg(**aggregations, name="groups").sink(op.collect(), name="out")
    return p.run(runner, timeout="60s", **options).table("out")
