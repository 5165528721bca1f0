"""Windows of a kind of one's own that merge: against a model, with restores, late rows and every type of result."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import dataflow as flow
import operators as op
from dataflow import col
from dataflow.contracts.windows import EventTime
from dataflow.errors import GraphError
from dataflow.runners.faults import Faults
from operators.windows.merging import MergingWindowOperator
from tests.operators.operating import Emitted, context_of, drained
from tests.seeds import seeds

MODES = ("aligned", "unaligned-persisted")
SCHEMA = pa.schema({"k": pa.string(), "x": pa.int64(), "gap": pa.int64(), "t": pa.timestamp("us")})
Row = tuple[str, int, int, int]
Result = tuple[str, int, int, int, int, list[int]]


@dataclass(frozen=True)
class Visits(flow.Window):
    """Sessions whose gap is a column of the row."""

    merges = True
    columns = ("gap",)

    def assign(self, times: Any, batch: Any) -> flow.Assigned:
        return flow.Assigned(times, times + batch.column("gap").to_numpy())


IN_ORDER = op.aggregate_python(
    "x", zero=[], add=lambda xs, x: [*xs, x], merge=lambda xs, ys: xs + ys, state=pa.list_(pa.int64())
)
"""The values of a window in the order of arrival."""


def table(rows: list[Row]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [[]] * 4
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def visits(rows: list[Row], *, batch_rows: int = 3, lateness: str = "0s", delay: str = "1s") -> flow.Stream:
    source = op.from_arrow(table(rows), batch_rows=batch_rows)
    timed = flow.Pipeline("visits").source(source, name="rows").with_watermark("t", delay=delay)
    return (
        timed.key_by("k")
        .window(Visits(), lateness=lateness)
        .agg(n=op.count(), total=col("x").sum(), xs=IN_ORDER, name="visits")
    )


def model(rows: list[Row]) -> list[Result]:
    """Merge the windows of each key, of rows in order of their starts."""
    results: list[Result] = []
    for key in sorted({row[0] for row in rows}):
        windows: list[tuple[int, int, list[tuple[int, int]]]] = []  # a row is its number and its value
        own = [(t, t + gap, (number, x)) for number, (k, x, gap, t) in enumerate(rows) if k == key]
        for first, last, row in sorted(own):
            if windows and first <= windows[-1][1]:
                start, end, held = windows[-1]
                windows[-1] = start, max(end, last), [*held, row]
            else:
                windows.append((first, last, [row]))
        values = [(start, end, [x for _, x in sorted(held)]) for start, end, held in windows]
        results += [(key, start, end, len(xs), sum(xs), xs) for start, end, xs in values]
    return results


def results(found: pa.Table) -> list[Result]:
    times = [found[name].cast(pa.int64()).to_pylist() for name in ("window_start", "window_end")]
    others = [found[name].to_pylist() for name in ("n", "total", "xs")]
    return sorted(zip(found["k"].to_pylist(), *times, *others, strict=True))


def drawn(seed: int, count: int = 120) -> list[Row]:
    draw = Random(seed)
    return [
        (draw.choice("abc"), draw.randrange(9), draw.choice([1, 5, 20, 90]), step * 4 + draw.randrange(40))
        for step in range(count)
    ]


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_windows_merge_as_the_model_says(seed: int) -> None:
    rows = drawn(seed)
    found = visits(rows, batch_rows=1 + seed % 7).collect(parallelism=1 + seed % 3)
    assert results(found) == model(rows)


@pytest.mark.parametrize("block", seeds(1, 12))
def test_crashes_change_nothing(block: int) -> None:
    restores = 0
    for seed in range(6 * block, 6 * block + 6):
        stream = visits(drawn(seed), lateness="10us")
        stream.sink(op.collect(), name="out")
        runner = flow.SimulatedRunner(seed=seed, faults=Faults(crashes=3))
        checkpoint = flow.Checkpointing(flow.MemoryStore(), every="200us", mode=MODES[seed % 2])
        result = stream._pipeline.run(runner, parallelism=2, checkpoint=checkpoint)
        assert results(result.table("out")) == model(drawn(seed))
        restores += result.restore_report is not None
    assert restores >= 3


def test_windows_that_touch_or_are_bridged_by_a_later_row_become_one() -> None:
    rows = [("a", 1, 5, 0), ("a", 2, 5, 5), ("a", 4, 5, 30), ("b", 8, 1, 0), ("b", 16, 1, 2), ("b", 32, 5, 0)]
    assert results(visits(rows).collect()) == [
        ("a", 0, 10, 2, 3, [1, 2]),
        ("a", 30, 35, 1, 4, [4]),
        ("b", 0, 5, 3, 56, [8, 16, 32]),
    ]


def test_a_window_comes_out_when_it_is_complete_and_only_its_rows_are_removed() -> None:
    """A row of the long window ends before the watermark at which the short window comes out."""
    rows = [("a", 1, 2, 0), ("a", 2, 100, 10), ("a", 4, 2, 12), ("a", 8, 1, 60), ("a", 16, 1, 300)]
    seen: list[list[int]] = []
    stream = visits(rows, batch_rows=1, delay="40us").map_batches(
        lambda batch: seen.append(batch["n"].to_pylist()) or batch
    )
    assert results(stream.collect()) == model(rows)
    assert seen == [[1], [3], [1]]


def test_a_row_whose_own_window_is_over_is_late_and_is_not_lost() -> None:
    rows = [("a", 1, 5, 0), ("a", 2, 5, 100), ("a", 4, 5, 3), ("b", 32, 5, 92), ("a", 8, 500, 4), ("a", 16, 1, 900)]
    stream = visits(rows, batch_rows=1, delay="0s", lateness="10us")
    stream.sink(op.collect(), name="out")
    stream.side("late").sink(op.collect(), name="late")
    result = stream._pipeline.run()
    assert result.table("late")["x"].to_pylist() == [4]
    first, *rest = model([row for row in rows if row[1] != 4])
    assert first == ("a", 0, 504, 3, 11, [1, 2, 8])  # if the first window had not come out
    assert results(result.table("out")) == [("a", 0, 5, 1, 1, [1]), ("a", 4, 504, 2, 10, [2, 8]), *rest]
    assert result.late == 1


@pytest.mark.parametrize("options", [{"early": op.after_rows(1)}, {"panes": "discarding"}], ids=str)
def test_panes_are_refused(options: dict[str, Any]) -> None:
    stream = flow.Pipeline().source(op.from_arrow(table([]))).with_watermark("t").window(Visits(), **options)
    with pytest.raises(GraphError, match=r"Visits\(\) merges windows, whose results come out once.*leave them out"):
        stream.agg(n=op.count())


@pytest.mark.parametrize("emit", ["changes", "updates"])
def test_results_that_change_are_refused(emit: str) -> None:
    stream = flow.Pipeline().source(op.from_arrow(table([]))).with_watermark("t").window(Visits())
    with pytest.raises(GraphError, match=rf"emit='{emit}'.*Visits\(\), which merges windows.*leave emit= out"):
        stream.agg(n=op.count(), emit=emit)


def test_a_sum_that_overflows_names_its_key() -> None:
    rows = [("a", 1, 5, 0), ("b", 2**62, 5, 0), ("b", 2**62, 5, 1)]
    with pytest.raises(OverflowError, match=r"the sum 'total' of key \{'k': 'b'\} does not fit"):
        visits(rows).collect()


def test_rows_of_dictionaries_and_nested_columns_are_kept() -> None:
    columns = {"city": pa.array(["x", "y"]).dictionary_encode(), "tags": [["a"], ["b", "c"]]}
    tags = op.aggregate_python("tags", zero=0, add=lambda n, tags: n + len(tags), merge=int.__add__, state=pa.int64())
    given = pa.table({**columns, "gap": [5, 5], "t": pa.array([0, 3], pa.timestamp("us"))})
    rows = flow.Pipeline().source(op.from_arrow(given)).with_watermark("t").window(Visits())
    found = rows.agg(cities=col("city").to_list(), tags=tags).collect()
    assert found.select(["cities", "tags"]).to_pylist() == [{"cities": ["x", "y"], "tags": 3}]


def test_windows_wait_for_rows_within_the_lateness_and_are_not_late_downstream() -> None:
    stream = visits(drawn(7), batch_rows=1, delay="0s", lateness="50us")
    stream.sink(op.collect(), name="out")
    stream.window(op.tumbling("1us")).agg(n=op.count(), name="again").sink(op.collect(), name="counts")
    result = stream._pipeline.run()
    assert results(result.table("out")) == model(drawn(7))
    assert sum(result.table("counts")["n"].to_pylist()) == len(model(drawn(7)))
    assert result.late == 0


def test_keys_whose_windows_came_out_are_forgotten() -> None:
    edges = dict.fromkeys(("window_start", "window_end"), pa.timestamp("us"))
    made = pa.schema({"k": pa.string(), **edges, "n": pa.int64()})
    arguments = (["k"], EventTime("t"), Visits(), 0, [op.count().alias("n")])
    operator, out = MergingWindowOperator(context_of(SCHEMA, output=made), *arguments), Emitted()
    for step in range(50):
        rows = table([(f"{step} {n}", 1, 5, step * 10) for n in range(8)])
        operator.process(0, rows.combine_chunks().to_batches()[0], out)
        drained(operator.advance(step * 10, out))
    assert (operator._windows.live, operator._state.live) == (8, 8)
