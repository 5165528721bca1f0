"""Shapes with keys: aggregates at the end and as changelogs, in chains, by keys of all kinds, hot and many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import dataflow as flow
import operators as op
from dataflow import col
from tests.agreement.data import POOLS, generated
from tests.agreement.running import ALL, FEW, MERGEABLE
from tests.agreement.shapes.scene import Scene, Shape

__all__ = ["KEYED", "KEYS"]

DICTIONARY = "dictionary<values=string, indices=int32, ordered=0>"


def table(scene: Scene, rows: int = 400, batch_rows: int = 50, splits: int = 2) -> flow.Stream:
    source = op.from_arrow(generated(seed=5, rows=rows), splits=splits, batch_rows=batch_rows)
    return scene.shared(source, f"table of {rows} by {batch_rows}")


def aggregates(scene: Scene) -> None:
    """Every aggregate, by one key and by several."""
    rows = table(scene)
    asked = {name: one.aggregation for name, one in ALL.items()}
    scene.show(rows.key_by("k").agg(**asked, emit="final"), "by one", near=True)
    scene.show(rows.key_by("bool", DICTIONARY, "float").agg(**asked, emit="final"), "by three", near=True)


SOME_KEYS = (pa.int8(), pa.uint64(), pa.float64(), pa.bool_(), pa.string(), pa.decimal128(12, 2), pa.date32())


def some_keys(scene: Scene) -> None:
    """Keys of a type of each kind, each on its own."""
    keys_of(SOME_KEYS, scene)


def all_keys(scene: Scene) -> None:
    """Keys of every type, each on its own; on threads ``test_groups`` has them, too."""
    keys_of(POOLS, scene)


def keys_of(types: Iterable[pa.DataType], scene: Scene) -> None:
    rows = table(scene)
    for type_ in types:
        scene.show(rows.key_by(str(type_)).agg(n=op.count(), s=col("price").sum(), emit="final"), str(type_))


def updates(scene: Scene) -> None:
    """Changelogs, and changelogs of changelogs, whose updates count as rows."""
    rows = table(scene)
    running = rows.key_by("k", "bool").agg(n=op.count(), s=col("price").sum(), emit="updates", name="running")
    scene.show(running, "running", last=("k", "bool"))
    most = running.as_rows().key_by("k").agg(most=col("n").max(), emit="updates", name="most")
    scene.show(most, "most", last=("k",))
    spaced = rows.key_by("k").agg(n=op.count(), emit="updates", every="10s", name="spaced")
    scene.show(spaced, "spaced", last=("k",))


def spread(scene: Scene) -> None:
    """Changelogs through operators of other widths, under other names, by key."""
    running = table(scene).key_by("k", "bool").agg(n=op.count(), emit="updates", name="narrow", parallelism=2)
    renamed = running.select("n", flag=col("bool"), key=col("k"), parallelism=3, name="wide")
    scene.show(renamed.filter(col("flag").is_not_null()), "renamed", last=("key", "flag"))
    scene.show(renamed.key_by("key").filter(col("key").is_not_null(), parallelism=2), "by key", last=("key", "flag"))


def chained(scene: Scene) -> None:
    """Three shuffles one behind the other, with rows computed between them."""
    first = table(scene).key_by("k", "int8").agg(n=op.count(), s=col("price").sum(), emit="final", name="first")
    second = first.with_columns(half=col("n") // 2).key_by("half").agg(m=col("n").sum(), c=op.count(), emit="final")
    scene.show(first, "first")
    scene.show(second, "second")
    scene.show(second.filter(col("c") > 1).key_by("c").agg(total=col("m").sum(), emit="final"), "third")


def folded(scene: Scene) -> None:
    """Batches so long that they are folded before the shuffle, most rows of a few hot keys."""
    draw = np.random.default_rng(1)
    hot = np.where(draw.random(8_800) < 0.9, 7, draw.integers(0, 3_000, 8_800))
    rows = pa.table({"key": hot, "text": [f"k{key}" for key in hot], "v": draw.integers(-99, 99, 8_800)})
    stream = scene.read(op.from_arrow(rows, splits=2, batch_rows=4_400))
    totals = {"n": op.count(), "s": col("v").sum(), "least": col("v").min()}
    scene.show(stream.key_by("key").agg(**totals, emit="final"), "by number")
    scene.show(stream.key_by("text").agg(**totals, emit="final"), "by text")
    scene.show(stream.key_by("text").agg(**totals, emit="updates"), "running", last=("text",))
    scene.show(stream.key_by("key").agg(v=col("v").variance(), d=col("v").count_distinct(), emit="final"), near=True)


def merged(scene: Scene) -> None:
    """All aggregates that are folded, over long batches."""
    rows = table(scene, rows=8_600, batch_rows=4_300)
    asked = {name: one.aggregation for name, one in MERGEABLE.items()}
    scene.show(rows.key_by("k").agg(**asked, emit="final"), near=True)


def add_square(state: Any, value: Any) -> None:
    state[0] += value * value
    state[1] += 1


def join_squares(state: Any, other: Any) -> None:
    state[0] += other[0]
    state[1] += other[1]


def own_aggregates(scene: Scene) -> None:
    """Aggregates of a user: compiled ones, and plain functions of several columns."""
    squares = op.aggregate_kernel(
        "squares", init=(0.0, 0.0), step=add_square, merge=join_squares, finish=lambda state: state[0]
    )
    rows = table(scene)
    scene.show(rows.key_by("k").agg(squares=squares("price"), emit="final"))
    few = {name: one.aggregation for name, one in FEW.items()}
    scene.show(rows.key_by("k").agg(squares=squares("n"), **few, emit="updates"), "run", last=("k",), near=True)
    words = op.aggregate_python(
        "n", "string", zero=[], add=add_word, merge=lambda a, b: sorted(a + b), state=pa.list_(pa.string())
    )
    scene.show(rows.key_by("k").agg(words=words, emit="final"), "words")


def add_word(words: list[str], n: int, text: str | None) -> list[str]:
    return sorted([*words, f"{n} {text}"])


def lists(scene: Scene) -> None:
    """Lists and quantiles, which go through one more shuffle as columns."""
    rows = table(scene)
    some = rows.key_by("k").agg(
        rows=col("n").to_list("n", where=col("price") > 0), half=col("price").quantile(0.5), emit="final", name="lists"
    )
    most = some.key_by("half").agg(n=op.count(), least=col("k").min(), emit="final")
    scene.show(some, "lists")
    scene.show(some.key_by("half").filter(col("half").is_not_null()), "by half")
    scene.show(most, "most")


def keyed_rows(scene: Scene) -> None:
    """Keyed streams without aggregates: filters, functions, sinks and other partitionings behind key_by."""
    rows = table(scene).select("n", "k", "price")
    keyed = rows.key_by("k")
    scene.show(keyed, "sink")
    scene.show(keyed.filter(col("price") > 0).map(lambda row: row), "rows")
    scene.show(keyed.rebalance().map_batches(lambda batch: batch), "and spread")
    scene.show(rows.key_by("n").union(rows.key_by("k")).key_by("price").agg(n=op.count(), emit="final"), "union")


class Newest(flow.Operator):
    """The first rows of each key go on, those of keys known already go to side output ``again``; at the end the
    ``most`` greatest."""

    def __init__(self, context: flow.OperatorContext, *, most: int) -> None:
        self.most = most
        empty = context.input_schemas[0].empty_table()
        self.seen = context.restored.tables["seen"] if context.restored else empty
        self.calls = context.restored.values["calls"] if context.restored else 0

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        known = set(self.seen["k"].to_pylist())
        new = []
        for row, k in enumerate(batch["k"].to_pylist()):
            if k not in known:
                new.append(row)
                known.add(k)
        out.emit(batch.take(pa.array(new, pa.int64())))
        again = sorted(set(range(batch.num_rows)) - set(new))
        out.emit(batch.take(pa.array(again, pa.int64())), tag="again")
        self.seen = pa.concat_tables([self.seen, pa.Table.from_batches([batch])])
        self.calls += 1

    def finish(self, out: flow.Out) -> Iterator[None]:
        for k in pc.unique(self.seen["k"]):
            same = pc.is_in(self.seen["k"], pa.array([k.as_py()], pa.string()))
            best = self.seen.filter(same).sort_by([("n", "descending")]).slice(0, self.most)
            for batch in best.to_batches():
                out.emit(batch, tag="best")
            yield

    def snapshot(self) -> flow.Snapshot:
        return flow.Snapshot({"calls": self.calls}, {"seen": self.seen})


def own_operators(scene: Scene) -> None:
    """Deduplication and the greatest rows of a key, by an operator with state and side outputs."""
    rows = table(scene).select("n", "k", "price")
    newest = rows.key_by("k").apply(partial(Newest, most=3), sides={"again": None, "best": None}, name="newest")
    scene.show(newest, "first", late=True)
    scene.show(newest.side("again"), "again", late=True)
    best = newest.side("best")
    scene.show(best, "best")
    scene.show(best.key_by("price").agg(n=op.count(), emit="final"), "by price")


def many_keys(scene: Scene) -> None:
    """A key for each row but one."""
    x = range(2_000)
    rows = pa.table({"id": [f"id-{max(1, n)}" for n in x], "v": [n % 11 for n in x], "w": [n % 3 for n in x]})
    stream = scene.read(op.from_arrow(rows, splits=2, batch_rows=1_000))
    scene.show(stream.key_by("id").agg(n=op.count(), v=col("v").max(), emit="final"))
    scene.show(stream.key_by("id", "w").agg(n=op.count(), emit="updates"), "running", last=("id", "w"))


def whole_rows(scene: Scene) -> None:
    """The last row of each key, all columns of it and some that are folded before the shuffle."""
    keyed = table(scene).key_by("k")
    scene.show(keyed.agg(op.latest("n", *map(str, POOLS), by="n"), emit="final"), "all")
    scene.show(keyed.agg(op.latest("n", "int8", "double", by="n"), op.count(), emit="updates"), "some", last=("k",))


KEYED: list[Shape] = [
    aggregates,
    whole_rows,
    some_keys,
    updates,
    spread,
    chained,
    folded,
    merged,
    own_aggregates,
    lists,
    keyed_rows,
    own_operators,
    many_keys,
]
KEYS: list[Shape] = [all_keys]
