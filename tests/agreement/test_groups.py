"""Aggregates per key of every type, and of values of every type, against DuckDB's GROUP BY over the same files.

DuckDB has no decimals past 38 digits: those are compared with a plain loop in Python.
"""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

import pyarrow as pa
import pytest

import operators as op
from dataflow import col
from tests.agreement.data import POOLS, SUMMED, by_key, near
from tests.agreement.running import ALL, FEW, MERGEABLE, Asked, aggregated, aggregated_by_each, grouped, quoted, summed
from tests.seeds import each_once, some_by_default

KEYS = [(str(type_),) for type_ in POOLS]
KEYS += [
    ("k", "int8"),
    ("dictionary<values=string, indices=int32, ordered=0>", "double"),
    ("bool", "timestamp[ns, tz=UTC]", "binary"),
    ("decimal128(12, 2)", "date32[day]", "string", "uint64"),
    ("halffloat", "duration[ms]"),
]
CUTS = ([1, 2, 4], [1, 7, 65_536])
"""Subtasks, and rows in a batch."""
JOB = 6
"""The number of types in a job, because each job has fixed costs."""


@pytest.mark.parametrize(("first", "way"), each_once(range(0, len(KEYS), JOB), ["folded", "as they come"]))
def test_keys_of_every_type_group_as_in_duckdb(
    first: int, way: str, files: list[str], ipc_files: list[str], request: pytest.FixtureRequest
) -> None:
    source = op.read_ipc(ipc_files) if way == "folded" else op.read_parquet(files, batch_rows=7)
    if way == "folded":
        request.getfixturevalue("folded")
    some = KEYS[first : first + JOB]
    for keys, found in zip(some, aggregated_by_each(source, some, FEW), strict=True):
        assert by_key(found, keys) == near(by_key(grouped(files, keys, FEW), keys)), keys


@pytest.mark.parametrize(("parallelism", "batch_rows"), some_by_default([(1, 65_536), (2, 7)], *CUTS))
def test_all_aggregates_agree_however_rows_are_cut_and_dealt(
    parallelism: int, batch_rows: int, files: list[str]
) -> None:
    expected = near(by_key(grouped(files, ["k"], ALL), ["k"]))
    rows = op.read_parquet(files, batch_rows=batch_rows)
    assert by_key(aggregated(rows, ["k"], ALL, parallelism=parallelism), ["k"]) == expected


@pytest.mark.usefixtures("folded")
@pytest.mark.parametrize(("parallelism", "batch_rows"), some_by_default([(4, 7)], CUTS[0][1:], CUTS[1]))
def test_all_aggregates_that_fold_agree_when_folded(parallelism: int, batch_rows: int, files: list[str]) -> None:
    expected = near(by_key(grouped(files, ["k", "bool"], MERGEABLE), ["k", "bool"]))
    rows = op.read_parquet(files, batch_rows=batch_rows)
    assert by_key(aggregated(rows, ["k", "bool"], MERGEABLE, parallelism=parallelism), ["k", "bool"]) == expected


def every_aggregate(type_: pa.DataType) -> dict[str, Asked]:
    value, name = col(str(type_)), quoted(type_)
    present = f"filter ({name} is not null)"
    asked = {
        "count": Asked(value.count(), f"count({name})"),
        "distinct": Asked(value.count_distinct(), f"count(distinct {name})"),
        "min": Asked(value.min(), f"min({name})"),
        "max": Asked(value.max(), f"max({name})"),
        "first": Asked(value.first("n"), f"first({name} order by n)"),
        "first present": Asked(value.first("n", ignore_nulls=True), f"first({name} order by n) {present}"),
        "last": Asked(value.last("n"), f"last({name} order by n)"),
        "of most": Asked(value.arg_max("n", ignore_nulls=True), f"arg_max({name}, n)"),
    }
    asked |= {"sum": summed(type_)} if type_ in SUMMED else {}
    return {f"{aggregate} of {type_}": one for aggregate, one in asked.items()}


@pytest.mark.parametrize("first", range(0, len(POOLS), JOB))
def test_values_of_every_type_aggregate_as_in_duckdb(first: int, files: list[str]) -> None:
    asked = {}
    for type_ in list(POOLS)[first : first + JOB]:
        asked |= every_aggregate(type_)
    expected = by_key(grouped(files, ["k"], asked), ["k"])
    assert by_key(aggregated(op.read_parquet(files, batch_rows=50), ["k"], asked, parallelism=2), ["k"]) == expected


def test_decimals_of_76_digits_group_as_in_python() -> None:
    keys = [Decimal(text) for text in ("1.00", "-0.01", "9" * 60 + ".99", "-" + "9" * 60)] + [None]
    rows = [(keys[i * i % 5], Decimal(10) ** 50 + keys.index(keys[i % 4])) for i in range(60)]
    kind = pa.decimal256(70, 2)
    table = pa.table([pa.array(column, kind) for column in zip(*rows, strict=True)], ["key", "value"])
    asked = {"n": Asked(op.count(), ""), "least": Asked(col("value").min(), ""), "most": Asked(col("value").max(), "")}
    groups: defaultdict[Decimal | None, list[Decimal]] = defaultdict(list)
    for key, value in rows:
        groups[key].append(value)
    found = aggregated(op.from_arrow(table, splits=3, batch_rows=7), ["key"], asked, parallelism=2)
    assert by_key(found, ["key"]) == {(key,): (len(g), min(g), max(g)) for key, g in groups.items()}
