"""``unique``, ``top`` and ``split`` on random rows against DuckDB or a model, with crashes, and on every engine."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.seeds import in_soak, seeds

EXACT = ["aligned", "aligned-timeout", "unaligned-persisted"]
US = pa.timestamp("us")
SCHEMA = pa.schema(
    {"n": pa.int64(), "k": pa.float64(), "x": pa.float64(), "s": pa.string(), "d": pa.decimal128(20, 2), "at": US}
)
ORDERS = ["x", "s", "d", "at", "n"]


def random_table(draw: random.Random, most: int = 40, *, in_order: bool = False) -> pa.Table:
    count = draw.randrange(1, most)
    rows = [
        {
            "n": n,
            "k": draw.choice([None, math.nan, 0.0, -0.0, 1.0, 2.0]),
            "x": draw.choice([None, math.nan, -math.inf, -1.0, 0.0, -0.0, 2.5]),
            "s": draw.choice([None, "", "a", "a\0", "ab", "b", "ü"]),
            "d": draw.choice([None, Decimal("-3.50"), Decimal("0.01"), Decimal("9" * 18)]),
            "at": max(0, 3 * n + (0 if in_order else draw.randrange(-20, 21))),
        }
        for n in range(count)
    ]
    table = pa.Table.from_pylist(rows, SCHEMA.set(5, pa.field("at", pa.int64())))
    return table.cast(SCHEMA)


def plain(value: Any) -> Any:
    """Return a value that equals itself: NaN as text, and one zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def counted(rows: Iterable[dict[str, Any]]) -> Counter[Any]:
    return Counter(tuple((name, plain(value)) for name, value in sorted(row.items())) for row in rows)


@dataclass
class Case:
    """Random rows, how a source cuts and delays them, and how the job runs."""

    seed: int
    in_order: bool = False
    draw: random.Random = field(init=False)
    table: pa.Table = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.table = random_table(self.draw, in_order=self.in_order)
        self.cut = self.draw.choice([1, 3, 100])
        self.delay = self.draw.choice(["0us", "10us", "50us"])

    def stream(self, p: flow.Pipeline, *, timed: bool = True) -> flow.Stream:
        rows = p.source(op.from_arrow(self.table, batch_rows=self.cut), name="rows", parallelism=1)
        return rows.with_watermark("at", delay=self.delay, name="timed") if timed else rows

    def run(self, p: flow.Pipeline) -> flow.RunResult:
        """Run in the simulator, with crashes and without, on one to three tasks."""
        faults = Faults(crashes=self.draw.randrange(3), crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
        settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=self.draw.choice(EXACT))
        runner = flow.SimulatedRunner(self.seed, faults, max_turns=200_000)
        return runner.start(p, parallelism=self.draw.choice([1, 2, 3]), checkpoint=settings).wait()

    def emit(self, stream: flow.Stream) -> Counter[Any]:
        """Run the job of ``stream``; return its rows, of signed changes the net."""
        stream.sink(op.collect(net=stream.changes == "signed"), name="out")
        return counted(self.run(stream._pipeline).table("out").to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        return self.table.to_pylist()


@pytest.mark.parametrize("seed", seeds(6, 400))
def test_the_first_row_of_each_key_comes_out(seed: int) -> None:
    case = Case(seed)
    keys = case.draw.choice([["k"], ["s"], ["k", "s"], ["d", "x"]])
    found = case.emit(case.stream(flow.Pipeline()).unique(keys, name="unique"))
    first: dict[Any, dict[str, Any]] = {}
    for row in case.rows():
        first.setdefault(tuple(plain(row[key]) for key in keys), row)
    assert found == counted(first.values())


@pytest.mark.parametrize("seed", seeds(6, 400))
def test_the_last_row_of_each_key_is_left(seed: int) -> None:
    case = Case(seed)
    keys = case.draw.choice([["k"], ["s"], ["k", "s"], ["d", "x"], ["n", "k", "x", "s", "d", "at"]])
    timed, emit = case.draw.choice([True, False]), case.draw.choice(["final", "changes"])
    rows = case.stream(flow.Pipeline(), timed=timed)
    found = case.emit(rows.unique(keys, keep="last", emit=emit, name="unique"))
    last: dict[Any, dict[str, Any]] = {}
    for row in case.rows():
        key = tuple(plain(row[key]) for key in keys)
        if not timed or key not in last or row["at"] >= last[key]["at"]:
            last[key] = row
    assert found == counted(last.values())


@pytest.mark.parametrize("seed", seeds(6, 400))
def test_a_key_starts_anew_after_its_time_to_live(seed: int) -> None:
    case = Case(seed, in_order=True)
    ttl = case.draw.choice([1, 7, 20])
    kind = case.draw.choice(["first", "last", "top"])
    case.cut = case.cut if kind == "first" else 1  # of two lives in a batch only the last one is shown
    rows = case.stream(flow.Pipeline())
    options: dict[str, Any] = {"ttl": f"{ttl}us", "name": "it"}
    lives: list[list[dict[str, Any]]] = []
    current: dict[Any, list[dict[str, Any]]] = {}
    for row in case.rows():
        life = current.get(plain(row["k"]))
        if life is None or (row["at"] - life[-1]["at"]).microseconds >= ttl:
            life = current[plain(row["k"])] = []
            lives.append(life)
        life.append(row)
    if kind == "top":
        down = case.draw.choice([True, False])
        found = case.emit(rows.key_by("k").top(1, by="n", descending=down, **options))
        ranked = [{**life[-1 if down else 0], "rank": 1} for life in lives]
        assert found == counted(ranked)
    else:
        found = case.emit(rows.unique("k", keep=kind, **options))  # type: ignore[arg-type]
        assert found == counted(life[0 if kind == "first" else -1] for life in lives)


def ranked_by_duckdb(
    table: pa.Table, keys: list[str], by: list[tuple[str, bool]], n: int, *, ties: str
) -> Counter[Any]:
    """Return the first rows by DuckDB. Null is an own key there, too, and so is NaN; zeros are one."""
    order = [f'"{name}" {"desc" if down else "asc"} nulls last' for name, down in by]
    rank = "rank" if ties == "all" else "row_number"
    order += [] if ties == "all" else ["n asc"]
    partition = f"partition by {', '.join(keys)}" if keys else ""
    query = f"select *, {rank}() over ({partition} order by {', '.join(order)}) as rank from t qualify rank <= {n}"
    with duckdb.connect() as connection:
        connection.register("t", table)
        return counted(connection.sql(query).to_arrow_table().to_pylist())


@pytest.mark.parametrize("seed", seeds(8, 1200))
def test_the_first_rows_of_each_key_agree_with_duckdb(seed: int) -> None:
    case = Case(seed)
    keys = case.draw.choice([[], ["k"], ["s"], ["k", "s"]])
    names = case.draw.sample(ORDERS, case.draw.choice([1, 1, 2, 3]))
    by = [(name, case.draw.choice([True, False])) for name in names]
    n, ties = case.draw.choice([1, 2, 3, 100]), case.draw.choice(["arrival", "all"])
    rows = case.stream(flow.Pipeline(), timed=case.draw.choice([True, False]))
    options: dict[str, Any] = {"ties": ties, "emit": case.draw.choice(["final", "changes"]), "name": "top"}
    down = [descending for _, descending in by]
    top = (rows.key_by(keys) if keys else rows).top(n, by=names, descending=down, **options)
    assert case.emit(top) == ranked_by_duckdb(case.table, keys, by, n, ties=ties)


@pytest.mark.parametrize("seed", seeds(8, 600))
def test_the_first_rows_of_each_window_agree_with_duckdb(seed: int) -> None:
    case = Case(seed)
    kind = case.draw.choice(["tumbling", "hopping", "same"])
    if kind != "tumbling":
        case.delay = "100us"  # a late row may count in some windows of it, so no row is late
    size = 20
    window = op.hopping("20us", every="10us") if kind == "hopping" else op.tumbling("20us")
    keys = case.draw.choice([[], ["k"], ["s"]])
    by = (case.draw.choice(ORDERS), case.draw.choice([True, False]))
    n, ties = case.draw.choice([1, 2, 100]), case.draw.choice(["arrival", "all"])
    p = flow.Pipeline()
    rows = case.stream(p)
    if kind == "same":
        rows = (
            rows.key_by("n")
            .window(window)
            .agg(**{name: col(name).max() for name in ("k", "x", "s", "d", "at")}, name="windows")
        )
        window = op.same_window()
        ties = "all"  # results of windows come in no particular order
    keyed = rows.key_by(keys) if keys else rows
    top = keyed.window(window, lateness=case.draw.choice(["0us", "15us"])).top(
        n, by=by[0], descending=by[1], ties=ties, name="top"
    )
    top.side("late").sink(op.collect(), name="late")
    top.sink(op.collect(), name="out")
    counts = top.window(op.same_window()).agg(n=op.count(), name="counts")
    counts.sink(op.collect(), name="counted")
    counts.side("late").sink(op.collect(), name="late after it")
    result = case.run(p)
    late = {row["n"] for row in result.table("late").to_pylist()}
    table = case.table.filter(pa.array([number not in late for number in case.table["n"].to_pylist()]))
    every = size // 2 if kind == "hopping" else size
    parts = []
    for number in range(-1, 20):
        start = number * every
        at = table["at"].cast(pa.int64()).to_numpy()
        inside = table.filter(pa.array((at >= start) & (at < start + size)))
        edges = {"window_start": start, "window_end": start + size}
        for name, edge in edges.items():
            inside = inside.append_column(name, pa.array([edge] * len(inside), pa.int64()).cast(US))
        parts.append(inside)
    windows = pa.concat_tables(parts)
    expected = ranked_by_duckdb(windows, ["window_start", *keys], [by], n, ties=ties)
    assert counted(result.table("out").to_pylist()) == expected
    assert not result.table("late after it").num_rows


@pytest.mark.parametrize("seed", seeds(6, 600))
def test_the_first_rows_of_signed_changes_are_those_of_their_net(seed: int) -> None:
    case = Case(seed)
    n, ties = case.draw.choice([1, 2, 4]), case.draw.choice(["arrival", "all"])
    emit, down = case.draw.choice(["final", "changes"]), case.draw.choice([True, False])
    counts = case.stream(flow.Pipeline()).key_by("k", "s").agg(op.count().alias("c"), emit="changes", name="counts")
    keyed = counts.key_by("k") if case.draw.randrange(2) else counts
    keys = ["k"] if isinstance(keyed, flow.KeyedStream) else []
    by = ["c", "s", *([] if keys else ["k"])] if ties == "arrival" else ["c"]
    descending = [down, False, True][: len(by)]
    top = keyed.top(n, by=by, descending=descending, ties=ties, emit=emit, name="top")
    with duckdb.connect() as connection:
        connection.register("t", case.table)
        net = connection.sql("select k, s, count(*) c, 0 n from t group by k, s").to_arrow_table()
    ranked = ranked_by_duckdb(net, keys, list(zip(by, descending, strict=True)), n, ties=ties)
    expected = Counter({tuple(cell for cell in row if cell[0] != "n"): times for row, times in ranked.items()})
    assert case.emit(top) == expected


@pytest.mark.parametrize("seed", seeds(4, 200))
def test_each_row_is_in_the_first_stream_whose_condition_holds(seed: int) -> None:
    case = Case(seed)
    p = flow.Pipeline()
    parts = case.stream(p).split({"one": col("x") > 0, "two": col("s") > "a"}, rest="rest", name="split")
    for name, part in parts.items():
        assert part.time == "at"
        part.sink(op.collect(), name=name)
    result = case.run(p)
    expected: dict[str, list[dict[str, Any]]] = {"one": [], "two": [], "rest": []}
    for row in case.rows():
        one = row["x"] is not None and (math.isnan(row["x"]) is False) and row["x"] > 0
        two = row["s"] is not None and row["s"] > "a"
        expected["one" if one else "two" if two else "rest"].append(row)
    for name, rows in expected.items():
        found = result.table(name).to_pylist()
        assert counted(found) == counted(rows), name


def all_kinds() -> flow.Pipeline:
    """A pipeline with each kind, whose results do not depend on the order of arrival across subtasks."""
    case = Case(3)
    case.table, case.cut, case.delay = random_table(random.Random(3), 80), 2, "100us"
    with flow.Pipeline("chosen rows") as p:
        rows = case.stream(p)
        rows.unique("k", "s", name="first").sink(op.collect(), name="first rows")
        rows.unique("k", keep="last", emit="changes", name="last").sink(op.collect(net=True), name="last rows")
        rows.key_by("k").top(3, by="x", ties="all", name="top").sink(op.collect(), name="top rows")
        changing = rows.key_by("k").top(2, by=["s", "n"], emit="changes", ttl="1h", name="changing")
        changing.sink(op.collect(net=True), name="changing rows")
        counts = rows.key_by("k", "s").agg(op.count().alias("c"), emit="changes", name="counts")
        counts.key_by("k").top(2, by=["c", "s"], name="signed").sink(op.collect(net=True), name="signed rows")
        windows = rows.key_by("k").window(op.hopping("20us", every="10us"))
        windows.top(2, by="d", name="windows").sink(op.collect(), name="window rows")
        parts = rows.split({"one": col("x") > 0}, rest="rest", name="split")
        parts["one"].sink(op.collect(), name="one")
        parts["rest"].sink(op.collect(), name="rest")
        signed = counts.split({"often": col("c") > 1}, name="split counts")
        signed["often"].sink(op.collect(net=True), name="often")
    return p


def outputs(result: flow.RunResult) -> dict[str, Counter[Any]]:
    return {sink: counted(table.to_pylist()) for sink, table in result.tables.items()}


def test_chosen_rows_are_restored_from_every_checkpoint() -> None:
    store = flow.MemoryStore()
    settings = flow.Checkpointing(store, every="3ms", keep=100)
    whole = all_kinds().run(flow.SimulatedRunner(5), parallelism=2, checkpoint=settings)
    assert len(whole.checkpoints) > 3
    for record in reversed(whole.checkpoints):  # a restore deletes the newer ones
        keep = flow.Checkpointing(store, keep=100)
        again = all_kinds().run(flow.SimulatedRunner(6), parallelism=2, checkpoint=keep, restore=record.checkpoint)
        assert outputs(again) == outputs(whole)


@pytest.mark.parametrize("parallelism", [2, *in_soak(1, 4)])
def test_the_local_runner_agrees_with_the_simulated_one(parallelism: int) -> None:
    simulated = all_kinds().run(flow.SimulatedRunner(1))
    assert outputs(all_kinds().run(parallelism=parallelism, timeout="120s")) == outputs(simulated)


def test_spark_agrees_with_the_simulated_runner(spark: Any) -> None:
    on_spark = all_kinds().run(SparkRunner(spark), parallelism=2, max_key_groups=2)
    assert outputs(on_spark) == outputs(all_kinds().run(flow.SimulatedRunner(1)))
