"""The answers of a run, in the form in which they are compared with DuckDB, and what differs."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

import dataflow as flow
import operators as op
from benchmarks.nexmark.events import Sources
from benchmarks.nexmark.queries import QUERIES

__all__ = ["add_queries", "answer", "difference"]


def add_queries(sources: Sources, queries: Iterable[str]) -> None:
    """Add queries, each with a sink of its name that keeps the rows, or the net rows of signed changes."""
    for name in queries:
        stream = sources.answer(QUERIES[name])
        stream.sink(op.collect(net=stream.changes == "signed"), name=name)


def answer(query: str, result: flow.RunResult) -> pa.Table:
    """Return the part of an answer that is defined: of q12 the bids of each bidder, of other queries all rows."""
    table = result.table(query)
    if query != "q12":
        return table
    totals = table.group_by("bidder").aggregate([("bid_count", "sum")])
    return totals.rename_columns(["bidder", "bid_count"])


def difference(ours: pa.Table, other: pa.Table) -> str | None:
    """Return what differs between two answers in types, rows or values, in any order of rows; None: nothing.

    >>> difference(pa.table({"k": [2, 1]}), pa.table({"k": [1, 2]}))
    >>> difference(pa.table({"k": [2, 1]}), pa.table({"k": [1, 3]}))
    "row 1 of 2: {'k': 2} and {'k': 3}"
    >>> difference(pa.table({"k": [1]}), pa.table({"k": [1.0]}))
    'columns k: int64 and k: double'
    """
    if ours.schema.names != other.schema.names or ours.schema.types != other.schema.types:
        columns = [", ".join(f"{field.name}: {field.type}" for field in table.schema) for table in (ours, other)]
        return f"columns {columns[0]} and {columns[1]}"
    if ours.num_rows != other.num_rows:
        return f"{ours.num_rows} and {other.num_rows} rows"
    order = [(name, "ascending") for name in ours.schema.names]
    ours, other = ours.sort_by(order), other.sort_by(order)
    if ours.equals(other):
        return None
    pairs = enumerate(zip(ours.to_pylist(), other.to_pylist(), strict=True))
    row, (left, right) = next((row, pair) for row, pair in pairs if pair[0] != pair[1])
    return f"row {row} of {ours.num_rows}: {left} and {right}"
