"""Random small joins of each kind against a model: out of order, with late rows, null keys, crashes and restores.

Times of rows are in nanoseconds. Those of a side whose event time is in microseconds are whole microseconds.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.runners.faults import Faults
from dataflow.runners.spark.runner import SparkRunner
from tests.agreement.join_models import Row, asof, joined, joined_by_window
from tests.seeds import in_soak, seeds

HOWS = ["inner", "left", "right", "full"]
EXACT = ["aligned", "aligned-timeout", "unaligned-persisted"]
NS = pa.timestamp("ns")
SIDES = "left", "right"
UNITS = ("us", "us"), ("ns", "ns"), ("us", "ns"), ("ns", "us")


def random_rows(draw: random.Random, unit: str, most: int = 25) -> list[Row]:
    keys, parts = [None, 0, 1, 2, 3, 4], [-999, -1, 0, 1, 500, 999] if unit == "ns" else [0]
    return [
        Row(draw.choice(keys), 1000 * max(0, 3 * n + draw.randrange(-10, 11)) + draw.choice(parts), f"v{n}")
        for n in range(draw.randrange(most))
    ]


def table_of(rows: list[Row], unit: str) -> pa.Table:
    columns = {"k": [row.key for row in rows], "at": [row.at for row in rows], "v": [row.value for row in rows]}
    table = pa.table(columns, pa.schema({"k": pa.int64(), "at": NS, "v": pa.string()}))
    return table.set_column(1, "at", table["at"].cast(pa.timestamp(unit)))


def nanoseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(NS).cast(pa.int64())


def rows_of(result: flow.RunResult, sink: str) -> Counter[Any]:
    table = result.table(sink)
    times = [name for name in table.column_names if pa.types.is_timestamp(table.schema.field(name).type)]
    for name in times:
        table = table.set_column(table.column_names.index(name), name, nanoseconds(table[name]))
    return Counter(tuple(row.values()) for row in table.to_pylist())


@dataclass
class Case:
    """Rows of both sides, how sources cut and delay them, and how the job runs."""

    seed: int
    delays: tuple[str, ...] = ("0us", "5us", "20us")
    units: tuple[str, str] | None = None
    draw: random.Random = field(init=False)
    rows: tuple[list[Row], list[Row]] = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)
        self.units = self.units or UNITS[self.seed % len(UNITS)]
        left, right = self.units
        self.rows = random_rows(self.draw, left), random_rows(self.draw, right)
        self.cuts = [self.draw.choice([1, 3, 100]) for _ in SIDES]
        self.waits = [self.draw.choice(self.delays) for _ in SIDES]

    def streams(self, p: flow.Pipeline) -> list[flow.Stream]:
        assert self.units is not None
        parts = zip(SIDES, self.rows, self.units, self.cuts, self.waits, strict=True)
        return [
            p.source(op.from_arrow(table_of(rows, unit), batch_rows=cut), name=name, parallelism=1).with_watermark(
                "at", delay=delay
            )
            for name, rows, unit, cut, delay in parts
        ]

    def run(self, p: flow.Pipeline) -> flow.RunResult:
        """Run in the simulator, with crashes and without, on one to three tasks."""
        faults = Faults(crashes=self.draw.randrange(3), crash_after=(0, 1, 2), skew=0.2, stall=0.05, slices=0.2)
        mode = self.draw.choice(EXACT)
        settings = flow.Checkpointing(flow.MemoryStore(), every="2ms", mode=mode)
        runner = flow.SimulatedRunner(self.seed, faults, max_turns=200_000)
        return runner.start(p, parallelism=self.draw.choice([1, 2, 3]), checkpoint=settings).wait()

    def on_time(self, result: flow.RunResult) -> tuple[list[Row], list[Row]]:
        """Return the rows of both sides that were not late."""
        late = [rows_of(result, tag) for tag in ("late", "late_right")]
        left, right = (
            [row for row in rows if not gone[row.key, row.at, row.value]]
            for rows, gone in zip(self.rows, late, strict=True)
        )
        return left, right


def sink_with_late_rows(stream: flow.Stream) -> None:
    stream.sink(op.collect(), name="out")
    for tag in ("late", "late_right"):
        stream.side(tag).sink(op.collect(), name=tag)
    if stream.time is not None:  # no row may be late after the join
        counts = stream.window(op.tumbling("5us")).agg(n=op.count(), name="counts")
        counts.sink(op.collect(), name="counted")
        counts.side("late").sink(op.collect(), name="late after the join")


def nothing_is_late_later(result: flow.RunResult) -> bool:
    return "late after the join" not in result.tables or not result.table("late after the join").num_rows


@pytest.mark.parametrize("seed", seeds(2, 600, extended=6))
def test_pairs_near_in_time_agree_with_the_model(seed: int) -> None:
    case = Case(seed)
    low = case.draw.randrange(-12, 12)
    high = low + case.draw.randrange(15)
    how = case.draw.choice(HOWS)
    with flow.Pipeline() as p:
        left, right = case.streams(p)
        lateness = case.draw.choice(["0us", "4us"])
        pairs = left.join(right, on="k", how=how, within=(f"{low}us", f"{high}us"), lateness=lateness, name="join")
        assert pairs.time == (None if how in ("right", "full") else "at")
        sink_with_late_rows(pairs)
    result = case.run(p)
    within = range(1000 * low, 1000 * high + 1)
    expected = joined(*case.on_time(result), how, lambda one, other: other.at - one.at in within)
    assert rows_of(result, "out") == expected
    assert nothing_is_late_later(result)


@pytest.mark.parametrize("seed", seeds(2, 600, extended=6))
def test_pairs_of_windows_agree_with_the_model(seed: int) -> None:
    overlaps = seed % 3 > 0  # then a late row may count in some windows, so no row is late
    case = Case(seed, ("40us",)) if overlaps else Case(seed)
    windows = [op.hopping("10us", every="4us"), op.cumulate("12us", every="4us"), op.hopping("12us", every="4us")]
    window = case.draw.choice(windows) if overlaps else op.tumbling("10us")
    how = case.draw.choice(HOWS)
    with flow.Pipeline() as p:
        left, right = case.streams(p)
        lateness = case.draw.choice(["0us", "4us"])
        sink_with_late_rows(left.join(right, on="k", how=how, window=window, lateness=lateness, name="join"))
    result = case.run(p)
    assert rows_of(result, "out") == joined_by_window(*case.on_time(result), how, window)
    assert nothing_is_late_later(result)


@pytest.mark.parametrize("seed", seeds(2, 600, extended=6))
def test_nearest_rows_agree_with_the_model(seed: int) -> None:
    case = Case(seed)
    forward = seed % 2 > 0
    tolerance = case.draw.choice([0, 3, 12] if forward else [0, 3, 12, None])
    ttl = case.draw.choice([None, None, 5])
    how = case.draw.choice(["inner", "left"])
    strategy = "forward" if forward else "backward"
    with flow.Pipeline() as p:
        left, right = case.streams(p)
        options: Any = {
            "tolerance": None if tolerance is None else f"{tolerance}us",
            "ttl": None if ttl is None else f"{ttl}us",
        }
        sink_with_late_rows(left.join_asof(right, by="k", how=how, strategy=strategy, name="join", **options))
    result = case.run(p)
    limits = [] if tolerance is None else [1000 * tolerance]
    limit = min([*limits, *([] if ttl is None else [1000 * ttl - 1])], default=None)
    assert rows_of(result, "out") == asof(*case.on_time(result), how, forward=forward, limit=limit)
    assert nothing_is_late_later(result)


@pytest.mark.parametrize("seed", seeds(2, 600, extended=6))
def test_pairs_without_windows_agree_with_the_model(seed: int) -> None:
    case = Case(seed)
    how = case.draw.choice(HOWS)
    emit = None if how == "inner" else case.draw.choice([None, "final", "changes"])
    with flow.Pipeline() as p:
        left, right = case.streams(p)
        pairs = left.join(right, on="k", how=how, emit=emit, name="join")
        pairs.sink(op.collect(net=pairs.changes == "signed"), name="out")
    assert rows_of(case.run(p), "out") == joined(*case.rows, how, lambda one, other: True)


def read_again(result: flow.RunResult) -> list[list[Row]]:
    """Return the rows of each side that a restore delivered to the join again, as its report says."""
    report = result.restore_report
    again: list[list[Row]] = [[], []]
    for part in () if report is None else report.duplicates:
        if part.operator == "join":
            assert part.table.num_rows == part.rows, "every duplicate is stored"
            times = nanoseconds(part.table["at"]).to_pylist()
            rows = zip(part.table["k"].to_pylist(), times, part.table["v"].to_pylist(), strict=True)
            again[SIDES.index(part.channel.partition("[")[0])] += [Row(*row) for row in rows]
    return again


@pytest.mark.parametrize("seed", seeds(8, 600))
def test_an_unaligned_restore_joins_the_rows_that_it_reports_again(seed: int) -> None:
    case = Case(seed)
    how = case.draw.choice(HOWS)
    with flow.Pipeline() as p:
        left, right = case.streams(p)
        left.join(right, on="k", how=how, name="join").sink(op.collect(), name="out")
    faults = Faults(crashes=1, crash_after=(0, 1, 2), skew=0.5, stall=0.1, slices=0.2)
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned", duplicates="rows")
    parallelism = case.draw.choice([1, 2])
    result = p.run(flow.SimulatedRunner(seed, faults), parallelism=parallelism, checkpoint=settings)
    rows = [own + again for own, again in zip(case.rows, read_again(result), strict=True)]
    assert rows_of(result, "out") == joined(*rows, how, lambda one, other: True)


@pytest.mark.parametrize("seed", seeds(8, 600))
def test_rows_meet_if_their_times_are_less_than_a_ttl_apart(seed: int) -> None:
    case = Case(seed, ("100us",))  # no row is late
    how, ttl = case.draw.choice(HOWS), case.draw.choice([1, 5, 20])
    with flow.Pipeline() as p:
        left, right = case.streams(p)
        pairs = left.join(right, on="k", how=how, ttl=f"{ttl}us", name="join")
        pairs.sink(op.collect(net=pairs.changes == "signed"), name="out")
    expected = joined(*case.rows, how, lambda one, other: abs(one.at - other.at) < 1000 * ttl)
    result = case.run(p)
    assert (rows_of(result, "out"), result.late) == (expected, 0)
    assert rows_of(p.run(flow.SimulatedRunner(seed), execution="batch"), "out") == expected


def totals(stream: flow.Stream, name: str, value: str) -> flow.Stream:
    """Signed changes: how many rows each value of ``k`` has, as the new key."""
    counted = stream.key_by("k").agg(op.count().alias("n"), emit="changes", name=f"{name} counted")
    return counted.select(col("n").alias("key"), col("k").alias(value))


@pytest.mark.parametrize("seed", seeds(2, 600, extended=6))
def test_signed_changes_net_to_the_join_of_their_nets(seed: int) -> None:
    case = Case(seed)
    how = case.draw.choice(HOWS)
    signed = case.draw.choice([(True, False), (False, True), (True, True)])
    emit = None if how == "inner" else case.draw.choice([None, "final", "changes"])
    rows = [
        [Row(n, 0, key) for key, n in Counter(row.key for row in side).items()]
        if is_signed
        else [Row(row.key, 0, row.value) for row in side]
        for side, is_signed in zip(case.rows, signed, strict=True)
    ]
    with flow.Pipeline() as p:
        sides = [
            totals(stream, name, name) if is_signed else stream.select(col("k").alias("key"), col("v").alias(name))
            for stream, name, is_signed in zip(case.streams(p), SIDES, signed, strict=True)
        ]
        pairs = sides[0].join(sides[1], on="key", how=how, emit=emit, name="join")
        assert pairs.changes == "signed"
        pairs.sink(op.collect(net=True), name="out")
    expected = joined(rows[0], rows[1], how, lambda one, other: True)
    assert rows_of(case.run(p), "out") == Counter({(row[0], row[2], row[4]): n for row, n in expected.items()})


def all_kinds() -> flow.Pipeline:
    """A pipeline with a join of each kind."""
    case = Case(10, ("40us",), ("us", "ns"))
    case.rows, case.cuts = (random_rows(case.draw, "us", 60), random_rows(case.draw, "ns", 60)), [1, 2]
    with flow.Pipeline("joins") as p:
        left, right = case.streams(p)
        left.join(right, on="k", how="full", emit="changes", name="all").sink(op.collect(net=True), name="all rows")
        left.join(right, on="k", how="left", ttl="1s", name="living").sink(op.collect(net=True), name="living rows")
        near = left.join(right, on="k", how="full", within=("-9us", "9us"), name="near")
        near.sink(op.collect(), name="near rows")
        window = op.hopping("10us", every="5us")
        left.join(right, on="k", how="full", window=window, name="same").sink(op.collect(), name="same rows")
        sessions = right.key_by("k").window(op.session("4us")).agg(n=op.count(), first=col("at").min(), name="sessions")
        sessions.sink(op.collect(), name="session rows")
        left.join_asof(right, by="k", name="before").sink(op.collect(), name="before rows")
        left.join_asof(right, by="k", strategy="forward", tolerance="9us", name="after").sink(
            op.collect(), name="after rows"
        )
    return p


SINKS = ["all rows", "living rows", "near rows", "same rows", "session rows", "before rows", "after rows"]


def outputs(result: flow.RunResult) -> dict[str, Counter[Any]]:
    return {sink: rows_of(result, sink) for sink in SINKS}


def test_joins_are_restored_from_every_checkpoint() -> None:
    store = flow.MemoryStore()
    settings = flow.Checkpointing(store, every="4ms", keep=100)
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


def test_a_key_with_all_rows_comes_out_in_batches() -> None:
    rows = pa.table({"k": [1] * 400, "x": list(range(400))})
    sizes: list[int] = []

    class Sizes(flow.Operator):
        stateless = True

        def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
            sizes.append(batch.num_rows)

    with flow.Pipeline() as p:
        left, right = (p.source(op.from_arrow(rows.rename_columns(["k", name])), name=name) for name in "ab")
        left.join(right, on="k", name="join").apply(Sizes).sink(op.collect())
    p.run()
    assert sum(sizes) == 160_000
    assert max(sizes) <= 65_536
