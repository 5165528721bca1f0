"""Answers of DuckDB over the bids and those that were delivered again, as mode ``unaligned`` reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.sql import SQL
from tests.nexmark.running import Files

__all__ = ["OPERATORS", "with_duplicates", "wrong_rows"]

SECOND_SHUFFLE = ("q5",)
"""Queries whose answer is downstream of a second shuffle, where it may come twice without an exact report."""
OPERATORS: Mapping[str, str] = {
    **{query: query for query in QUERIES},
    "q5": "q5 counts",
    "q7": "q7 windows",
    "q11": "q11 sessions",
    "q12": "q12 windows",
    "q15": "q15 statistics",
    "q16": "q16 statistics",
    "q17": "q17 statistics",
    "q18": "q18 last bids",
}
"""The first operator of each query that keeps state, or its sink, to which bids are delivered."""
ROWWISE = [query for query, operator in OPERATORS.items() if query == operator]
COMPUTED = ("day", "minute", "dt", "hm")
"""Columns that queries add to bids."""


def with_duplicates(query: str, files: Files, again: Sequence[pa.Table]) -> pa.Table:
    """Return DuckDB's answer to a query over the bids and the rows ``again`` that its operator received again.

    Rows with a column that bids do not have, or of another type, are rows of the answer, which a sink received.
    """
    with duckdb.connect() as connection:
        read = connection.read_parquet([str(path) for path in files["bids"]])
        read.create_view("read")
        known = read.limit(0).to_arrow_table().schema
        parts, answers = ["from read"], []
        for number, table in enumerate(again):
            if query in ROWWISE and not _are_bids(table.schema, known):
                answers.append(table)
                continue
            connection.register(f"again{number}", table)
            parts.append(f"select {', '.join(_as_bids(table.schema.names))} from again{number}")
        connection.execute(f"create view bids as {' union all by name '.join(parts)}")
        answer = connection.sql(SQL[query]).to_arrow_table()
    return pa.concat_tables([answer, *(table.select(answer.column_names).cast(answer.schema) for table in answers)])


def _are_bids(schema: pa.Schema, known: pa.Schema) -> bool:
    columns = [field for field in schema if field.name not in COMPUTED]
    return all(field.name in known.names and known.field(field.name).type == field.type for field in columns)


def _as_bids(names: Sequence[str]) -> list[str]:
    columns = [f'"{name}"' for name in names if name not in COMPUTED]
    if "dateTime" not in names and "day" in names:
        minute = "minute" if "minute" in names else "'00:00'"
        columns.append(f"""(day || ' ' || {minute})::timestamp as "dateTime\"""")
    return columns


def wrong_rows(query: str, ours: pa.Table, theirs: pa.Table) -> dict[str, Any]:
    """Return the rows of an answer that are too many and those that are missing; empty: none are."""
    found, expected = (Counter(zip(*(c.to_pylist() for c in t.columns), strict=True)) for t in (ours, theirs))
    if query in SECOND_SHUFFLE:
        found, expected = Counter(set(found)), Counter(set(expected))
    wrong = {"too many": found - expected, "missing": expected - found}
    return {kind: rows for kind, rows in wrong.items() if rows}
