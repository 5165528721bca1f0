"""Random pipelines: a recipe says it all, so a failure shows the recipe, and shrinks to a small one.

A recipe is rows, how they are cut into splits and batches, steps without keys (with expressions of the trees that are
tried on Spark one by one), and stages with keys: aggregates, changelogs, every kind of window with and without
lateness, panes, joins with another source, chosen rows, process functions, and rows of operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.expressions import Aggregation, Expr
from tests.agreement.process_functions import WindowSums, WindowSumsInColumns
from tests.agreement.shapes.scene import Scene
from tests.runners.spark.trees import Trees, rows

__all__ = ["Recipe", "cooked", "recipes"]

KEYS = ["i", "k", "s", "p", "d", "m", "f", "small", "w"]
"""Columns of the random rows, of many types."""
FIRST, LAST = -300, 300
"""Seconds of event time around 1970."""


@dataclass(frozen=True)
class Stage:
    """Something behind a key_by. ``shape``, ``size`` and ``lateness`` in seconds, and ``emit``, are of windows."""

    kind: str
    keys: tuple[str, ...]
    size: int
    lateness: int
    wants_late: bool
    emit: str
    shape: str = "tumbling"

    @property
    def window(self) -> flow.Window:
        match self.shape:
            case "hopping":
                return op.hopping(f"{self.size}s", every=f"{max(1, self.size // 3)}s")
            case "cumulate":
                return op.cumulate(f"{4 * self.size}s", every=f"{self.size}s")
            case _:
                return op.tumbling(f"{self.size}s")


@dataclass(frozen=True)
class Recipe:
    """A pipeline and its rows. ``disorder`` and ``delay`` in seconds: rows are late where the delay is the lesser."""

    seed: int
    rows: int
    splits: int
    batch_rows: int
    disorder: int
    delay: int
    steps: tuple[str, ...]
    stages: tuple[Stage, ...]
    again: bool
    """Whether a second source joins in, by a union."""

    @property
    def late(self) -> bool:
        """Whether rows may be late, so that the order of batches matters."""
        return self.delay < self.disorder or (self.splits > 1 and self.delay < LAST - FIRST)


SESSIONS = ("session", "signed session")
PANES = ("accumulating", "discarding", "signed panes")
JOINS = ("joined", "joined in windows", "joined in time", "with the row before", "with the row after", "looked up")
CHOSEN = ("first of each key", "last of each key", "top", "top of windows", "split")
PROCESSED = ("processed by key", "processed by column")
STAGES = st.builds(
    Stage,
    kind=st.sampled_from(
        [
            *("final", "updates", "changes", "window", "window", "window", "rows"),
            *SESSIONS,
            *PANES,
            "sliding",
            "counted",
            *JOINS,
            *CHOSEN,
            *PROCESSED,
        ]
    ),
    keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True).map(tuple),
    size=st.sampled_from([1, 7, 30, 200]),
    lateness=st.sampled_from([0, 0, 2, 20]),
    wants_late=st.booleans(),
    emit=st.sampled_from(["final", "updates"]),
    shape=st.sampled_from(["tumbling", "tumbling", "hopping", "cumulate"]),
)
STEPS = st.sampled_from(["filter", "compute", "words", "map", "flat_map", "map_batches", "rebalance", "select"])


def recipes() -> st.SearchStrategy[Recipe]:
    """Recipes of which each leads to a pipeline that runs."""
    return st.builds(
        Recipe,
        seed=st.integers(0, 10_000),
        rows=st.sampled_from([0, 1, 2, 9, 60, 150]),
        splits=st.sampled_from([1, 1, 1, 2, 3]),
        batch_rows=st.sampled_from([1, 3, 10, 25, 1_000]),
        disorder=st.sampled_from([0, 5, 40]),
        delay=st.sampled_from([0, 5, 40, LAST - FIRST]),
        steps=st.lists(STEPS, max_size=4).map(tuple),
        stages=st.lists(STAGES, min_size=1, max_size=3).map(tuple),
        again=st.booleans(),
    )


def table(recipe: Recipe, seed: int) -> pa.Table:
    """Random rows of every type that Spark has a word for, numbered, with event times out of order."""
    draw = Random(seed)
    n = range(recipe.rows)
    width = (LAST - FIRST) / max(1, recipe.rows)
    times = [int(1_000 * (FIRST + width * x - recipe.disorder * draw.random())) for x in n]
    found = rows(draw, recipe.rows)
    return found.append_column("at", pa.array(times, pa.timestamp("ms"))).append_column("n", pa.array(n, pa.int64()))


def cooked(scene: Scene, recipe: Recipe) -> None:
    """Put the pipeline of ``recipe`` into ``scene``."""
    draw = Random(recipe.seed)
    stream = scene.read_table(table(recipe, recipe.seed), splits=recipe.splits, batch_rows=recipe.batch_rows)
    timed = stream.with_watermark("at", delay=f"{recipe.delay}s")
    if recipe.again and not recipe.late:
        other = scene.read_table(table(recipe, recipe.seed + 1), "other", batch_rows=7)
        timed = timed.union(other.with_watermark("at", delay=f"{recipe.delay}s"))
    for step in recipe.steps:
        timed = _stepped(timed, step, Trees(draw), recipe)
    scene.show(timed, "rows")
    for place, stage in enumerate(recipe.stages):
        _staged(scene, timed, stage, f"{place} {stage.kind}", recipe, depth=0)


def _stepped(stream: flow.Stream, step: str, trees: Trees, recipe: Recipe) -> flow.Stream:
    match step:
        case "filter":
            found = _sound(stream, trees, "bool", recipe)
            return stream.filter(found | (col("n") % 3 != 0))
        case "compute":
            made = {f"c{i}": _sound(stream, trees, kind, recipe) for i, kind in enumerate(["int", "text", "float"])}
            return stream.with_columns(**made)
        case "words":
            words = {
                "rounded": col("f").round(1),
                "some": flow.coalesce(col("i"), col("n")),
                "middle": col("s").str.slice(1, 3),
            }
            words |= {"a": col("s").str.count("a"), "day": col("at").dt.strftime("%Y-%j %H:%M:%S")}
            made = stream.with_columns(**words)
            return (made.drop("nearly") if "nearly" in made.schema.names else made).rename({"rounded": "nearly"})
        case "map":
            return stream.map(_negated)
        case "flat_map":
            return stream.flat_map(_repeated)
        case "map_batches":
            return stream.map_batches(_halved)
        case "rebalance" if not recipe.late:
            return stream.rebalance()
        case _:
            return stream.select(*[name for name in stream.schema.names if name != "big"])


def _negated(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "i": None if row["i"] is None else -row["i"]}


def _repeated(row: dict[str, Any]) -> list[dict[str, Any]]:
    return [row] * (row["n"] % 3)


def _halved(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    half = batch.num_rows // 2
    return [batch.slice(0, half), batch.slice(half)]


def _sound(stream: flow.Stream, trees: Trees, kind: str, recipe: Recipe) -> Expr:
    """A random expression that can be computed for every row: the rows are known."""
    every = [table(recipe, seed) for seed in (recipe.seed, recipe.seed + 1)]
    for _ in range(20):
        expr = trees.draw(kind, 2)
        try:
            for each in every:
                for batch in each.to_batches():
                    expr.evaluate(batch)
            expr.dtype(stream.schema)
        except Exception:
            continue
        return expr
    return col("p") if kind == "bool" else col("n")


def _aggregations(stream: flow.Stream, depth: int) -> dict[str, Aggregation]:
    names = stream.schema.names
    asked: dict[str, Aggregation] = {f"rows{depth}": op.count()}
    if "total" in names:
        asked |= {"sum": col("total").sum(), "least_of_all": col("least").min()}
    if "n" in names:
        asked |= {"odd": op.count(where=col("n") % 2 == 1), "half": col("n").quantile(0.5)}
        asked |= {"least": col("n").min(), "greatest": col("n").max(), "total": col("n").sum()}
    if "s" in names:
        asked |= {"texts": col("s").count_distinct(), "text": col("s").max()}
    return asked


def _staged(scene: Scene, stream: flow.Stream, stage: Stage, label: str, recipe: Recipe, depth: int) -> None:
    keys = [key for key in stage.keys if key in stream.schema.names] or [stream.schema.names[0]]
    keyed = stream.key_by(*keys)
    asked = _aggregations(stream, depth)
    match stage.kind:
        case "final":
            found = keyed.agg(**asked, emit="final")
            scene.show(found, label, late=depth > 0 and recipe.late)
        case "updates":
            scene.show(keyed.agg(**asked, emit="updates"), label, last=keys, late=depth > 0 and recipe.late)
            return
        case "changes":
            found = keyed.agg(**asked, emit="changes").filter(col(f"rows{depth}") % 4 != 3)
            scene.show(found, label, late=depth > 0 and recipe.late)
        case "window":
            cut = keyed.window(stage.window, lateness=f"{stage.lateness}s")
            found = cut.agg(**asked, emit=stage.emit, name=f"{scene.label} {label} windows")
            scene.show(found, label, last=[*keys, "window_start", "window_end"], late=recipe.late)
            if stage.wants_late:
                scene.show(found.side("late"), f"{label} late", late=recipe.late)
            if found.changes == "updates":
                return  # results that come once more, and how often they do, depend on how batches are cut
        case "session" | "signed session":
            cut = keyed.window(op.session(f"{stage.size}s"), lateness=f"{stage.lateness}s")
            emit = "final" if stage.kind == "session" else "changes"
            found = cut.agg(**asked, emit=emit, name=f"{scene.label} {label}")
            scene.show(found, label, late=recipe.late)
        case kind if kind in JOINS:
            if "n" not in stream.schema.names or "at" not in stream.schema.names or recipe.late:
                return  # of two sources, which rows are late is not settled
            found = _joined(scene, stream.select(*{*keys, "n", "at"}), keys, stage, label, recipe)
            scene.show(found, label)
        case kind if kind in CHOSEN:
            if "n" in stream.schema.names and "at" in stream.schema.names:
                _chosen(scene, stream.select(*{*keys, "n", "at"}), keys, stage, label, recipe)
            return
        case kind if kind in PROCESSED:
            if "n" not in stream.schema.names or "at" not in stream.schema.names or recipe.late:
                return  # a window of which a row is late comes out twice
            columns = [stream.schema.field(key) for key in keys]
            schema = pa.schema([*columns, ("end", pa.timestamp("us")), ("total_n", pa.int64())])
            function = WindowSums if kind == "processed by key" else WindowSumsInColumns
            made = partial(function, tuple(keys), stage.size)
            found = keyed.select(*{*keys, "n", "at"}).key_by(*keys).process(made, schema=schema)
            scene.show(found, label)
        case "accumulating" | "discarding" | "signed panes":
            _shown_panes(scene, keyed, keys, stage, label, recipe, depth)
            return
        case "sliding":
            asked.pop("half", None)
            sliding = keyed.window(op.sliding(f"{stage.size}s"), lateness=f"{stage.lateness}s")
            found = sliding.agg(**asked, emit="changes" if stage.lateness else "final", name=f"{scene.label} {label}")
            scene.show(found, label, late=recipe.late)
        case "counted":
            every = max(1, stage.size // 9)
            found = keyed.window(op.count_window(stage.size, every=every)).agg(seen=op.count())
            scene.show(found, label, late=depth > 0 and recipe.late)
            return
        case _:
            found = keyed.filter(col("n") % 2 == 0) if "n" in stream.schema.names else keyed.rebalance()
            scene.show(found, label, late=depth > 0 and recipe.late)
    if depth == 0:
        behind = Stage(
            "window" if found.time and found.changes == "rows" else "final",
            ("rows0", "k", "n"),
            stage.size * 3,
            stage.lateness,
            stage.wants_late,
            "final",
        )
        _staged(scene, found, behind, f"{label} and", recipe, depth=1)


def _chosen(scene: Scene, stream: flow.Stream, keys: list[str], stage: Stage, label: str, recipe: Recipe) -> None:
    """Show of ``unique``, ``top`` and ``split`` what does not depend on the order of arrival."""
    name, n = f"{scene.label} {label}", 1 + stage.size % 4
    ties, descending = ("all", [True, False]) if stage.wants_late else ("arrival", [False, True])
    emit = "changes" if stage.lateness else None
    match stage.kind:
        case "first of each key":
            scene.show(stream.unique(*keys, name=name).select(*keys), label)
        case "last of each key":
            scene.show(stream.unique(*keys, keep="last", emit=emit, name=name).select(*keys, "at"), label)
        case "top":
            top = stream.key_by(*keys).top(n, by=["at", "n"], descending=descending, ties=ties, emit=emit, name=name)
            scene.show(top, label)
        case "top of windows":
            windows = stream.key_by(*keys).window(stage.window, lateness=f"{stage.lateness}s")
            top = windows.top(n, by=["n", "at"], descending=descending, ties=ties, name=name)
            scene.show(top, label, late=recipe.late)
            scene.show(top.side("late"), f"{label} late", late=recipe.late)
        case _:
            parts = stream.split({"odd": col("n") % 2 == 1, "some": col("n") % 3 == 0}, name=name)
            for part in ("odd", "some", "other"):
                scene.show(parts[part], f"{label} {part}")


def _joined(scene: Scene, left: flow.Stream, keys: list[str], stage: Stage, label: str, recipe: Recipe) -> flow.Stream:
    """Join ``left`` with other rows, no two of which are at one time."""
    draw, name = Random(f"{recipe.seed} {label}"), f"{scene.label} {label}"
    rows = table(recipe, recipe.seed + 2).select(list(dict.fromkeys([*keys, "n", "at"])))
    rows = pa.Table.from_pylist(list({row["at"]: row for row in rows.to_pylist()}.values()), rows.schema)
    names = [key for key in keys if key in rows.schema.names]
    if stage.kind == "looked up":
        for number, key in enumerate(rows.schema):
            if key.name in names and pa.types.is_timestamp(key.type):  # Parquet has no seconds: left has milliseconds
                rows = rows.set_column(number, key.name, rows[key.name].cast(left.schema.field(key.name).type))
        return left.lookup(rows, on=names, how=draw.choice(["inner", "left"]), name=name)
    source = scene.read_table(rows, f"{label} other", batch_rows=7)
    right = source.with_watermark("at", delay=f"{recipe.delay}s")
    how = draw.choice(["inner", "left", "right", "full"])
    match stage.kind:
        case "joined in windows":
            lateness = f"{stage.lateness}s"
            return left.join(right, on=names, how=how, window=stage.window, lateness=lateness, name=name)
        case "joined in time":
            within = (f"-{stage.lateness}s", f"{stage.size}s")
            return left.join(right, on=names, how=how, within=within, name=name)
        case "with the row before":
            tolerance = f"{stage.size}s" if stage.wants_late else None
            return left.join_asof(right, by=names, how=draw.choice(["inner", "left"]), tolerance=tolerance, name=name)
        case "with the row after":
            return left.join_asof(right, by=names, strategy="forward", tolerance=f"{stage.size}s", name=name)
        case _:
            emit = "changes" if stage.wants_late and how != "inner" else None
            return left.join(right, on=names, how=how, emit=emit, name=name)


def _shown_panes(
    scene: Scene, keyed: flow.KeyedStream, keys: list[str], stage: Stage, label: str, recipe: Recipe, depth: int
) -> None:
    """Show of panes what does not depend on how batches are cut: the last of each window, the sums, the net."""
    name, early, lateness = f"{scene.label} {label}", op.after_rows(2), f"{stage.lateness}s"
    of, n = [*keys, "window_start", "window_end"], f"rows{depth}"
    asked = {n: op.count(), "last": col("n").max()}
    match stage.kind:
        case "accumulating":
            found = keyed.window(stage.window, lateness=lateness, early=early).agg(**asked, name=name)
            scene.show(found.drop("pane", "pane_index"), label, last=of, late=recipe.late)
        case "discarding":
            window = op.session(f"{stage.size}s") if stage.wants_late else stage.window
            panes = keyed.window(window, lateness=lateness, early=early, panes="discarding").agg(**asked, name=name)
            sums = {n: col(n).sum(), "last": col("last").max()}
            scene.show(panes.key_by(*keys).agg(**sums, emit="final"), label, late=recipe.late)
        case _:
            found = keyed.window(stage.window, lateness=lateness, early=early).agg(**asked, emit="changes", name=name)
            scene.show(found, label, late=recipe.late)
