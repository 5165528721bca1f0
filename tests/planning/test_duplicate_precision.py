"""What the report of a restore says about its own counts, in mode unaligned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.checkpointing import Mode
from dataflow.events.plan_shape import plan_from_json
from dataflow.events.repeat_precision import Precision
from dataflow.planning.duplicate_precision import precisions
from dataflow.runners.faults import Faults
from dataflow.runtime.restore.report_text import sections
from tests.checkpoints import preview
from tests.lingering import Linger

EXACT, UPPER, LOW = Precision.EXACT, Precision.UPPER_BOUND, Precision.MAY_BE_TOO_LOW


class Same(flow.Operator):
    """Passes rows on."""

    stateless = True

    def process(self, port: int, batch: pa.RecordBatch, out: flow.Out) -> None:
        out.emit(batch)


def numbers(p: flow.Pipeline, name: str, first: int = 0) -> flow.Stream:
    ids = range(first, first + 60)
    rows = pa.table({"id": ids, "k": [i % 5 for i in ids], "ts": pa.array(ids, pa.timestamp("s"))})
    return p.source(op.from_arrow(rows, batch_rows=3), name=name)


def both(p: flow.Pipeline) -> flow.Stream:
    return numbers(p, "left").union(numbers(p, "right", 100), name="both")


def found(make: Callable[[flow.Stream], flow.Stream], mode: Mode = Mode.UNALIGNED) -> Precision:
    p = flow.Pipeline()
    make(both(p)).sink(op.collect(), name="out")
    return precisions(p.graph.describe(), mode)["out"]


@dataclass(frozen=True)
class Counting(flow.Spec):
    """A user's kind of operator that keeps numbers and no rows."""

    holds_rows = False


flow.register(Counting, Same)


def counted(stream: flow.Stream) -> flow.Stream:
    return stream.key_by("k").agg(n=op.count(), emit="updates").as_rows()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda s: s, EXACT),
        (lambda s: s.filter(col("id") > 3).select("id").rebalance().map_batches(lambda b: b).map(lambda r: r), EXACT),
        (lambda s: s.apply(Same), EXACT),
        (counted, UPPER),
        (lambda s: counted(s).filter(col("n") > 1).apply(Same), UPPER),
        (lambda s: s.apply(Linger), LOW),
        (lambda s: s.apply(partial(Linger, delay=3)).filter(col("id") > 3), LOW),
        (lambda s: counted(s.apply(Linger)), LOW),
        (lambda s: counted(s).apply(Linger), LOW),
        (lambda s: s.union(s.apply(Linger)), LOW),
        (lambda s: s.then(Counting(), schema=s.schema), UPPER),
    ],
)
def test_the_precision_follows_from_the_path_to_an_operator(make: Any, expected: Precision) -> None:
    assert found(make) is expected
    assert found(make, Mode.ALIGNED) is EXACT


def test_behind_a_window_the_report_is_an_upper_bound() -> None:
    p = flow.Pipeline()
    timed = numbers(p, "in").with_watermark("ts")
    timed.key_by("k").window(op.tumbling("5s")).agg(n=op.count(), name="counts").sink(op.collect(), name="out")
    assert precisions(p.graph.describe(), Mode.UNALIGNED) == {
        **dict.fromkeys(["in", "with_watermark", "counts"], EXACT),
        "out": UPPER,
    }


# --- restores


def lingering() -> flow.Pipeline:
    with flow.Pipeline("linger") as p:
        both(p).select("id").apply(Linger, name="linger").sink(op.collect(), name="out")
    return p


def restores(p: flow.Pipeline, seeds: range) -> Iterator[tuple[Any, Counter[int]]]:
    """The report of each restore, and the rows that the sink had too often."""
    for seed in seeds:
        settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned", duplicates="rows")
        result = p.run(flow.SimulatedRunner(seed, Faults(crashes=1)), checkpoint=settings)
        if result.restore_report is not None:
            ids = Counter(result.table("out")["id"].to_pylist())
            yield result.restore_report, ids - Counter(set(ids))


def test_where_an_operator_held_rows_the_report_says_that_it_may_be_too_low() -> None:
    low = []
    for report, twice in restores(lingering(), range(40)):
        assert report.precision == {**dict.fromkeys(["left", "right", "both", "select", "linger"], EXACT), "out": LOW}
        assert report.duplicated("linger") == twice.total()
        low += [report] if report.duplicated("out") < twice.total() else []
    assert low, "no restore counted too few rows at the sink: this test proves nothing"
    assert "not counted  rows that operators kept: duplicates may be too low at out" in str(low[0])
    assert low[0].duplicates_table().filter(pa.compute.field("operator") == "linger")["precision"][0].as_py() == "exact"
    assert low[0].to_json()["precision"]["out"] == "may be too low"


def test_the_plan_beside_the_events_has_the_precisions_of_the_report() -> None:
    settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned")
    plan = lingering().run("simulated", checkpoint=settings).events.plan
    report = lingering().run("simulated", checkpoint=settings).restore_report
    assert report is not None
    assert plan.repeat_precisions == report.precision
    assert plan_from_json(plan.to_json()).repeat_precisions["out"] is LOW


def test_on_row_wise_paths_the_report_is_exact() -> None:
    with flow.Pipeline("rows") as p:
        both(p).select("id").apply(Same, name="same").sink(op.collect(), name="out")
    reports = [(report, twice) for report, twice in restores(p, range(40)) if report.duplicated()]
    assert reports
    assert all(report.duplicated("out") == twice.total() for report, twice in reports)
    assert all(report.precision["out"] is EXACT and "not counted" not in str(report) for report, _ in reports)


@pytest.mark.parametrize("how", ["chained", "spread"])
def test_behind_an_aggregate_the_rows_that_come_again_are_at_most_those_reported(how: str) -> None:
    with flow.Pipeline("sums") as p:
        sums = both(p).key_by("k").agg(op.count().alias("id"), emit="updates", name="sums")
        (sums.as_rows().rebalance() if how == "spread" else sums).sink(op.collect(), name="out")
    undisturbed = p.run("simulated").table("out").num_rows  # one for each key of a batch, in whichever order
    again = 0
    for seed in range(10):
        settings = flow.Checkpointing(flow.MemoryStore(), every="1ms", mode="unaligned")
        result = p.run(flow.SimulatedRunner(seed, Faults(crashes=1)), checkpoint=settings)
        report, more = result.restore_report, result.table("out").num_rows - undisturbed
        assert more <= (report.duplicated("out") if report else 0), f"seed {seed}"
        again += more
    assert again > 0


def test_a_preview_of_a_restore_says_it_without_the_pipeline() -> None:
    store = flow.MemoryStore()
    lingering().run("simulated", checkpoint=flow.Checkpointing(store, every="1ms", mode="unaligned"))
    report = preview(store, store.checkpoints()[-1])
    assert report.precision["out"] is LOW
    assert "not counted" in [section.title for section in sections(report)]
