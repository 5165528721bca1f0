"""Shapes with signed changes: the net of each is the answer of a batch query."""

from __future__ import annotations

import pyarrow as pa

import operators as op
from dataflow import col, lit
from tests.agreement.shapes.keyed import table
from tests.agreement.shapes.scene import Scene, Shape

__all__ = ["SIGNED"]


def changing(scene: Scene) -> None:
    """Aggregates with signed changes, alone, filtered, computed and mapped."""
    counts = table(scene).key_by("k", "bool").agg(n=op.count(), s=col("price").sum(), emit="changes", name="counts")
    scene.show(counts, "as they are")
    scene.show(counts.filter(col("n") > 20), "having")
    scene.show(counts.select("k", twice=col("n") * 2).with_columns(one=lit(1)), "computed")
    numbers = pa.schema({"k": pa.string(), "n": pa.int64()})
    as_dicts = counts.select("k", "n")
    scene.show(as_dicts.map(lambda row: {"k": row["k"], "n": -row["n"]}, schema=numbers), "mapped")
    scene.show(as_dicts.flat_map(lambda row: [row, row] if row["n"] % 2 else [], schema=numbers), "flat")
    scene.show(table(scene).key_by("k").agg(n=op.count(), emit="changes", every="10s", name="spaced"), "spaced")


def nested(scene: Scene) -> None:
    """Aggregates of signed changes, which take rows back."""
    counts = table(scene).key_by("k", "bool").agg(n=op.count(), s=col("price").sum(), emit="changes", name="inner")
    kept = {"rows": op.count(), "low": col("n").min(), "high": col("n").max(), "kinds": col("n").count_distinct()}
    linear = {"total": col("s").sum(), "mean": col("n").mean(), "spread": col("n").variance()}
    chosen = {"top": col("n").arg_max("s"), "last": col("n").last(by="s"), "all": col("n").to_list(by="n")}
    by_key = counts.key_by("k")
    scene.show(by_key.agg(**kept, **linear, **chosen, emit="final"), "final", near=True)
    scene.show(by_key.agg(**kept, emit="changes", name="again"), "changes")
    scene.show(counts.key_by("n").agg(groups=op.count(), emit="changes").key_by("groups").agg(op.count()), "three")


def together(scene: Scene) -> None:
    """Unions of signed changes and rows, and changes that are spread over other subtasks."""
    rows = table(scene)
    counts = rows.key_by("k").agg(n=op.count(), emit="changes", name="one")
    others = rows.key_by("k").agg(n=col("price").count(), emit="changes", name="other")
    both = counts.union(others, rows.select("k", n=lit(1)))
    scene.show(both, "both")
    scene.show(both.rebalance().key_by("n").agg(op.count(), emit="changes", name="spread"), "spread")


SIGNED: list[Shape] = [changing, nested, together]
