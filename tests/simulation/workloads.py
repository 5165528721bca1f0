"""The pipelines of the campaign: each with its input, its sinks in a world that outlives crashes, and its oracle.

What an undisturbed run gives is computed here in plain Python. In mode ``unaligned`` the oracle adds what the restores
reported: rows at a sink behind row-wise operators (DESIGN's rule b), input rows at the first stateful operator (c).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.operator import Operator, OperatorContext, Out, Snapshot
from dataflow.errors import StoreError
from dataflow.runners.attempts import Attempt
from dataflow.testing import Ledger, Pause, ScriptedSource, delivered_again, ledger_sink, lineage

__all__ = ["WORKLOADS", "Draw", "Workload"]

Rows = Counter[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Draw:
    """What a seed says about a workload. ``random`` goes on to draw what only this workload needs."""

    random: random.Random
    store: flow.MemoryStore
    sink_fails: float
    rows: int
    batch_rows: int
    parallelism: int
    keeps_rows: bool
    """Whether checkpoints keep all duplicates, or a sample of them."""

    def world(self) -> Ledger:
        """A world whose sink refuses now and then."""
        luck = random.Random(self.random.random())

        def fault(what: str) -> None:
            if luck.random() < self.sink_fails:
                raise StoreError(f"injected: the sink refuses to {what}")

        return Ledger(durable=self.store.checkpoints, fault=fault)

    def table(self, start: int = 0, times: int = 1) -> pa.Table:
        """Rows that are all different, in 7 groups ``a`` that fall into 3 groups ``b``."""
        x = range(start, start + self.rows * times)
        return pa.table({"x": list(x), "a": [i * i % 7 for i in x], "b": [i * i % 7 % 3 for i in x]})

    def source(self, table: pa.Table) -> flow.Source:
        splits = self.random.randrange(1, 2 * self.parallelism + 1)
        return op.from_arrow(table, batch_rows=self.batch_rows, splits=splits)

    def width(self) -> int:
        """The parallelism of some operator."""
        return self.random.choice((1, self.parallelism))


@dataclass(slots=True)
class Workload:
    """A pipeline and what must come of it: ``check(attempts, duplicated)`` raises AssertionError.

    ``duplicated(operator)`` answers the rows that restores reported at an operator.
    """

    pipeline: flow.Pipeline
    check: Callable[[Sequence[Attempt]], None]
    worlds: Mapping[str, Ledger] = field(default_factory=dict)


def chain(draw: Draw) -> Workload:
    """source -> forward or rebalance -> filter -> sink; behind the first hop each split is still in order."""
    world, table = draw.world(), draw.table(times=4)
    source = draw.source(table)
    starts = [int(str(split.info["start"])) for split in source.splits()]
    disorder: list[str] = []
    with flow.Pipeline("chain") as p:
        rows = p.source(source, name="in", parallelism=draw.width())
        rows = rows.rebalance() if draw.random.random() < 0.8 else rows
        rows = rows.apply(lambda context: Order(context, starts, disorder), name="order", parallelism=draw.width())
        rows.filter(col("x") % 3 != 0, name="f").sink(ledger_sink(world), name="out", parallelism=draw.width())
    expected = Counter(row for row in _rows(table) if row[0] % 3)

    def check(attempts: Sequence[Attempt]) -> None:
        _row_wise(draw, world, expected, attempts)
        repeats = any(attempt.mode is Mode.UNALIGNED for attempt in attempts)
        assert repeats or not disorder, f"{len(disorder)} rows out of order, the first: {disorder[0]}"

    return Workload(p, check, {"out": world})


def fan_out(draw: Draw) -> Workload:
    """One source to two sinks: one gets the rows as they are, one stands behind an aggregate or a slow operator."""
    plain, behind, table = draw.world(), draw.world(), draw.table(times=2)
    keyed = draw.random.random() < 0.5
    with flow.Pipeline("fan out") as p:
        rows = p.source(draw.source(table), name="in", parallelism=draw.width())
        straight = rows.rebalance() if draw.random.random() < 0.8 else rows
        straight.sink(ledger_sink(plain), name="out", parallelism=draw.width())
        if keyed:
            emit = draw.random.choice(("final", "updates"))
            totals = rows.key_by("a", "b").agg(n=op.count(), s=col("x").sum(), emit=emit, name="first")
            totals.sink(ledger_sink(behind), name="behind")
        else:
            slow = rows.rebalance().apply(lambda context: Dawdler(context, 30), name="slow", parallelism=draw.width())
            slow.rebalance().sink(ledger_sink(behind), name="behind", parallelism=draw.width())
    expected = Counter(_rows(table))

    def check(attempts: Sequence[Attempt]) -> None:
        _row_wise(draw, plain, expected, attempts)
        if not keyed:
            _row_wise(draw, behind, expected, attempts, "behind")
        elif not draw.keeps_rows:
            _counts_add_up(behind, table, attempts)
        else:
            _same_last(behind.last(2), _fold(expected + delivered_again(attempts, "first")), "behind the aggregate")

    return Workload(p, check, {"out": plain, "behind": behind})


def diamond(draw: Draw) -> Workload:
    """One source to a fast and a slow branch, and together again."""
    world, table = draw.world(), draw.table()
    with flow.Pipeline("diamond") as p:
        rows = p.source(draw.source(table), name="in")
        fast = rows.rebalance().filter(col("x") % 2 == 0, name="fast", parallelism=draw.width())
        slow = rows.rebalance().apply(Dawdler, name="slow", parallelism=draw.width())
        fast.rebalance().union(slow.rebalance(), name="both").sink(ledger_sink(world), name="out")
    expected = Counter(_rows(table)) + Counter(row for row in _rows(table) if row[0] % 2 == 0)
    return Workload(p, lambda attempts: _row_wise(draw, world, expected, attempts), {"out": world})


def skewed(draw: Draw) -> Workload:
    """A source that has all its rows at once, and one that pauses or is paced; united, then perhaps rebalanced."""
    world, table, other = draw.world(), draw.table(), draw.table(1_000)
    batches = other.to_batches(max_chunksize=draw.batch_rows)
    if draw.random.random() < 0.5:
        script = [entry for batch in batches for entry in (Pause(draw.random.randrange(1, 20)), batch)]
        rare: flow.Source = ScriptedSource(script, script[:4])
        expected = Counter(_rows(table)) + Counter(_rows(other)) + Counter(_rows(pa.Table.from_batches(script[1:4:2])))
    else:
        rare = op.paced(draw.source(other), [500, 5_000])
        expected = Counter(_rows(table)) + Counter(_rows(other))
    with flow.Pipeline("skewed") as p:
        many = p.source(draw.source(table), name="many")
        few = p.source(rare, name="few", parallelism=draw.width())
        both = many.union(few, name="both")
        both = both.rebalance() if draw.random.random() < 0.5 else both
        both.sink(ledger_sink(world), name="out", parallelism=draw.width())
    return Workload(p, lambda attempts: _row_wise(draw, world, expected, attempts), {"out": world})


def two_stages(draw: Draw) -> Workload:
    """Final aggregates by (a, b), and those again by b; the first stage has a sink of its own."""
    first_world, second_world, table = draw.world(), draw.world(), draw.table(times=2)
    with flow.Pipeline("two stages") as p:
        rows = p.source(draw.source(table), name="in", parallelism=draw.width())
        first = rows.key_by("a", "b").agg(n=op.count(), s=col("x").sum(), emit="final", name="first")
        first.key_by("a", "b").sink(ledger_sink(first_world), name="firsts", parallelism=draw.width())
        second = first.key_by("b").agg(m=op.count(), n=col("n").sum(), emit="final", name="second")
        second.sink(ledger_sink(second_world), name="seconds")

    def check(attempts: Sequence[Attempt]) -> None:
        if not draw.keeps_rows:
            _counts_add_up(first_world, table, attempts)
            return
        firsts = _fold(Counter(_rows(table)) + delivered_again(attempts, "first"))
        _same_last(first_world.last(2), firsts, "at the first stage")
        once = Counter((a, b, n, s) for (a, b), (n, s) in firsts.items())
        again = delivered_again(attempts, "second")
        found, least, most = second_world.last(1), _by_b(once), _by_b(once + again)
        assert found.keys() == least.keys(), f"second stage: keys {sorted(found)} instead of {sorted(least)}"
        for key, (m, n) in found.items():
            assert least[key][0] <= m <= most[key][0], f"second stage, {key}: {m} rows, not {least[key]}..{most[key]}"
            assert m > least[key][0] or n == least[key][1], f"second stage, {key}: sum {n} instead of {least[key]}"

    return Workload(p, check, {"firsts": first_world, "seconds": second_world})


def updates(draw: Draw) -> Workload:
    """A changelog of counts and sums by (a, b), and the greatest count by b; compared on the last row per key."""
    first_world, second_world, table = draw.world(), draw.world(), draw.table()
    every = draw.random.choice((None, "2ms"))
    with flow.Pipeline("updates") as p:
        rows = p.source(draw.source(table), name="in", parallelism=draw.width())
        first = rows.key_by("a", "b").agg(n=op.count(), s=col("x").sum(), emit="updates", every=every, name="first")
        if draw.random.random() < 0.5:
            first.sink(ledger_sink(first_world), name="firsts")
        else:
            first.key_by("a", "b").sink(ledger_sink(first_world), name="firsts", parallelism=draw.width())
        second = first.as_rows().key_by("b").agg(top=col("n").max(), emit="updates", name="second")
        second.sink(ledger_sink(second_world), name="seconds")

    def check(attempts: Sequence[Attempt]) -> None:
        if not draw.keeps_rows:
            _counts_add_up(first_world, table, attempts)
            return
        firsts = _fold(Counter(_rows(table)) + delivered_again(attempts, "first"))
        _same_last(first_world.last(2), firsts, "at the first stage")
        tops = {(b,): (max(n for (_, other), (n, _) in firsts.items() if other == b),) for _, b in firsts}
        _same_last(second_world.last(1), tops, "at the second stage")  # a maximum does not mind a row that comes twice

    return Workload(p, check, {"firsts": first_world, "seconds": second_world})


WORKLOADS: Sequence[Callable[[Draw], Workload]] = (chain, diamond, skewed, two_stages, updates, fan_out)


class Dawdler(Operator):
    """Passes its rows on, but takes its time: units of work for each batch, in which no barrier may be taken."""

    stateless = True

    def __init__(self, context: OperatorContext, units: int = 150) -> None:
        self._units = units

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> Iterator[None]:
        for _ in range(self._units):
            yield
        out.emit(batch)
        yield


class Order(Operator):
    """Passes its rows on, and tells where one came that is not behind the last one of its split. State: those."""

    stateless = True  # as far as what it emits goes

    def __init__(self, context: OperatorContext, starts: Sequence[int], disorder: list[str]) -> None:
        restored: Any = context.restored
        self._last: list[int] = list(restored.values["last"]) if restored else [-1] * len(starts)
        self._starts = starts
        self._disorder = disorder
        self._where = f"{context.name}[{context.subtask}]"

    def process(self, port: int, batch: pa.RecordBatch, out: Out) -> None:
        for x in batch["x"].to_pylist():
            split = bisect_right(self._starts, x) - 1
            if x <= self._last[split]:
                self._disorder.append(f"{x} behind {self._last[split]} at {self._where}")
            self._last[split] = x
        out.emit(batch)

    def snapshot(self) -> Snapshot:
        return Snapshot({"last": list(self._last)})


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def _fold(rows: Rows) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Count and sum of x by (a, b)."""
    totals: dict[tuple[Any, ...], tuple[int, int]] = {}
    for (x, a, b), times in rows.items():
        n, s = totals.get((a, b), (0, 0))
        totals[a, b] = n + times, s + x * times
    return dict(totals)


def _by_b(rows: Rows) -> dict[tuple[Any, ...], tuple[int, int]]:
    """How many rows (a, b, n, s) there are for each b, and the sum of their n."""
    totals: dict[tuple[Any, ...], tuple[int, int]] = {}
    for (_, b, n, _), times in rows.items():
        m, total = totals.get((b,), (0, 0))
        totals[(b,)] = m + times, total + n * times
    return totals


def _row_wise(draw: Draw, world: Ledger, expected: Rows, attempts: Sequence[Attempt], sink: str = "out") -> None:
    """The sink has each row once, and those that the restores reported once more for each report."""
    found = world.rows()
    assert not expected - found, f"lost at {sink!r}: {_some(expected - found)}"
    extra = found - expected
    counted = sum(report.duplicated(sink) for report in lineage(attempts))
    assert extra.total() == counted, f"{extra.total()} rows twice at {sink!r}, {counted} reported: {_some(extra)}"
    if draw.keeps_rows:
        again = delivered_again(attempts, sink)
        assert extra == again, (
            f"twice at {sink!r}, unreported: {_some(extra - again)}; only reported: {_some(again - extra)}"
        )


def _counts_add_up(world: Ledger, table: pa.Table, attempts: Sequence[Attempt]) -> None:
    """Where only a sample of the duplicates is kept, their number is still complete."""
    counted = sum(report.duplicated("first") for report in lineage(attempts))
    found = sum(n for n, _ in world.last(2).values())
    assert found == table.num_rows + counted, f"{found} rows were counted of {table.num_rows}; {counted} reported twice"


def _same_last(found: Mapping[Any, Any], expected: Mapping[Any, Any], where: str) -> None:
    wrong = {key: (found.get(key), row) for key, row in expected.items() if found.get(key) != row}
    assert not wrong, f"{where}, found and expected: {wrong}"
    assert found.keys() == expected.keys(), f"{where}: unexpected keys {sorted(found.keys() - expected.keys())}"


def _some(rows: Rows) -> str:
    return f"{rows.total()} rows, such as {sorted(rows.elements())[:5]}"
