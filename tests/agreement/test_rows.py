"""Rows filtered and computed, of every column type, through every file format that holds it, against DuckDB.

DuckDB reads back what it can: Parquet, CSV and JSON lines. It has no reader for Arrow files: pyarrow and polars read
those. All four formats come back through our own sources, too, with the types they went in with.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.expressions import coalesce, when
from tests.agreement.data import NESTED, POOLS, rows_of
from tests.agreement.running import queried, quoted
from tests.seeds import in_soak

COMPUTED = {
    "twice": (col("price") * 2 + 1, "price * 2 + 1"),
    "floor": (col("price") // 7, "floor(price / 7.0)::bigint"),
    "rest": (col("price") % 7, "((price % 7) + 7) % 7"),
    "eighth": (col("double") / 8, '"double" / 8'),
    "kind": (
        when(col("double") > 0).then("up").otherwise("down"),
        """case when "double" > 0 and not isnan("double") then 'up' else 'down' end""",
    ),
    "filled": (col("int8").fill_null(0), "coalesce(int8, 0)"),
    "tenths": (col("price").round(-1), "round(price, -1)"),
    "cents": (col("price").cast("float64").round(2), "round(price::double, 2)"),
    "whole": (coalesce(col("int8"), col("price"), 0), "coalesce(int8, price, 0)"),
    "middle": (col("string").str.slice(1, 2), "substring(string, 2, 2)"),
    "stamp": (
        col("timestamp[us]").dt.strftime("%Y/%m/%d %H:%M:%S.%f"),
        """strftime("timestamp[us]", '%Y/%m/%d %H:%M:%S.%f')""",
    ),
    "loud": (col("string").str.upper(), 'upper("string")'),
    "letters": (col("large_string").str.length(), "length(large_string)"),
    "day": (col("timestamp[ms]").dt.truncate("1d"), """date_trunc('day', "timestamp[ms]")"""),
    "hour": (col("timestamp[us, tz=UTC]").dt.hour(), """hour("timestamp[us, tz=UTC]" at time zone 'UTC')"""),
    "unknown": (col("date32[day]").is_null(), '"date32[day]" is null'),
}
CHOSEN = (col("price") > 0) | col("bool") | (col("timestamp[us]") < col("timestamp[us]").dt.truncate("1d"))
IN_SQL = """price > 0 or bool or "timestamp[us]" < date_trunc('day', "timestamp[us]")"""

NAMES = ["n", "k", "price", *map(str, POOLS), *COMPUTED]
NO_TEXT = [str(type_) for type_ in POOLS if pa.types.is_binary(type_) or pa.types.is_large_binary(type_)]
NO_TEXT += [str(type_) for type_ in POOLS if pa.types.is_fixed_size_binary(type_) or pa.types.is_binary_view(type_)]
TEXT = [name for name in NAMES if name not in NO_TEXT]
ALL = [*NAMES, *map(str, NESTED)]
JSON = [*TEXT, *(str(type_) for type_ in NESTED if not pa.types.is_map(type_))]  # maps are lists of objects there
SINKS = {
    "parquet": (op.write_parquet, ALL),
    "ipc": (op.write_ipc, ALL),
    "csv": (op.write_csv, TEXT),
    "json": (op.write_json, JSON),
}


def written(source: Any, folder: Path, parallelism: int) -> dict[str, pa.Schema]:
    """Run the pipeline into a folder for each format; answers what schemas the rows had."""
    schemas = {}
    with flow.Pipeline("rows") as p:
        kept = (
            p.source(source, name="rows").filter(CHOSEN).with_columns(**{n: ours for n, (ours, _) in COMPUTED.items()})
        )
        for name, (sink, columns) in SINKS.items():
            chosen = kept.select(*columns)
            schemas[name] = chosen.schema
            chosen.sink(sink(folder / name), name=name)
    p.run(parallelism=parallelism, timeout="60s")
    return schemas


def expected(files: list[str], columns: list[str], *, finite: bool = False) -> pa.Table:
    """DuckDB's answer; with ``finite``, NaN and infinities are null, for which JSON has no words."""
    computed = ", ".join(f"{sql} as {name}" for name, (_, sql) in COMPUTED.items())
    rows = f"(select *, {computed} from read_parquet({files}) where {IN_SQL})"
    with duckdb.connect() as db:
        floats = [n for n, kind, *_ in db.sql(f"describe {rows[1:-1]}").fetchall() if kind in ("FLOAT", "DOUBLE")]
        unsaid = {n: f"case when isfinite({quoted(n)}) then {quoted(n)} end as {quoted(n)}" for n in floats if finite}
        return db.sql(f"select {', '.join(unsaid.get(n, quoted(n)) for n in columns)} from {rows}").to_arrow_table()


CSV = """, auto_detect=false, header=true, delim=',', quote='"', escape='"', allow_quoted_nulls=false"""


def read_by_duckdb(function: str, pattern: str, types: pa.Table, options: str = "") -> pa.Table:
    """Text files with the types that DuckDB itself gave the columns of ``types``."""
    with duckdb.connect() as db:
        kinds = {name: kind for name, kind, *_ in db.register("types", types).sql("describe types").fetchall()}
        return db.sql(f"select * from {function}('{pattern}', columns={kinds}{options})").to_arrow_table()


@pytest.mark.parametrize("run", [(4, 65_536), *in_soak((1, 7), (2, 1))], ids=str)
def test_rows_of_every_type_come_through_every_format(run: tuple[int, int], files: list[str], tmp_path: Path) -> None:
    parallelism, batch_rows = run
    written(op.read_parquet(files, batch_rows=batch_rows), tmp_path, parallelism)
    rows = expected(files, ALL)
    same(queried(found(tmp_path / "parquet"), "*"), rows)
    same(pa.concat_tables(pa.ipc.open_file(file).read_all() for file in found(tmp_path / "ipc")), rows)
    text = expected(files, TEXT)
    same(read_by_duckdb("read_csv", f"{tmp_path}/csv/**/*.csv", text, CSV), text)
    json = expected(files, JSON, finite=True)
    same(read_by_duckdb("read_json", f"{tmp_path}/json/**/*.jsonl", json), json)


def test_rows_of_every_type_come_back_through_our_own_sources(files: list[str], tmp_path: Path) -> None:
    schemas = written(op.read_parquet(files), tmp_path, parallelism=2)
    for name, read in READERS.items():
        schema = schemas[name]
        if name in ("csv", "json"):  # these have no numbers of 16 bits
            schema = schema.set(schema.get_field_index("halffloat"), pa.field("halffloat", pa.float32()))
        stream = flow.Pipeline().source(read(tmp_path / name, schema))
        assert stream.schema.types == [stored(name, type_) for type_ in schema.types]
        same(stream.collect(timeout="60s"), expected(files, stream.schema.names, finite=name == "json"))


def test_polars_reads_the_arrow_files(files: list[str], tmp_path: Path) -> None:
    written(op.read_parquet(files), tmp_path, parallelism=2)
    read = [polars.read_ipc(file, columns=PLAIN).to_arrow() for file in found(tmp_path / "ipc")]
    same(pa.concat_tables(read).select(PLAIN), expected(files, PLAIN))


def stored(format: str, type_: pa.DataType) -> pa.DataType:
    """What becomes of a type: Parquet has no seconds, and no dates in milliseconds."""
    if format == "parquet":
        return SQUEEZED.get(type_, type_)
    return type_


SQUEEZED = {
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.time32("ms"),
    pa.timestamp("s"): pa.timestamp("ms"),
    pa.timestamp("s", "UTC"): pa.timestamp("ms", "UTC"),
}
PLAIN = [name for name in NAMES if "duration" not in name and "fixed" not in name and "date64" not in name]
READERS: dict[str, Any] = {
    "parquet": lambda folder, schema: op.read_parquet(folder),
    "ipc": lambda folder, schema: op.read_ipc(folder),
    "csv": lambda folder, schema: op.read_csv(folder, schema=schema),
    "json": lambda folder, schema: op.read_json(folder, schema=schema),
}


def found(folder: Path) -> list[str]:
    """The files of a sink."""
    return [str(path) for path in sorted(folder.rglob("part-*"))]


def same(found: pa.Table, expected: pa.Table) -> None:
    """Column by column first, for a message one can read; then whole rows."""
    for name in expected.column_names:
        assert rows_of(found, [name]) == rows_of(expected, [name]), name
    assert rows_of(found, expected.column_names) == rows_of(expected)
