"""Answers of DuckDB over the events and those that were delivered again, as mode ``unaligned`` reports them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.sql import SQL
from tests.nexmark.running import Files

__all__ = ["OPERATORS", "NOT_COMPARED", "with_duplicates", "wrong_rows"]

SECOND_SHUFFLE = ("q5", "q9", "q23")
"""Queries whose answer is downstream of a second shuffle, where it may come twice without an exact report."""
NOT_COMPARED = ("q4", "q6", "q8")
"""Queries that a row which comes twice after a second shuffle leaves without a defined answer.

In q4 and q6 a signed change could be counted twice. In q8 a result of a window could come again after the last
watermark, and be late.
"""
OPERATORS: Mapping[str, str] = {
    **{query: query for query in QUERIES},
    "q3": "q3 offers",
    "q4": "q4 bids",
    "q5": "q5 counts",
    "q6": "q6 bids",
    "q7": "q7 highest",
    "q8": "q8 people",
    "q9": "q9 bids",
    "q11": "q11 sessions",
    "q12": "q12 windows",
    "q15": "q15 statistics",
    "q16": "q16 statistics",
    "q17": "q17 statistics",
    "q18": "q18 last bids",
    "q19": "q19 highest bids",
    "q20": "q20 auctions",
    "q23": "q23 people",
}
"""The first operator of each query that keeps state, or its sink, to which events are delivered."""
ROWWISE = [query for query, operator in OPERATORS.items() if query == operator]
COMPUTED = ("day", "minute", "dt", "hm")
"""Columns that queries add to bids."""
OWN_COLUMNS: Mapping[str, Sequence[str]] = {
    "people": ("name", "state"),
    "auctions": ("seller", "category", "expires"),
    "bids": ("auction", "bidder", "price"),
}
"""Columns that only one kind of events has, of which each query reads one."""
FILTERED: Mapping[str, Mapping[str, int]] = {"auctions": {"category": 10}}
"""The value of a column by which events were filtered and that was not read afterwards."""


def with_duplicates(query: str, files: Files, again: Sequence[pa.Table]) -> pa.Table:
    """Return DuckDB's answer to a query over the events and the rows ``again`` that its operator received again.

    Rows with a column that bids do not have, or of another type, are rows of the answer if a sink received them.
    """
    with duckdb.connect() as connection:
        read = {kind: connection.read_parquet([str(path) for path in paths]) for kind, paths in files.items()}
        known, answers = read["bids"].limit(0).to_arrow_table().schema, []
        parts: dict[str, list[str]] = {}
        for kind, rows in read.items():
            rows.create_view(f"read_{kind}")
            parts[kind] = [f"from read_{kind}"]
        for number, table in enumerate(again):
            if query in ROWWISE and not _are_bids(table.schema, known):
                answers.append(table)
                continue
            connection.register(f"again{number}", table)
            for kind, where in _kinds(table.schema.names):
                columns = ", ".join(_columns(kind, table.schema.names, read[kind].columns))
                parts[kind].append(f"select {columns} from again{number} where {where}")
        for kind, selected in parts.items():
            connection.execute(f"create view {kind} as {' union all by name '.join(selected)}")
        answer = connection.sql(SQL[query]).to_arrow_table()
    return pa.concat_tables([answer, *(table.select(answer.column_names).cast(answer.schema) for table in answers)])


def _are_bids(schema: pa.Schema, known: pa.Schema) -> bool:
    columns = [field for field in schema if field.name not in COMPUTED]
    return all(field.name in known.names and known.field(field.name).type == field.type for field in columns)


def _kinds(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the kinds of events among rows that may be of both sides of a join, and which rows are of this kind.

    Rows of one side are null in the columns of the other one.
    """
    found = False
    for kind, own in OWN_COLUMNS.items():
        if marks := [name for name in own if name in names]:
            found = True
            yield kind, " or ".join(f"{name} is not null" for name in marks)
    if not found:
        yield "bids", "true"


def _columns(kind: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    columns = [f'"{name}"' for name in names if name in known]
    if kind == "bids" and "dateTime" not in names and "day" in names:
        minute = "minute" if "minute" in names else "'00:00'"
        columns.append(f"""(day || ' ' || {minute})::timestamp as "dateTime\"""")
    return columns + [f"{value} as {name}" for name, value in FILTERED.get(kind, {}).items() if name not in names]


def wrong_rows(query: str, ours: pa.Table, theirs: pa.Table) -> dict[str, Any]:
    """Return the rows of an answer that are too many and those that are missing; empty: none are."""
    found, expected = (Counter(zip(*(c.to_pylist() for c in t.columns), strict=True)) for t in (ours, theirs))
    if query in SECOND_SHUFFLE:
        found, expected = Counter(set(found)), Counter(set(expected))
    wrong = {"too many": found - expected, "missing": expected - found}
    return {kind: rows for kind, rows in wrong.items() if rows}
