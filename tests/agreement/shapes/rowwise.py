"""Shapes without keys: every column type, functions of rows and batches, branches, unions, widths, empty inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dataflow as flow
import operators as op
from dataflow import col
from tests.agreement.data import generated
from tests.agreement.shapes.scene import Scene, Shape
from tests.agreement.test_rows import CHOSEN, COMPUTED

__all__ = ["ROWWISE"]

ODD: Mapping[pa.DataType, list[Any]] = {
    pa.decimal256(50, 3): [Decimal("1.250"), None, Decimal("-" + "9" * 47 + ".125")],
    pa.null(): [None, None, None],
    pa.large_list(pa.float32()): [[1.5, None], [], None],
    pa.list_(pa.int8(), 2): [[1, 2], None, [3, None]],
    pa.list_(pa.struct({"a": pa.string(), "b": pa.list_(pa.int64())})): [[{"a": "x", "b": [1]}], [None], None],
    pa.struct({"t": pa.timestamp("ns", "UTC"), "d": pa.dictionary(pa.int8(), pa.string())}): [
        {"t": 5, "d": "x"},
        None,
        {"t": None, "d": None},
    ],
    pa.map_(pa.string(), pa.list_(pa.int32())): [[("k", [1])], [], None],
    pa.month_day_nano_interval(): [(1, 2, 3), None, (-1, 0, 5)],
    pa.dictionary(pa.int16(), pa.int64()): [5, None, 7],
    pa.bool_(): [None, True, False],
    pa.large_binary(): [b"\xff\x00", b"", None],
}
"""Types that seldom come, each with a few values."""


def numbers(rows: int = 90) -> pa.Table:
    x = range(rows)
    text = [None if n % 7 == 0 else f"t{n % 5}" for n in x]
    return pa.table({"x": pa.array(x, pa.int64()), "text": pa.array(text, pa.string())})


def in_two(scene: Scene) -> flow.Stream:
    return scene.shared(op.from_arrow(numbers(), splits=2, batch_rows=11), "numbers")


def types(scene: Scene) -> None:
    """Every type, filtered and computed."""
    rows = scene.read(op.from_arrow(generated(seed=3), splits=3, batch_rows=17))
    scene.show(rows.filter(CHOSEN).with_columns(**{name: ours for name, (ours, _) in COMPUTED.items()}))


def odd_types(scene: Scene) -> None:
    """Nested and rare types through a shuffle."""
    columns = [pa.array(values * 10, type_) for type_, values in ODD.items()]
    table = pa.table([pa.array(range(30)), *columns], ["n", *map(str, ODD)])
    rows = scene.read(op.from_arrow(table, splits=2, batch_rows=4))
    scene.show(rows.rebalance().filter(col("n") != 3), "spread")
    scene.show(rows.key_by("n").filter(col("n") != 4), "keyed")


def split_in_two(row: dict[str, Any]) -> Iterator[dict[str, Any]] | None:
    return iter([row, {"x": -row["x"], "text": "again"}]) if row["x"] % 3 else None


def as_polars(batch: pa.RecordBatch) -> Any:
    return polars.from_arrow(batch).filter(polars.col("x") != 8)


def in_pieces(batch: pa.RecordBatch) -> list[pa.RecordBatch] | None:
    return None if batch.num_rows == 1 else [batch.slice(0, 1), batch.slice(1, 0), batch.slice(1)]


def functions(scene: Scene) -> None:
    """Rows to rows, rows to many, batches to batches."""
    rows = in_two(scene)
    twice = rows.map(lambda row: {"x": 2 * row["x"]}, schema=pa.schema({"x": pa.int64()}))
    scene.show(twice, "map")
    many = rows.flat_map(split_in_two).map_batches(as_polars).map_batches(in_pieces)
    scene.show(many.select("text", y=col("x") + 1), "many")


def risky(row: dict[str, Any]) -> dict[str, Any]:
    if row["x"] % 5 == 0:
        raise ValueError(f"{row['x']} is a multiple of five")
    return row


def risky_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    if pc.any(pc.equal(batch["x"], 7)).as_py():
        raise LookupError("seven")
    return batch


def errors(scene: Scene) -> None:
    """Rows that fail, left out and set aside, in functions, in text, and where they have no time."""
    rows = in_two(scene)
    aside = rows.map(risky, on_error="side", name="risky")
    scene.show(aside, "good")
    scene.show(aside.side("errors").select("row", "error"), "bad")
    skipped = aside.rebalance().map_batches(risky_batch, on_error="skip", name="risky batches")
    scene.show(skipped, "good batches")
    scene.show(skipped.flat_map(lambda row: [risky(row), risky({**row, "x": row["x"] + 1})], on_error="skip"), "twice")
    lines = "".join(f"{'bad' if n % 9 == 0 else n},{n / 4}\n" for n in range(60))
    (scene.folder / "risky.csv").write_text("n,share\n" + lines)
    text = op.read_csv(scene.folder / "risky.csv", schema={"n": "int64"}, on_error="side", batch_rows=7)
    parsed = scene.read(text, "text")
    scene.show(parsed, "parsed")
    scene.show(parsed.side("errors"), "unparsed")


def branches(scene: Scene) -> None:
    """One stream used many times, and put together again, itself with itself too."""
    rows = in_two(scene)
    odd, even = rows.filter(col("x") % 2 == 1), rows.filter(col("x") % 2 == 0).rebalance()
    scene.show(odd.union(even, rows), "together")
    scene.show(odd.union(odd), "with itself")
    scene.show(rows.select("x"), "x")
    rows.select("text").sink(op.collect(), name="branches: unasked")


def widths(scene: Scene) -> None:
    """Operators of any parallelism behind each other."""
    narrow = scene.read(op.from_arrow(numbers(), splits=4, batch_rows=9), parallelism=1)
    wide = narrow.rebalance().filter(col("x") > 4, parallelism=3).select("x", parallelism=2)
    scene.show(wide.rebalance().map(lambda row: row, parallelism=1), "narrow again")
    scene.show(narrow.filter(col("x") < 70, parallelism=2).rebalance().rebalance(), "forward")


class Both(flow.Operator):
    """Inner join by the first columns of two inputs, at the end."""

    def __init__(self, context: flow.OperatorContext) -> None:
        kept = context.restored.tables if context.restored else {}
        self.sides: list[Any] = [kept.get(f"{i}", s.empty_table()) for i, s in enumerate(context.input_schemas)]
        self.keys = [schema.names[0] for schema in context.input_schemas]

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        self.sides[port] = pa.concat_tables([self.sides[port], pa.Table.from_batches([batch])])

    def finish(self, out: flow.Out) -> None:
        left, right = self.sides
        for joined in left.join(right, *self.keys, join_type="inner").to_batches():
            out.emit(joined)

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot(tables={f"{i}": side for i, side in enumerate(self.sides)})


PEOPLE = pa.table({"id": [0, 1, 2, 3, 3], "name": ["ann", "bob", None, "cy", "dan"]})


def broadcast(scene: Scene) -> None:
    """A small table that every subtask has, beside rows dealt out, forwarded or keyed."""
    rows = in_two(scene).select(id=col("x") % 5, x=col("x"))
    people = scene.read(op.from_arrow(PEOPLE, batch_rows=2), "people")
    schema = pa.schema({"id": pa.int64(), "x": pa.int64(), "name": pa.string()})
    scene.show(rows.rebalance().apply(Both, people.broadcast(), schema=schema, name="dealt"), "dealt")
    scene.show(rows.key_by("id").apply(Both, people.broadcast(), schema=schema, name="keyed"), "keyed")
    scene.show(rows.key_by("id").apply(Both, people.key_by("id"), schema=schema, name="joined"), "joined")


def nothing(scene: Scene) -> None:
    """Sources without rows, splits without rows, and filters that leave none."""
    empty = scene.read(op.from_arrow(numbers(0)))
    scene.show(empty.rebalance().map(risky), "mapped")
    scene.show(empty.key_by("text").agg(n=op.count(), emit="final"), "counted")
    few = scene.read(op.from_arrow(numbers(2), splits=5, batch_rows=1), "few")
    scene.show(few.union(empty), "all")
    scene.show(few.filter(col("x") > 5).key_by("x").agg(n=op.count(), emit="updates"), "none left")
    none = scene.read(op.from_generator(lambda position: iter(()), schema=PEOPLE.schema), "no rows")
    scene.show(none.key_by("id").agg(n=op.count(), emit="final"), "counted none")


def counting(split: str, position: int | None) -> Iterator[tuple[dict[str, Any], int]]:
    for x in range(position or 0, 20):
        yield {"x": x, "text": split}, x + 1


def formats(scene: Scene) -> None:
    """All sources there are, into one union."""
    table, folder = numbers(40), scene.folder
    pq.write_table(table, folder / "rows.parquet", row_group_size=9)
    with pa.ipc.new_file(folder / "rows.arrow", table.schema) as file:
        file.write_table(table, max_chunksize=8)
    (folder / "rows.csv").write_text("x,text\n" + "".join(f"{x},t{x}\n" for x in range(40)))
    (folder / "rows.jsonl").write_text("".join(f'{{"x": {x}, "text": "j{x}"}}\n' for x in range(40)))
    kinds = {"x": "int64", "text": "string"}
    sources = {
        "parquet": op.read_parquet(folder / "rows.parquet", batch_rows=7),
        "ipc": op.read_ipc(folder / "rows.arrow", batch_rows=7),
        "csv": op.read_csv(folder / "rows.csv", schema=kinds, batch_rows=7),
        "json": op.read_json(folder / "rows.jsonl", schema=kinds, batch_rows=7),
        "generator": op.from_generator(counting, schema=table.schema, splits=["a", "b"], batch_rows=7),
        "generated": op.generate(
            {"x": op.sequence(), "text": op.choice(["a", "b", None])}, rows=60, splits=2, batch_rows=7
        ),
        "paced": op.paced(op.from_arrow(table, batch_rows=7), 1_000),
    }
    first, *others = [scene.read(source, name) for name, source in sources.items()]
    scene.show(first.union(*others))


ROWWISE: list[Shape] = [types, odd_types, functions, errors, branches, widths, broadcast, nothing, formats]
