"""The answers of a run, in the form in which they are compared with DuckDB, and what differs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

import dataflow as flow
import operators as op
from benchmarks.nexmark.events import Sources
from benchmarks.nexmark.queries import PARTITIONS, QUERIES

__all__ = ["add_queries", "answer", "difference", "write_queries", "written_answer"]


def add_queries(sources: Sources, queries: Iterable[str], folder: Path) -> None:
    """Add queries, each with a sink of its name that keeps the rows, or the net rows of signed changes.

    The answer of a query with ``PARTITIONS`` is written to files in a folder of its name below ``folder``.
    """
    for name in queries:
        if name in PARTITIONS:
            write_queries(sources, [name], folder)
        else:
            stream = sources.answer(QUERIES[name])
            stream.sink(op.collect(net=stream.changes == "signed"), name=name)


def write_queries(sources: Sources, queries: Iterable[str], folder: Path) -> None:
    """Add queries, each with a sink of its name that writes Parquet files to a folder of this name."""
    for name in queries:
        sink = op.write_parquet(folder / name, partition_by=PARTITIONS.get(name))
        sources.answer(QUERIES[name]).sink(sink, name=name)


def answer(query: str, result: flow.RunResult, folder: Path) -> pa.Table:
    """Return the part of an answer that is defined: of q12 the bids of each bidder, of other queries all rows.

    Args:
        query: the name of a query.
        result: the result of a run with the sinks of ``add_queries``.
        folder: where that function was told to write files.
    """
    return written_answer(query, folder) if query in PARTITIONS else _defined(query, result.table(query))


def written_answer(query: str, folder: Path) -> pa.Table:
    """Return the part of an answer that is defined, from files, as DuckDB reads them: of signed changes the net.

    Raises: ValueError for a row that was taken back more often than it was added.
    """
    import duckdb

    with duckdb.connect() as connection:
        files = connection.sql(
            "from read_parquet(?, hive_partitioning = ?, hive_types_autocast = false)",
            params=[f"{folder / query}/**/*.parquet", query in PARTITIONS],
        )
        if "change" not in files.columns:
            return _defined(query, files.to_arrow_table())
        rows = files.aggregate("* exclude change, sum(change)::bigint as times").filter("times <> 0")
        if excess := rows.filter("times < 0").limit(1).fetchall():
            raise ValueError(f"{query}: the changes take back a row that they did not add: {excess}")
        return rows.project("* exclude times, unnest(range(times)) as copy").project("* exclude copy").to_arrow_table()


def _defined(query: str, table: pa.Table) -> pa.Table:
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
