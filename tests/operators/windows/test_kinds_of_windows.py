"""Every kind of windows against a model: late and partly late rows, restores, folding before the shuffle."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataflow.contracts.row_errors import LATE
from dataflow.contracts.window_kinds import Cumulate, Hopping, Tumbling
from dataflow.contracts.windows import Sliced, Window
from dataflow.state.hashing import key_group_range
from operators.windows import emission, few_slices, sparse_results
from operators.windows.emission import MergedResults
from operators.windows.few_slices import FewSlices
from operators.windows.slides import Slides
from tests.forcing import Force
from tests.operators.operating import rows_of, stored
from tests.operators.windows.windowed import END, MERGED, UNMERGED, Model, Windowed, windows_of
from tests.seeds import each_once, part_of_the_examples

KINDS = [
    Hopping(10, 10),
    Hopping(10, 5, 2),
    Hopping(10, 4, 1),
    Hopping(10, 7),
    Hopping(50, 1),
    Hopping(100, 3, 2),
    Cumulate(12, 3, 5),
    Cumulate(50, 1),
    Tumbling(7, 3),
]

STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(-40, 120)), min_size=1, max_size=12),
        st.lists(
            st.tuples(st.sampled_from("abcdefgh"), st.integers(-9, 9), st.sampled_from([0, 1, 5_000, 10**12])),
            min_size=1,
            max_size=3,
        ),
        st.integers(-60, 140),
        st.just("restore"),
    ),
    max_size=14,
)


MERGING = ["one by one", "at once", "in two stacks"]
"""Windows are merged each by itself, as those with many keys are, or together; of few slices, or of any number."""


def set_merging(name: str, force: Force) -> None:
    if name != "at once":
        force(sparse_results, "_MOST", 0, without=MergedResults._merged_at_once)
    if name == "in two stacks":
        force(emission, "FEW", 0, calls=Slides.move)


@pytest.fixture(params=MERGING)
def merging(request: pytest.FixtureRequest, force: Force) -> None:
    set_merging(request.param, force)


@pytest.mark.parametrize(("window", "lateness", "merging"), each_once(KINDS, [40, 0], MERGING))
def test_a_long_walk_gives_what_the_model_says(window: Window, lateness: int, merging: str, force: Force) -> None:
    """Many keys, of which few rows at a time are late, and the watermark in small steps."""
    if not isinstance(window, Tumbling):  # which has no slices to merge
        set_merging(merging, force)
    draw = Random(f"{window} {lateness}")
    w, model = Windowed(window, lateness=lateness), Model(window, lateness)
    for step in range(40):
        rows = [(f"k{draw.randrange(16)}", draw.randrange(99), step * 2 + draw.randrange(8)) for _ in range(8)]
        rows += [(f"k{draw.randrange(16)}", 7, step * 2 - draw.randrange(60)) for _ in range(draw.randrange(4))]
        assert sorted(w.feed(*rows)) == sorted(model.feed(*rows))
        assert sorted(w.advance(step * 2)) == sorted(model.advance(step * 2))
    assert sorted(w.advance(END)) == sorted(model.advance(END))
    assert (w.context.tally.late, w.context.tally.partly_late) == (model.late, model.partly_late)


@part_of_the_examples(2)
@given(STEPS, st.sampled_from(KINDS), st.sampled_from([0, 0, 6, 60]), st.booleans(), st.sampled_from([0, 1, 2]))
def test_whatever_comes_out_is_what_the_model_says(
    steps: list[Any],
    window: Window,
    lateness: int,
    keyed: bool,  # noqa: FBT001
    way: int,
) -> None:
    options: dict[str, Any] = {
        "lateness": lateness,
        "keyed": keyed,
        "fold_first": way == 1,
        "aggregations": UNMERGED if way == 2 else MERGED,
    }
    w, model, late, partly = Windowed(window, **options), Model(window, lateness, keyed, way == 2), 0, 0
    for step in [*steps, END]:
        if step == "restore":
            late, partly = late + w.context.tally.late, partly + w.context.tally.partly_late
            w = Windowed(window, **options, restored=stored(w.operator.snapshot()))
        elif isinstance(step, int):
            if step > model.watermark:
                assert sorted(w.advance(step)) == sorted(model.advance(step))
        else:
            assert sorted(w.feed(*step)) == sorted(model.feed(*step))
    assert late + w.context.tally.late == model.late
    assert partly + w.context.tally.partly_late == model.partly_late


@pytest.mark.parametrize("window", KINDS, ids=str)
def test_slices_and_windows_contain_each_other(window: Sliced) -> None:
    for time in range(-120, 120):
        first, last = window.containing(window.slices.number(time))
        assert [(window.start(w), window.end(w)) for w in range(first, last + 1)] == windows_of(window, time)
        assert window.end(window.last_ending(time)) <= time < window.end(window.last_ending(time) + 1)


def test_a_row_is_partly_late_if_some_of_its_windows_are_over() -> None:
    w = Windowed(Hopping(10, 5))
    w.advance(10)
    w.feed(("a", 1, 7), ("a", 1, 4), ("a", 1, 12))
    assert (w.context.tally.late, w.context.tally.partly_late) == (1, 1)
    assert [row[1:4] for row in w.advance(END)] == [(5, 15, 2), (10, 20, 1)]


def test_a_late_record_counts_as_the_rows_it_holds() -> None:
    w = Windowed(Tumbling(10), fold_first=True)
    w.advance(30)
    w.feed(("a", 1, 1), ("a", 1, 2), ("b", 1, 13), ("a", 1, 3))
    lateness = w.context.tally.lateness
    assert (w.context.tally.late, lateness.rows, lateness.most, lateness.quantile(0.5)) == (4, 4, 20, 20)


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["by slice", "by window"])
def test_how_late_a_row_is_goes_by_the_end_of_its_last_window(aggregations: Any) -> None:
    w = Windowed(Hopping(10, 5), aggregations=aggregations)
    w.advance(10)
    w.feed(("a", 1, 7), ("a", 2, -4), ("a", 3, 12))
    tally = w.context.tally
    assert [row[1] for row in w.out.take(LATE)] == [2]
    assert (tally.late, tally.partly_late, tally.lateness.most) == (1, 1, 5)


@pytest.mark.usefixtures("merging")
def test_a_late_row_changes_the_windows_that_come_after_it() -> None:
    """Their slices were merged before the row came."""
    w = Windowed(Hopping(30, 10), lateness=100)
    w.feed(("a", 1, 5), ("b", 1, 15), ("a", 2, 25))
    w.advance(30)
    w.feed(("b", 7, 11), ("c", 3, 24))
    assert [(row[0], row[3], row[4]) for row in sorted(w.advance(40))] == [("a", 1, 2), ("b", 2, 8), ("c", 1, 3)]


def test_keys_without_rows_are_forgotten(force: Force) -> None:
    """Each window has new keys, so those of all windows before would be most of the keys."""
    force(sparse_results, "_MOST", 0, calls=FewSlices.move)
    force(few_slices, "_SPARE", 8, calls=FewSlices._begin, within=FewSlices.move)
    w, model, known = Windowed(Hopping(10, 5)), Model(Hopping(10, 5), 0), []
    for step in range(60):
        rows = [(f"{step} {n}", n, 5 * step) for n in range(6)]
        assert sorted(w.feed(*rows)) == sorted(model.feed(*rows))
        assert sorted(w.advance(5 * step)) == sorted(model.advance(5 * step))
        known.append(len(w.operator._results._range._index))  # type: ignore[attr-defined]
    assert max(known[30:]) <= 2 * 12 + 8 + 12


def test_a_gap_of_years_costs_nothing() -> None:
    w = Windowed(Hopping(10, 1))
    w.feed(("a", 1, 0), ("a", 2, 10**15))
    assert len(w.advance(END)) == 20


def test_the_state_is_slices_and_is_dropped_with_the_last_window_of_each() -> None:
    w = Windowed(Hopping(10, 5))
    w.feed(("a", 1, 1), ("a", 1, 2), ("a", 1, 6), ("b", 1, 6))
    assert len(rows_of(stored(w.operator.snapshot()))) == 3
    w.advance(10)
    assert len(rows_of(stored(w.operator.snapshot()))) == 2
    w.advance(15)
    assert not len(rows_of(stored(w.operator.snapshot())))


def test_each_step_of_a_cumulating_window_has_all_keys_of_the_window() -> None:
    w = Windowed(Cumulate(10, 5))
    w.feed(("a", 1, 1), ("b", 1, 6))
    assert [row[:4] for row in w.advance(5)] == [("a", 0, 5, 1)]
    assert [row[:4] for row in w.advance(10)] == [("a", 0, 10, 1), ("b", 0, 10, 1)]


@pytest.mark.parametrize("aggregations", [MERGED, UNMERGED], ids=["by slice", "by window"])
def test_the_state_of_overlapping_windows_can_be_divided_by_key(aggregations: Any) -> None:
    options: dict[str, Any] = {"aggregations": aggregations}
    whole = Windowed(Hopping(10, 4), **options)
    whole.feed(*[(f"k{i}", i, i % 40) for i in range(200)])
    whole.advance(20)
    snapshot = stored(whole.operator.snapshot())
    groups = [key_group_range(i, 3, 128) for i in range(3)]
    parts = [Windowed(Hopping(10, 4), restored=snapshot, groups=each, **options) for each in groups]
    assert sorted(row for part in parts for row in part.advance(END)) == sorted(whole.advance(END))
