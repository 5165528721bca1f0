"""Updates are not rows: where a stream of updates may go, and what else is refused while the graph is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col, lit
from dataflow.contracts.operator import Operator
from dataflow.contracts.updates import Updates
from dataflow.errors import CheckpointMismatch, GraphError
from dataflow.planning.graph import Partitioning
from dataflow.planning.physical_plan import make_plan as plan_of
from dataflow.runners.faults import Faults
from dataflow.runners.spark.placement import plan_for_spark
from tests.checkpoints import preview
from tests.seeds import each_once_with_seeds, seeds

ROWS = pa.table({"k": ["a", "a", "a", "b"], "x": [1, 2, 3, 4], "at": pa.array([1, 12, 2, 30], pa.timestamp("s"))})
KEY_AND_WINDOW = ("k", "window_start", "window_end")
Way = Callable[[flow.Stream], Any]


def rows(table: pa.Table = ROWS, **options: Any) -> flow.Stream:
    return flow.Pipeline().source(op.from_arrow(table, batch_rows=1, **options), name="in")


def counts(stream: flow.Stream | None = None, **options: Any) -> flow.Stream:
    """A row for each row of the input: how many there are of its key so far."""
    keyed = (stream or rows()).key_by("k")
    return keyed.agg(n=op.count(), emit="updates", name="counts", **options)


def windows(**options: Any) -> flow.Stream:
    """Windows of which one changes after it came out."""
    keyed = rows().with_watermark("at").key_by("k")
    return keyed.window(op.tumbling("10s"), lateness="30s").agg(n=op.count(), name="windows", **options)


def total(stream: flow.Stream) -> flow.Stream:
    """The sum of ``n`` over all rows."""
    return stream.with_columns(all=lit(0)).key_by("all").agg(total=col("n").sum(), emit="final")


# --- the five ways in which updates were counted as rows


def test_an_aggregate_over_all_rows_of_updates_is_refused() -> None:
    with pytest.raises(GraphError, match=r"agg: it would count rows.*'counts' emits updates"):
        counts().agg(n=op.count())


def test_a_sum_over_the_counts_of_four_rows_is_refused_and_over_final_counts_it_is_four() -> None:
    with pytest.raises(GraphError, match=r"key_by: .*'counts' emits updates"):
        total(counts())
    final = rows().key_by("k").agg(n=op.count(), emit="final")
    assert total(final).collect()["total"].to_pylist() == [4]
    assert total(counts().as_rows()).collect()["total"].to_pylist() == [1 + 2 + 3 + 1]


def test_a_pipeline_that_counts_on_builds_over_files_and_names_the_watched_source_that_makes_updates_the_default(
    tmp_path: Path,
) -> None:
    def count_on(source: flow.Source) -> flow.Stream:
        return total(flow.Pipeline().source(source, name="inbox").key_by("k").agg(n=op.count(), name="counts"))

    for number in range(2):
        (tmp_path / f"{number}.csv").write_text("k\na\nb\n")
    schema = pa.schema({"k": pa.string()})
    assert count_on(op.read_csv(tmp_path, schema=schema)).collect()["total"].to_pylist() == [4]
    with pytest.raises(GraphError, match=r"default because source 'inbox' \(watch\(.*\)\) has no end"):
        count_on(op.watch(tmp_path, op.read_csv, schema=schema))


def test_windows_that_may_change_do_not_feed_a_window() -> None:
    with pytest.raises(GraphError, match=r"window: .*'windows' emits updates.* default because its windows have late"):
        windows().key_by("k").window(op.tumbling("100s"))
    kept = windows(emit="final").key_by("k").window(op.tumbling("100s")).agg(n=col("n").sum())
    assert sorted(kept.collect()["n"].to_pylist()) == [1, 3]
    every = windows().as_rows().key_by("k").window(op.tumbling("100s")).agg(n=col("n").sum())
    assert sorted(every.collect()["n"].to_pylist()) == [1, 4], "the window of 1 and 2 came out twice"


def test_a_filter_on_a_value_would_keep_a_value_that_was_taken_back() -> None:
    sums = rows(pa.table({"k": ["a", "a"], "x": [5, -7]})).key_by("k").agg(s=col("x").sum(), emit="updates")
    with pytest.raises(GraphError, match=r"filter: the condition reads 's', .*keep one that was replaced"):
        sums.filter(col("s") > 0)
    assert sums.as_rows().filter(col("s") > 0).collect()["s"].to_pylist() == [5]


def test_rebalance_would_mix_up_the_updates_of_a_key() -> None:
    with pytest.raises(GraphError, match=r"rebalance: an update could overtake"):
        counts().rebalance()


# --- what is refused


class Passes(Operator):
    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


REFUSED: dict[str, Way] = {
    "key_by": lambda s: s.key_by("n"),
    "key_by an update key and another column": lambda s: s.key_by("k", "n"),
    "agg": lambda s: s.key_by("k").agg(op.count()),
    "window": lambda s: s.key_by("k").window(op.tumbling("1s")),
    "map": lambda s: s.map(lambda row: row),
    "flat_map": lambda s: s.flat_map(lambda row: [row]),
    "map_batches": lambda s: s.map_batches(lambda batch: batch),
    "apply": lambda s: s.apply(Passes),
    "apply to another input": lambda s: s.as_rows().apply(Passes, s),
    "apply by key": lambda s: s.key_by("k").apply(Passes),
    "union": lambda s: s.union(s),
    "union with rows": lambda s: s.as_rows().union(s),
    "rebalance": lambda s: s.rebalance(),
    "rebalance by key": lambda s: s.key_by("k").rebalance(),
    "broadcast": lambda s: s.broadcast(),
    "filter": lambda s: s.filter(col("n") > 1),
    "filter on an update key and another column": lambda s: s.filter((col("k") == "a") | (col("n") > 1)),
    "select": lambda s: s.select("n"),
    "select of a computed key": lambda s: s.select("n", k=col("k").str.upper()),
    "with_columns": lambda s: s.with_columns(k=lit("a")),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("source", [counts, windows], ids=["keyed", "windowed"])
def test_what_would_count_updates_as_rows_is_refused_and_the_error_says_what_to_write(
    name: str, source: Callable[[], flow.Stream]
) -> None:
    stream = source()
    operators = len(stream._pipeline.graph)
    with pytest.raises(GraphError) as error:
        REFUSED[name](stream)
    message = str(error.value)
    assert message.startswith(f"{name.split(' ')[0]}: ")
    assert 'emit="final"' in message
    assert ".as_rows()" in message
    assert f"{stream.name!r} emits updates" in message
    assert len(stream._pipeline.graph) == operators, "a word that is refused adds no operator"


def test_a_filter_on_a_column_that_took_the_name_of_an_update_key_is_refused() -> None:
    with pytest.raises(GraphError, match=r"filter: the condition reads 'k'.* equal 'key' only"):
        counts().select(key=col("k"), k=col("n")).filter(col("k") > 1)


@pytest.mark.parametrize("name", [name for name in REFUSED if "input" not in name and name != "union with rows"])
def test_as_rows_allows_all_of_it(name: str) -> None:
    stream = windows().as_rows()
    assert stream.changes == "rows"
    REFUSED[name](stream)


def test_the_error_says_when_an_interval_made_updates_the_default() -> None:
    stream = rows().key_by("k").agg(op.count(), every="1s", name="counts")
    with pytest.raises(GraphError, match="That is its default because every= is given"):
        stream.rebalance()


def test_the_error_blames_no_default_where_updates_were_asked_for() -> None:
    with pytest.raises(GraphError) as error:
        counts().rebalance()
    assert "default" not in str(error.value)


def test_an_endless_source_elsewhere_in_the_pipeline_does_not_make_updates_the_default(tmp_path: Path) -> None:
    p = flow.Pipeline()
    p.source(op.watch(tmp_path, op.read_csv, schema=pa.schema({"k": pa.string()})), name="endless")
    bounded = p.source(op.from_arrow(ROWS), name="bounded")
    assert bounded.key_by("k").agg(op.count()).changes == "rows"


# --- what is allowed

ALLOWED: dict[str, tuple[Way, tuple[str, ...]]] = {
    "as they are": (lambda s: s, ("k",)),
    "select": (lambda s: s.select("n", "k"), ("k",)),
    "renamed": (lambda s: s.select("n", key=col("k")), ("key",)),
    "renamed twice": (lambda s: s.select("n", key=col("k")).select("n", k2=col("key")), ("k2",)),
    "swapped": (lambda s: s.select(k=col("n"), n=col("k")), ("n",)),
    "with_columns": (lambda s: s.with_columns(n=col("n") * 2, more=col("k")), ("k",)),
    "a copy first": (lambda s: s.select({"k2": col("k")}, "n", "k"), ("k",)),
    "a copy that stays": (lambda s: s.with_columns(k2=col("k")).select("n", "k2"), ("k2",)),
    "a copy in the place of the key": (lambda s: s.with_columns(k2=col("k")).with_columns(k=col("n")), ("k2",)),
    "a copy that is left out": (lambda s: s.select({"k2": col("k")}, "k", "n").select("n", "k"), ("k",)),
    "key_by of a copy": (lambda s: s.with_columns(k2=col("k")).key_by("k2"), ("k",)),
    "filter": (lambda s: s.filter(col("k") != "b"), ("k",)),
    "filter beside a copy": (lambda s: s.select({"k2": col("k")}, "k").filter(col("k") != "b"), ("k",)),
    "filter of a copy": (lambda s: s.with_columns(k2=col("k")).filter(col("k2") != "b"), ("k",)),
    "filter of a new name": (lambda s: s.select("n", key=col("k")).filter(col("key") != "b"), ("key",)),
    "key_by": (lambda s: s.key_by("k"), ("k",)),
    "key_by of a new name": (lambda s: s.select("n", key=col("k")).key_by("key").filter(lit("x") == "x"), ("key",)),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_updates_keep_their_keys(name: str) -> None:
    way, keys = ALLOWED[name]
    stream = way(counts())
    updates = stream._meaning
    assert isinstance(updates, Updates)
    assert (stream.changes, updates.keys) == ("updates", keys)
    table = stream.collect()
    last = {row[keys[0]]: row for row in table.to_pylist()}
    assert set(last) == ({"a"} if name.startswith("filter") else {"a", "b"})


def test_the_keys_of_windows_with_lateness_are_key_and_window() -> None:
    updates = windows()._meaning
    assert isinstance(updates, Updates)
    assert updates.keys == KEY_AND_WINDOW
    assert windows().filter(col("window_end") > col("window_start")).changes == "updates"
    with pytest.raises(GraphError, match=r"select: it drops or changes the update key 'window_end'"):
        windows().select("k", "window_start", "n")


def test_side_outputs_of_updates_are_rows() -> None:
    late = windows().side("late")
    assert late.changes == "rows"
    late.rebalance().map(lambda row: row)


@pytest.mark.filterwarnings("ignore::dataflow.errors.LateRowsWarning")
def test_final_aggregates_and_windows_without_lateness_are_rows() -> None:
    keyed = rows().with_watermark("at").key_by("k")
    cut = keyed.window(op.tumbling("10s"))
    assert [cut.agg(n=op.count(), emit=emit).changes for emit in (None, "final", "updates")] == ["rows"] * 3
    assert keyed.agg(n=op.count(), emit="final").changes == "rows"
    tables = [cut.agg(n=op.count(), emit=emit).collect() for emit in ("final", "updates")]
    assert tables[0].equals(tables[1])


def test_as_rows_adds_no_operator_and_shifts_no_name() -> None:
    stream = counts()
    described = stream._pipeline.graph.describe()
    again = stream.as_rows()
    assert stream._pipeline.graph.describe() == described
    assert (again.name, again.schema, stream.changes) == (stream.name, stream.schema, "updates")
    keyed = stream.key_by("k").as_rows()
    assert isinstance(keyed, flow.KeyedStream)
    assert keyed.agg(op.count(), emit="final").name == "agg"


def test_collect_and_head_take_updates() -> None:
    assert counts().collect()["n"].to_pylist() == [1, 2, 3, 1]
    assert counts().select("n", key=col("k")).head(2)["n"].to_pylist() == [1, 2]
    assert counts().as_rows().rebalance().head(1, parallelism=2).num_rows == 1


# --- where they go


def _edges(p: flow.Pipeline, parallelism: int) -> dict[str, tuple[Partitioning, tuple[str, ...]]]:
    plan = plan_of(p.graph, parallelism=parallelism)
    return {link.target: (link.partitioning, link.keys) for link in plan.links}


def _widths(width: int) -> flow.Pipeline:
    """Updates of two subtasks through one or more of another number."""
    table = pa.table({"k": [i % 5 for i in range(60)], "x": range(60)})
    p = flow.Pipeline("widths")
    with p:
        source = p.source(op.from_arrow(table, batch_rows=3, splits=2), name="in")
        changed = counts(source, parallelism=2).select("n", key=col("k"), parallelism=3, name="renamed")
        changed.filter(col("key") < 4, name="some").sink(op.collect(), name="out", parallelism=width)
    return p


def test_updates_are_hashed_on_their_keys_wherever_the_widths_differ() -> None:
    assert _edges(_widths(1), 3)["renamed"] == (Partitioning.HASH, ("k",))
    assert _edges(_widths(1), 3)["out"] == (Partitioning.HASH, ("key",))
    p = flow.Pipeline()
    with p:
        counts(p.source(op.from_arrow(ROWS)), parallelism=2).as_rows().sink(op.collect(), name="out", parallelism=3)
    assert _edges(p, 1)["out"] == (Partitioning.REBALANCE, ())


def test_updates_of_one_subtask_are_hashed_too_because_several_take_them() -> None:
    p = flow.Pipeline()
    with p:
        counts(p.source(op.from_arrow(ROWS)), parallelism=1).sink(op.collect(), name="out", parallelism=3)
    assert _edges(p, 1)["out"] == (Partitioning.HASH, ("k",))


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("seed", seeds(2, 200))
def test_the_last_row_of_each_key_is_right_where_the_widths_differ(seed: int, width: int) -> None:
    result = flow.SimulatedRunner(seed, Faults(skew=0.3)).start(_widths(width), parallelism=3).wait()
    assert last_counts(result) == dict.fromkeys(range(4), 12)


@pytest.mark.parametrize("seed", seeds(1, 60))
def test_updates_of_windows_keep_their_order_where_the_widths_differ(seed: int) -> None:
    at = pa.array([t - 7 * (t % 3) for t in range(60)], pa.timestamp("ms", "Europe/Paris"))
    p = flow.Pipeline("windows")
    with p:
        rows = p.source(op.from_arrow(pa.table({"k": [0] * 60, "at": at}), batch_rows=2), name="in")
        cut = rows.with_watermark("at").key_by("k").window(op.tumbling("10ms"), lateness="1s")
        changed = cut.agg(n=op.count(), parallelism=2).with_columns(m=col("n") * 2, parallelism=3)
        changed.sink(op.collect(), name="out", parallelism=2)
    table = flow.SimulatedRunner(seed, Faults(skew=0.3)).start(p, parallelism=1).wait().table("out")
    last = dict(zip(table["window_start"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert table.num_rows > len(last)
    assert sum(last.values()) == 60


def last_counts(result: flow.RunResult) -> dict[int, int]:
    return {row["key"]: row["n"] for row in result.table("out").to_pylist()}


@pytest.mark.parametrize(("seed", "mode"), each_once_with_seeds(60, ["aligned", "unaligned-persisted"]))
def test_crashes_leave_the_last_row_of_each_key_right(seed: int, mode: str) -> None:
    runner = flow.SimulatedRunner(seed, Faults(crashes=2, skew=0.3))
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode=mode)
    assert last_counts(runner.start(_widths(2), parallelism=3, checkpoint=settings).wait()) == dict.fromkeys(
        range(4), 12
    )


def test_updates_in_flight_that_were_dealt_out_in_turn_are_not_restored_to_a_hash_edge() -> None:
    """They would lose their order: the later updates of their key go to another subtask."""
    store = flow.MemoryStore()
    settings = flow.Checkpointing(store, every="200us", mode="unaligned-persisted", keep=1_000)

    def start(restore: object, *, as_rows: bool) -> flow.RunResult:
        p = flow.Pipeline("in flight")
        table = pa.table({"k": [i % 5 for i in range(600)]})
        with p:
            changed = counts(p.source(op.from_arrow(table, batch_rows=3, splits=2), name="in"))
            changed = changed.as_rows() if as_rows else changed
            changed.filter(col("k") < 9, name="f", parallelism=3).sink(op.collect(), name="out")
        runner = flow.SimulatedRunner(1, Faults(slices=0.5), max_turns=200_000)
        return runner.start(p, parallelism=2, checkpoint=settings, restore=restore, channel_credit=4).wait()

    start("never", as_rows=True)
    full = next(n for n in store.checkpoints() if preview(store, n).in_flight_rows_of("f") is not None)
    with pytest.raises(
        CheckpointMismatch, match=r"in flight on 'counts\[\d\] -> f\[\d\]' and were not partitioned by k"
    ):
        start(full, as_rows=False)
    assert start(full, as_rows=True).table("out").num_rows > 0


def test_spark_hashes_updates_on_their_keys_too() -> None:
    """Whatever width each operator has there."""
    spark_plan = plan_for_spark(_widths(1).graph, parallelism=2, key_groups=5)
    edges = {link.target: (link.partitioning, link.keys) for link in spark_plan.plan.links}
    assert edges["renamed"] == (Partitioning.HASH, ("k",))


# --- what a run says of them


def test_the_summary_counts_updates() -> None:
    p = flow.Pipeline("summed up")
    table = pa.table({"k": [i % 3 for i in range(14)]})
    with p:
        changed = counts(p.source(op.from_arrow(table, batch_rows=1), name="in"))
        changed.sink(op.collect(), name="out")
        changed.as_rows().sink(op.collect(), name="each")
    result = p.run()
    assert {"  out  out: 14 updates", "  out  each: 14 rows"} <= {*str(result).splitlines()}
    assert result.changes == result.to_dict()["changes"] == {"out": "updates", "each": "rows"}
    assert "out: 14 updates" in result._repr_html_()
