"""Reading CSV and JSON Lines: our readers beside pyarrow's parsers and DuckDB, each on one thread.

``pytest benchmarks/bench_text_files.py --benchmark-enable`` reads a million rows of five columns (some 50 MB); with
benchmarks disabled each candidate reads a few thousand, and the rows are still compared. ``extra_info`` has the time
of each other candidate divided by ours (medians of alternating runs): below 1 the other one is faster.

The schema is declared, so no types are inferred. Our readers do more than pyarrow's parsers, on which they are built:
they keep positions, and refuse numbers that would be read wrongly. In the case "hexadecimal" every text has an x, so
that the search for numbers such as 0xFF costs most.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pytest

import operators as op
from benchmarks.paired import times_as_long
from dataflow.clock import ManualClock
from dataflow.contracts.source import END, Source, SourceContext

PAIRS: Final = 9
SCHEMA: Final = pa.schema(
    {"id": pa.int64(), "price": pa.float64(), "quantity": pa.int64(), "name": pa.string(), "at": pa.timestamp("us")}
)


def data(rows: int, *, hexadecimal: bool) -> pa.Table:
    rng = np.random.default_rng(7)
    names = pa.array([f"{'x' if hexadecimal else 'p'}roduct {i}" for i in range(100)])
    return pa.table(
        {
            "id": np.arange(rows),
            "price": rng.integers(1, 100_000, rows) / 100,
            "quantity": rng.integers(0, 5, rows),
            "name": names.take(pa.array(rng.integers(0, 100, rows))),
            "at": pa.array(1_700_000_000_000_000 + rng.integers(0, 10**12, rows), pa.timestamp("us")),
        },
        schema=SCHEMA,
    )


def ours(source: Source) -> pa.Table:
    """Read with a reader of ``source``, as a task does."""
    context = SourceContext("bench", 0, 1, ManualClock())
    batches = []
    for split in source.splits():
        reader = source.reader(split, None, context)
        while (batch := reader.poll(1 << 62)) is not END:
            batches += [] if batch is None else [batch]
    return pa.Table.from_batches(batches)


def by_pyarrow_csv(path: Path) -> pa.Table:
    return pyarrow.csv.read_csv(
        path,
        read_options=pyarrow.csv.ReadOptions(use_threads=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types=SCHEMA),
    )


def by_pyarrow_json(path: Path) -> pa.Table:
    return pyarrow.json.read_json(
        path,
        read_options=pyarrow.json.ReadOptions(use_threads=False),
        parse_options=pyarrow.json.ParseOptions(explicit_schema=SCHEMA),
    )


def by_duckdb(path: Path, function: str) -> pa.Table:
    columns = "{'id': 'BIGINT', 'price': 'DOUBLE', 'quantity': 'BIGINT', 'name': 'VARCHAR', 'at': 'TIMESTAMP'}"
    with duckdb.connect(config={"threads": 1}) as database:
        return database.sql(f"SELECT * FROM {function}('{path}', columns={columns})").to_arrow_table()


def csv_file(table: pa.Table, path: Path) -> None:
    pyarrow.csv.write_csv(table, path, pyarrow.csv.WriteOptions(quoting_style="none"))


def json_file(table: pa.Table, path: Path) -> None:
    texts = table.set_column(4, "at", pc.strftime(table["at"], "%Y-%m-%dT%H:%M:%S"))
    with open(path, "w", encoding="utf-8") as file:
        for row in texts.to_pylist():
            file.write(f"{json.dumps(row)}\n")


@pytest.mark.parametrize("texts", ["plain", "hexadecimal"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_reading_text_in_turns_with_others(benchmark: Any, tmp_path: Path, kind: str, texts: str) -> None:
    table = data(1_000_000 if benchmark.enabled else 3_000, hexadecimal=texts == "hexadecimal")
    path = tmp_path / f"rows.{kind}"
    candidates: dict[str, Callable[[], pa.Table]]
    if kind == "csv":
        csv_file(table, path)
        source = op.read_csv(path, schema=SCHEMA)
        candidates = {"pyarrow": partial(by_pyarrow_csv, path), "duckdb": partial(by_duckdb, path, "read_csv")}
    else:
        json_file(table, path)
        source = op.read_json(path, schema=SCHEMA)
        candidates = {"pyarrow": partial(by_pyarrow_json, path), "duckdb": partial(by_duckdb, path, "read_json")}
    made = benchmark(ours, source)
    for other in candidates.values():
        assert made.equals(other().cast(SCHEMA))
    if not benchmark.enabled:
        return
    megabytes = path.stat().st_size / 1e6
    benchmark.extra_info["MB/s"] = round(megabytes / benchmark.stats.stats.median)
    for name, other in candidates.items():
        benchmark.extra_info[f"{name} / ours"] = times_as_long(other, partial(ours, source), PAIRS)
