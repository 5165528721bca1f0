"""Results of many windows and panes come out in few batches, and are read together."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dataflow.contracts.window_kinds import Hopping, Tumbling
from dataflow.expressions import Aggregation
from dataflow.planning.aggregate_specs import Emit
from operators.aggregation.records import Records
from operators.stateful import changes
from operators.windows import emission, slot_results, sparse_results
from operators.windows.emission import Part
from operators.windows.few_slices import FewSlices
from operators.windows.slot_results import SlotResults
from operators.windows.sparse_results import SparseResults
from tests.forcing import Force, counted_calls, forced
from tests.operators.operating import drained
from tests.operators.windows.windowed import END, MERGED, SCHEMA, UNMERGED, Row, Windowed
from tests.seeds import each_once

WINDOWS = 600


def in_any_order(seed: int, windows: int = WINDOWS) -> list[Row]:
    """Return a row for each of ``windows`` windows of 10 us, in any order."""
    draw = Random(seed)
    rows = [(draw.choice("ab"), draw.randrange(9), 10 * i + draw.randrange(10)) for i in range(windows)]
    draw.shuffle(rows)
    return rows


def spread_over_panes(aggregations: Sequence[Aggregation], emit: Emit) -> Windowed:
    """Return complete windows that take late rows, in many panes."""
    w = Windowed(Tumbling(10), lateness=10**9, aggregations=aggregations, emit=emit)
    for part in range(6):
        w.feed(*in_any_order(1)[part::6])
    w.advance(10 * WINDOWS)
    assert len(w.operator._panes) > 16
    return w


def batches_of(w: Windowed, *rows: Row) -> list[pa.RecordBatch]:
    """Feed rows; return the batches that come out."""
    batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    drained(w.operator.process(0, batch, w.out))
    return w.out.batches.pop(None)


def sizes(w: Windowed, *rows: Row) -> list[int]:
    """Feed rows; return the rows of each batch that comes out."""
    return [batch.num_rows for batch in batches_of(w, *rows)]


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "not merged"])
@pytest.mark.parametrize("emit", [Emit.UPDATES, Emit.CHANGES])
def test_late_rows_in_many_panes_come_out_in_few_batches(emit: Emit, aggregations: Sequence[Aggregation]) -> None:
    w = spread_over_panes(aggregations, emit)
    batches = sizes(w, *in_any_order(2))
    assert sum(batches) >= WINDOWS
    assert len(batches) <= 1 + len(w.operator._panes) // 32


@pytest.mark.parametrize(("emit", "reads"), [(Emit.UPDATES, 1), (Emit.CHANGES, 2)])
def test_records_of_many_panes_are_read_together(emit: Emit, reads: int) -> None:
    """Without changes once for a batch that comes out, with changes also what is taken back."""
    w = spread_over_panes(MERGED, emit)
    with counted_calls(Records.read) as alone, counted_calls(Records.read_rows) as together:
        batches = sizes(w, *in_any_order(2))
    assert together.total <= reads * len(batches)
    assert alone.total == 0


def test_results_of_many_hopping_windows_come_out_in_few_batches(force: Force) -> None:
    w = Windowed(Hopping(20, 10))
    w.feed(*in_any_order(1, 200))
    force(sparse_results, "_MOST", 0, calls=FewSlices.move)
    drained(w.operator.advance(END, w.out))
    assert [batch.num_rows for batch in w.out.batches[None]][:-1] == [pytest.approx(100, abs=30)] * 3


def test_many_hopping_windows_with_few_keys_are_read_together() -> None:
    w = Windowed(Hopping(20, 10))
    w.feed(*in_any_order(1, 200))
    with counted_calls(Records.read) as alone, counted_calls(Records.read_rows) as together:
        assert len(w.advance(END)) > 300
    assert (alone.total, together.total) == (0, 1)


def test_many_windows_are_merged_in_passes_of_a_largest_size() -> None:
    def results() -> list[Any]:
        w = Windowed(Hopping(20, 10))
        w.feed(*in_any_order(1, 30))
        return sorted(w.advance(END))

    expected, passes = results(), SparseResults._merged
    assert len(expected) > 30
    with forced(sparse_results, "_WINDOWS", 4, calls=passes, times=8):
        assert results() == expected
        with forced(sparse_results, "_MERGES", 1, calls=passes, times=31):
            assert results() == expected
        with forced(sparse_results, "_MERGES", 5, calls=passes, times=12):
            assert results() == expected
    with forced(sparse_results, "_MOST", 0, calls=FewSlices.move):
        assert results() == expected


def test_a_sum_of_a_window_that_overflows_names_its_key() -> None:
    w = Windowed(Hopping(20, 10), aggregations=MERGED[1:2])
    w.feed(("a", 1, 0), ("b", END, 0), ("b", 1, 10))
    with pytest.raises(OverflowError, match=r"op: the sum 'sum' of key \{'k': 'b'\}"):
        w.advance(END)


def test_parts_are_taken_one_by_one_and_few_are_joined() -> None:
    """The engine waits while parts are joined."""
    taken: list[int] = []
    parts = (taken.append(n) or part_of(1) for n in range(1000))  # type: ignore[func-returns-value]
    assert len(next(emission.joined(parts)).ends) == len(taken) <= 64


def part_of(rows: int) -> Part:
    return Part([], np.zeros(rows, np.int64), np.zeros(rows, np.int64), [pa.array(range(rows))])


def test_parts_are_joined_up_to_the_largest_size(force: Force) -> None:
    force(emission, "CHUNK", 20, calls=emission._concatenated, within=emission.joined, times=3)
    for sizes, expected in (([3, 4], [7]), ([8, 15, 3, 4], [8, 15, 7]), ([10, 3], [10, 3]), ([], [])):
        joined = list(emission.joined(map(part_of, sizes)))
        assert [len(part.ends) for part in joined] == expected
        assert [x for part in joined for x in part.values[0].to_pylist()] == [x for n in sizes for x in range(n)]


@pytest.mark.parametrize(("window", "emit"), each_once([Tumbling(10), Hopping(20, 10)], [Emit.UPDATES, Emit.CHANGES]))
def test_batches_have_a_largest_size(window: Any, emit: Emit) -> None:
    def results(most: int) -> tuple[list[Any], int, list[Any]]:
        w = Windowed(window, lateness=10**9, emit=emit)
        rows = w.feed(*in_any_order(1, 99)) + w.advance(700)
        batches = sizes(w, *in_any_order(2, 99))
        assert max(batches) <= most
        return sorted(rows), sum(batches), sorted(w.feed(*in_any_order(3, 99)))

    expected = results(emission.CHUNK)
    slots = slot_results, SlotResults._labels, slot_results._grouped
    module, part, parts = slots if isinstance(window, Tumbling) else (emission, emission._concatenated, emission.joined)
    with forced(module, "CHUNK", 20, calls=part, within=parts, times=4), ExitStack() as more:
        if emit is Emit.CHANGES:
            more.enter_context(forced(changes, "AT_ONCE", 10, calls=changes._changed, times=4))
        assert results(20) == expected


def test_changes_of_a_window_with_many_keys_come_out_in_batches_of_a_largest_size() -> None:
    def results(most: int) -> list[Any]:
        w = Windowed(Hopping(20, 10), lateness=100, emit=Emit.CHANGES)
        w.feed(*[(key, 1, 5) for key in "bdegh"])
        w.advance(50)
        batches = batches_of(w, *[(key, 2, 6) for key in "abcdefgh"])
        assert max(batch.num_rows for batch in batches) <= most
        return pa.Table.from_batches(batches).to_pylist()

    expected = results(emission.CHUNK)
    assert len(expected) == 2 * (5 * 2 + 3)
    with (
        forced(emission, "CHUNK", 4, calls=emission._concatenated, within=emission.joined, times=7),
        forced(changes, "AT_ONCE", 2, calls=changes._changed, times=4),
    ):
        assert results(4) == expected


def test_a_window_with_many_keys_comes_out_in_batches_of_a_largest_size(force: Force) -> None:
    force(emission, "CHUNK", 3, calls=emission._concatenated, within=emission.joined, times=3)
    force(sparse_results, "_MOST", 0, calls=FewSlices.move)
    w = Windowed(Hopping(20, 10))
    w.feed(*[(key, 1, 5) for key in "abcdefgh"])
    drained(w.operator.advance(10, w.out))
    assert [batch.num_rows for batch in w.out.batches[None]] == [3, 3, 2]
