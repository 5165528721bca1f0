"""Sessions against a model: out of order, late, split and merging rows, through checkpoints with deltas."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from dataflow.contracts.row_errors import LATE
from dataflow.errors import CheckpointDamaged, CheckpointMismatch
from dataflow.planning.aggregate_specs import Emit
from dataflow.state.hashing import hash_rows, key_group_range, key_groups
from operators.windows import sessions
from operators.windows.session_cells import Cells
from operators.windows.sessions import SessionAggregateOperator
from tests.forcing import Force
from tests.operators.operating import drained
from tests.operators.windows.sessioned import Sessioned, SessionModel, drawn_rows
from tests.operators.windows.windowed import END, MERGED, SCHEMA, UNMERGED, plain
from tests.seeds import seeds

WAYS = [(Emit.FINAL, 0), (Emit.FINAL, 15), (Emit.CHANGES, 0), (Emit.CHANGES, 15)]


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
@pytest.mark.parametrize(("emit", "lateness"), WAYS, ids=str)
@pytest.mark.parametrize("seed", seeds(1, 60))
def test_a_long_walk_gives_what_the_model_says(seed: int, emit: Emit, lateness: int, aggregations: Any) -> None:
    """Rows far and near, in any order, often exactly a gap apart, with restores from a base and deltas."""
    draw = Random(f"{seed} {emit} {lateness}")
    gap, keyed = draw.choice([1, 4, 10, 10, 50]), draw.random() < 0.8
    options: dict[str, Any] = {"lateness": lateness, "emit": emit, "keyed": keyed}
    w = Sessioned(gap, **options, aggregations=aggregations)
    model = SessionModel(gap, **options, distinct=aggregations is UNMERGED)
    watermark = -100
    for step in range(50):
        now = step * draw.choice([1, 3])
        rows = drawn_rows(draw, now, gap)
        assert sorted(w.feed(*rows)) == sorted(model.feed(*rows))
        if draw.random() < 0.2:
            w.checkpoint()
        if draw.random() < 0.2:
            w.restore()
        watermark = max(watermark, now - draw.choice([0, 0, gap, 60]))
        assert sorted(w.advance(watermark)) == sorted(model.advance(watermark))
    assert sorted(w.advance(END)) == sorted(model.advance(END))
    assert w.counts() == (model.late, model.split)
    assert not len(w.operator._cells)


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
@pytest.mark.parametrize(("emit", "lateness"), WAYS, ids=str)
@pytest.mark.parametrize("seed", seeds(1, 60))
def test_nanoseconds_are_not_rounded(seed: int, emit: Emit, lateness: int, aggregations: Any) -> None:
    """The model has nanoseconds alone; the operator has gap, lateness and watermarks in microseconds."""
    draw = Random(f"{seed} {emit} {lateness}")
    gap, base = draw.choice([1, 2, 3]), draw.choice([0, 2**63 - 900_000, 900_000 - 2**63])
    w = Sessioned(gap, lateness=lateness, emit=emit, aggregations=aggregations, unit="ns")
    model = SessionModel(1000 * gap, 1000 * lateness, emit, distinct=aggregations is UNMERGED)
    watermark = base // 1000 - 100
    for step in range(30):
        now = base + step * draw.choice([100, 3000])
        rows = drawn_rows(draw, now, 1000 * gap)
        assert sorted(w.feed(*rows)) == sorted(model.feed(*rows))
        if draw.random() < 0.2:
            w.restore()
        watermark = max(watermark, now // 1000 - draw.choice([0, 0, gap, 60]))
        assert sorted(w.advance(watermark)) == sorted(model.advance(1000 * watermark))
    assert sorted(w.advance(END)) == sorted(model.advance(1000 * END))
    assert w.counts() == (model.late, model.split)


def edges_of(results: list[Any]) -> list[tuple[Any, ...]]:
    """Return key, start, end and count of each result, and of signed changes the weight."""
    return [(*row[:4], *row[len(MERGED) + 3 :]) for row in results]


def test_rows_a_gap_apart_touch_and_rows_further_apart_do_not() -> None:
    w = Sessioned(10)
    w.feed(("a", 1, 0), ("a", 1, 20), ("a", 1, 10), ("b", 1, 0), ("b", 1, 11))
    assert edges_of(sorted(w.advance(END))) == [("a", 0, 30, 3), ("b", 0, 10, 1), ("b", 11, 21, 1)]


def test_a_session_is_complete_above_its_end_and_a_row_is_late_below_the_watermark() -> None:
    w = Sessioned(10)
    w.feed(("a", 1, 0), ("b", 1, 0))
    assert w.advance(10) == []
    w.feed(("a", 1, 10))  # at the end of the session
    assert edges_of(w.advance(11)) == [("b", 0, 10, 1)]
    w.feed(("c", 1, 1), ("c", 1, 0))  # the first ends at the watermark, the second below it
    assert edges_of(w.advance(END)) == [("c", 1, 11, 1), ("a", 0, 20, 2)]
    assert w.counts() == (1, 0)


def test_late_rows_alone_are_in_the_side_output_with_how_late_they_are() -> None:
    w = Sessioned(10, lateness=5)
    w.advance(40)
    rows = [{"k": "a", "x": x, "t": time} for x, time in enumerate([24, 25, 20])]
    w.operator.process(0, pa.RecordBatch.from_pylist(rows, SCHEMA), w.out)
    assert [row[1] for row in w.out.take(LATE)] == [0, 2]
    lateness = w.context.tally.lateness
    assert (lateness.checked, lateness.most) == (3, 5)


def test_a_row_that_is_late_by_itself_is_late_though_it_would_merge() -> None:
    w = Sessioned(10, emit=Emit.CHANGES)
    w.feed(("a", 1, 0), ("a", 1, 10), ("a", 1, 20))
    w.advance(25)
    w.feed(("a", 1, 14))
    assert edges_of(w.advance(END)) == [("a", 0, 30, 3, 1)]
    assert w.counts() == (1, 0)


def test_without_lateness_a_row_that_meets_a_session_that_came_out_splits_it() -> None:
    w = Sessioned(10)
    w.feed(("a", 1, 0), ("a", 1, 16))
    assert edges_of(w.advance(12)) == [("a", 0, 10, 1)]
    w.feed(("a", 1, 10), ("a", 1, 9))
    assert edges_of(w.advance(30)) == [("a", 9, 26, 3)]
    w.feed(("a", 1, 27))  # too far from it
    assert edges_of(w.advance(END)) == [("a", 27, 37, 1)]
    assert w.counts() == (0, 1)


def test_each_session_that_is_split_counts_and_its_rows_come_out() -> None:
    w = Sessioned(10)
    w.feed(("a", 1, 0), ("b", 1, 0))
    w.advance(11)
    w.feed(("a", 1, 5), ("b", 1, 6))
    assert w.counts() == (0, 2)
    assert edges_of(sorted(w.advance(END))) == [("a", 5, 15, 1), ("b", 6, 16, 1)]


def test_a_session_of_rows_that_split_another_can_be_split() -> None:
    """Its cell is in the place of the other one, which is removed first."""
    w = Sessioned(10)
    w.feed(("a", 1, 0))
    w.advance(11)
    w.feed(("a", 1, 5))
    w.advance(16)
    w.advance(21)
    w.feed(("a", 1, 12))
    assert w.counts() == (0, 2)


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.CHANGES])
def test_a_session_that_came_out_is_removed_once_no_row_can_meet_it(emit: Emit) -> None:
    w = Sessioned(10, emit=emit, lateness=15 if emit is Emit.CHANGES else 0)
    w.feed(("a", 1, 0))
    over = 36 if emit is Emit.CHANGES else 21
    cells = [len(w.operator._cells) for watermark in (11, over - 1, over) if w.advance(watermark) is not None]
    assert cells == [1, 1, 0]


def test_with_lateness_a_final_session_comes_out_once_no_row_can_merge() -> None:
    w = Sessioned(10, lateness=5)
    w.feed(("a", 1, 0))
    assert w.advance(25) == []  # a row at 10 would not be late
    assert w.operator.held(25) == 10
    assert edges_of(w.advance(26)) == [("a", 0, 10, 1)]


def test_two_sessions_that_merge_are_both_taken_back_before_the_one_that_they_become() -> None:
    w = Sessioned(10, lateness=50, emit=Emit.CHANGES)
    w.feed(("a", 1, 0), ("a", 1, 20), ("b", 1, 0))
    w.advance(40)
    assert edges_of(w.feed(("b", 1, 5), ("a", 1, 10))) == [
        ("a", 0, 10, 1, -1),
        ("a", 20, 30, 1, -1),
        ("a", 0, 30, 3, 1),
        ("b", 0, 10, 1, -1),
        ("b", 0, 15, 2, 1),
    ]


def test_a_session_that_is_open_again_is_taken_back_alone() -> None:
    w = Sessioned(10, lateness=50, emit=Emit.CHANGES)
    w.feed(("a", 1, 0))
    assert edges_of(w.advance(11)) == [("a", 0, 10, 1, 1)]
    assert edges_of(w.feed(("a", 1, 8))) == [("a", 0, 10, 1, -1)]
    assert edges_of(w.advance(19)) == [("a", 0, 18, 2, 1)]


def test_a_row_that_changes_nothing_emits_nothing() -> None:
    w = Sessioned(10, lateness=50, emit=Emit.CHANGES, aggregations=(MERGED[2], MERGED[3]))
    w.feed(("a", 1, 0), ("a", 3, 4))
    w.advance(40)
    assert w.feed(("a", 2, 4)) == []


def test_a_session_that_never_ends_has_few_cells() -> None:
    w = Sessioned(10)
    for time in range(0, 5000, 4):
        w.feed(("a", 1, time))
        w.advance(time - 20)
    assert len(w.operator._cells) < 8
    assert edges_of(w.advance(END)) == [("a", 0, 5006, 1250)]


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.CHANGES])
def test_a_gap_of_a_year_takes_rows_in_any_order(emit: Emit) -> None:
    year, draw = 365 * 86_400_000_000, Random(4)
    times = [i * year for i in range(400)]
    draw.shuffle(times)
    w = Sessioned(year, emit=emit)
    w.feed(*[("a", 1, time) for time in times])
    assert [row[1:4] for row in w.advance(END)] == [(0, 400 * year, 400)]


def test_the_work_of_a_row_does_not_grow_with_the_open_sessions_of_its_key() -> None:
    """Every other row brings two sessions together; one key has them all."""
    times = [i * 20 for i in range(20_000)]
    Random(1).shuffle(times)
    w = Sessioned(10)
    w.feed(*[("a", 1, time) for time in times])
    w.feed(*[("a", 1, time + 10) for time in times])
    assert [row[1:4] for row in w.advance(END)] == [(0, 20_000 * 20, 40_000)]


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.CHANGES])
def test_state_can_be_divided_by_key(emit: Emit, aggregations: Any) -> None:
    options: dict[str, Any] = {"emit": emit, "aggregations": aggregations}
    whole = Sessioned(10, **options)
    whole.feed(*[(f"k{i % 40}", i, i) for i in range(200)])
    whole.advance(100)
    snapshot = whole.checkpoint()
    parts = [Sessioned(10, **options, groups=key_group_range(i, 3, 128), restored=snapshot) for i in range(3)]
    results = [row for part in parts for row in part.feed(*[(f"k{i}", 1, 95 + i) for i in owned_by(part)])]
    results += [row for part in parts for row in part.advance(END)]
    expected = whole.feed(*[(f"k{i}", 1, 95 + i) for i in range(40)]) + whole.advance(END)
    assert sorted(results) == sorted(expected)


def owned_by(part: Sessioned) -> list[int]:
    """Return the numbers of the keys that are in the key groups of a part."""
    keys = pa.array([f"k{i}" for i in range(40)])
    groups = key_groups(hash_rows([keys]), 128)
    return [i for i, group in enumerate(groups.tolist()) if group in part.groups]


@pytest.mark.parametrize(("time", "lateness"), [(2**63 - 5, 0), (-(2**63), 0), (2**63 - 80, 100)])
def test_times_at_the_ends_of_64_bits_are_an_error_that_names_operator_and_column(time: int, lateness: int) -> None:
    with pytest.raises(OverflowError, match=r"op: event times in 't' are out of range .*session\(10us\).*filter"):
        Sessioned(10, lateness=lateness).feed(("a", 1, time))


def test_a_session_whose_end_nanoseconds_cannot_hold_is_an_error() -> None:
    w = Sessioned(10, unit="ns", lateness=2**40)  # years of lateness do not count
    w.feed(("a", 1, 2**63 - 10_002), ("b", 1, 2 - 2**63))
    assert edges_of(sorted(w.advance(END)))[0] == ("a", 2**63 - 10_002, 2**63 - 2, 1)
    with pytest.raises(OverflowError, match=r"op: event times in 't' are out of range .* ns of 64 bits; filter"):
        w.feed(("a", 1, 2**63 - 10_001))


def test_state_with_times_of_another_unit_is_refused() -> None:
    w = Sessioned(10, unit="ns")
    w.feed(("a", 1, 5))
    words = r"op: time units: the checkpoint has \['ns'\], the pipeline has \['us'\]"
    with pytest.raises(CheckpointMismatch, match=words):
        Sessioned(10, restored=w.checkpoint())


def test_null_times_are_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"1 event times are null in 't'; filter such rows out, or give on_error="):
        Sessioned(10).feed(("a", 1, None))  # type: ignore[arg-type]


def test_cells_that_no_rows_can_make_are_refused() -> None:
    w = Sessioned(10)
    w.feed(("a", 1, 5))
    snapshot = w.checkpoint()
    part = snapshot.logs["state"][0]  # type: ignore[index]
    keys = part["keys"]
    wrong = keys.set_column(1, keys.schema.field(1), pa.array([7], pa.int64()))
    with pytest.raises(CheckpointDamaged, match=r"op: .*times that are not theirs"):
        Sessioned(10, restored=replace(snapshot, logs={"state": [{"keys": wrong}]}))


@pytest.mark.parametrize(("emit", "kept"), [(Emit.FINAL, []), (Emit.CHANGES, [("a", 0, 14, 2)])])
@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["merged", "rows"])
def test_the_state_is_shown_as_sessions(aggregations: Any, emit: Emit, kept: Any) -> None:
    w = Sessioned(10, emit=emit, aggregations=aggregations)
    w.feed(("a", 1, 0), ("a", 1, 4), ("a", 1, 40), ("b", 1, 9))
    w.advance(16)
    shown = SessionAggregateOperator.show(w.spec, w.checkpoint(), [SCHEMA], w.output)
    rows = [tuple(map(plain, row.values())) for row in shown.tables["rows"].to_pylist()]
    assert sorted(row[:4] for row in rows) == [*kept, ("a", 40, 50, 1), ("b", 9, 19, 1)]


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.CHANGES])
def test_a_checkpoint_has_the_sessions_of_its_moment_when_it_is_written_later(emit: Emit) -> None:
    w = Sessioned(10, emit=emit)
    w.feed(("a", 1, 0), ("a", 1, 10))
    write = w.begin_checkpoint()
    results = w.advance(21)
    assert len(results) == 1
    again = Sessioned(10, emit=emit, restored=write())
    assert again.advance(21) == results


def test_after_a_restore_a_session_that_came_out_can_be_met_and_is_dropped() -> None:
    w = Sessioned(10)
    w.feed(("a", 1, 0), ("b", 1, 0))
    w.advance(12)
    w.restore()
    w.feed(("a", 1, 5))
    w.advance(21)
    assert (w.counts(), len(w.operator._cells)) == ((0, 1), 1)


MOST = 2**63 - 1
OVERFLOWS = {
    "a cell": ([("a", 1, 0), ("b", MOST, 0), ("b", 1, 1)], 0),
    "a session": ([("a", 1, 5), ("a", 1, 12), ("b", MOST, 5), ("b", 1, 13)], END),
    "cells that take no more rows": ([("a", 1, 0), ("a", 1, 10), ("b", MOST, 0), ("b", 1, 10)], 15),
}


@pytest.mark.parametrize("case", OVERFLOWS)
def test_a_sum_that_overflows_names_its_key(case: str) -> None:
    def run(rows: Any, watermark: int) -> None:
        w = Sessioned(10, aggregations=MERGED[1:2])
        w.feed(*rows)
        w.advance(watermark)

    with pytest.raises(OverflowError, match=r"op: the sum 'sum' of key \{'k': 'b'\}"):
        run(*OVERFLOWS[case])


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.CHANGES])
def test_sessions_that_come_out_together_are_in_batches_of_a_largest_size(emit: Emit, force: Force) -> None:
    look = SessionAggregateOperator._look
    force(sessions, "CHUNK", 2, calls=Cells.look, within=look, times=3)
    w = Sessioned(10, emit=emit)
    w.feed(*[(key, 1, 0) for key in "abcde"])
    drained(w.operator.advance(11, w.out))
    assert [batch.num_rows for batch in w.out.batches[None]] == [2, 2, 1]
