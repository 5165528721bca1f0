"""What a space-time diagram has, and in which lane and column."""

from __future__ import annotations

import pytest

from dataflow.errors import GraphError
from dataflow.snapshots.cuts import equivalent
from dataflow.snapshots.diagrams import diagram
from dataflow.snapshots.diagrams.layout import GridPoint, lay_out
from dataflow.snapshots.runs.system import System
from tests.seeds import seeds
from tests.snapshots.spacetime_runs import (
    LETTERS,
    at_random,
    kuper,
    kuper_with_all,
    names_inside,
    players,
)
from tests.snapshots.test_classic_cases import CASES, replay


def test_every_step_of_the_run_has_a_column_and_every_process_a_lane() -> None:
    layout = lay_out(kuper().trace, LETTERS)
    assert layout.lanes == ("P1", "P2", "P3")
    assert "".join([dot.name for dot in layout.dots]) == "AIBFGCJHDEK"
    assert [dot.at.column for dot in layout.dots] == [0, 1, 2, 3, 5, 7, 9, 10, 12, 16, 17]
    assert all(layout.lanes[dot.at.lane] == dot.event.process for dot in layout.dots)
    assert layout.columns == 18


def test_arrows_start_where_messages_are_sent_and_end_where_they_are_accepted() -> None:
    layout = lay_out(kuper().trace, LETTERS)
    named = {dot.at: dot.name for dot in layout.dots}
    found = {arrow.label: (named[arrow.start], named[arrow.end]) for arrow in layout.arrows if arrow.cut is None}
    assert found == {"m1": ("B", "F"), "m2": ("I", "G"), "m3": ("H", "D"), "m4": ("E", "K")}


def test_markers_start_where_a_state_was_recorded_and_the_first_to_a_process_ends_where_its_was() -> None:
    layout = lay_out(kuper().trace)
    markers = [arrow for arrow in layout.arrows if arrow.cut == 0]
    (snapshot,) = layout.cuts
    assert snapshot.crossings == (GridPoint(4, 0), GridPoint(11, 1), GridPoint(6, 2))
    assert len(markers) == 6
    assert {arrow.start for arrow in markers} == set(snapshot.crossings)
    assert {arrow.end for arrow in markers} & set(snapshot.crossings) == set(snapshot.crossings[1:])


def test_the_recorded_events_are_inside_and_the_channels_are_listed() -> None:
    layout = lay_out(kuper().trace, LETTERS)
    assert names_inside(layout, 0) == "ABFGHI"
    assert layout.cuts[0].title == "snapshot 0, begun by P1"
    assert {str(c): m for c, m in layout.cuts[0].channels.items() if m} == {"P2 -> P1": ("m3",)}


def test_several_snapshots_each_have_their_line_and_one_under_way_says_what_it_waits_for() -> None:
    system = players("a", "b", "c")
    system.snapshot("a", "b")
    system.snapshot("c")
    first, second = lay_out(system.trace).cuts
    assert (first.initiators, first.missing, len(first.crossings)) == (("a", "b"), ("c",), 2)
    assert (second.initiators, second.missing, len(second.crossings)) == (("c",), ("a", "b"), 1)
    assert first.channels is second.channels is None
    assert "snapshot 0, begun by a, b, under way, not reached: c" in diagram(system.trace).text()


def test_a_snapshot_is_under_way_until_its_last_marker_has_come() -> None:
    system = players("a", "b")
    system.snapshot("a")
    system.deliver("a", "b")
    assert lay_out(system.trace).cuts[0].channels is None
    system.deliver("b", "a")
    assert set(lay_out(system.trace).cuts[0].channels.values()) == {()}


def test_what_is_in_a_channel_at_the_end_has_no_end() -> None:
    layout = lay_out(kuper_with_all().trace)
    under_way = [(arrow.label, str(arrow.channel)) for arrow in layout.arrows if arrow.end is None]
    assert ("m5", "P1 -> P2") in under_way
    assert sum(label == "1" for label, _ in under_way) == 5


def test_a_message_that_goes_back_across_a_cut_is_found() -> None:
    layout = lay_out(kuper().trace, LETTERS, {"wrong": {"P1": 4, "P2": 2, "P3": 1}})
    wrong = layout.cuts[1]
    assert [layout.arrows[i].label for i in wrong.backwards] == ["m3"]
    assert wrong.channels is None
    assert layout.cuts[0].backwards == ()


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "cut" in case])
def test_the_published_bad_cuts_have_the_message_that_shows_it(name: str) -> None:
    case = CASES[name]
    trace = replay(case, case["events"]).trace
    cut = {process: len(events) for process, events in case["cut"].items()}
    layout = lay_out(trace, case["derived"]["events_per_process"], {"bad": cut})
    named = {dot.at: dot.name for dot in layout.dots}
    found = [layout.arrows[i] for i in layout.cuts[0].backwards]
    assert [[named[arrow.start], named[arrow.end]] for arrow in found] == case["expect"]["violations"]


def test_the_cut_of_the_equivalent_run_is_straight() -> None:
    case = CASES["chandy_lamport_1985_example_2_2"]
    system = replay(case, case["script"])
    cut, again = system.snapshots[0].cut, System(system.graph)
    for event in equivalent(system.trace, cut).after:
        again.repeat(event)
    layout = lay_out(again.trace, cuts={"recorded": cut})
    assert {point.column for point in layout.cuts[0].crossings} == {1}
    assert [dot.at.column for dot in layout.dots] == [0, 2, 3]


def test_cuts_lie_between_the_events_that_they_part() -> None:
    trace = kuper().trace
    cuts = {"none": dict.fromkeys(LETTERS, 0), "some": {"P1": 2, "P2": 1, "P3": 0}, "all": {"P1": 5, "P2": 3, "P3": 3}}
    layout = lay_out(trace, LETTERS, cuts)
    assert [names_inside(layout, i) for i in (1, 2, 3)] == ["", "ABF", "ABCDEFGHIJK"]
    taken = [(point.column, i) for i, cut in enumerate(layout.cuts) for point in cut.crossings]
    assert not {column for column, _ in taken} & {dot.at.column for dot in layout.dots}
    assert len({column for column, _ in set(taken)}) == len(set(taken))


def test_events_without_a_name_have_that_of_their_action() -> None:
    system = players("a", "b")
    system.act("a", "rest")
    system.act("a", "throw", "b", "ball")
    system.deliver("a", "b")
    assert [dot.name for dot in lay_out(system.trace, {"a": ["first"]}).dots] == ["first", "throw", "receive"]


def test_names_for_a_process_that_is_not_there_are_refused() -> None:
    with pytest.raises(GraphError, match=r"names=: there is no process 'P4'.*there are \['P1', 'P2', 'P3'\]"):
        diagram(kuper().trace, names={"P4": "X"})


def test_a_cut_of_another_run_is_refused() -> None:
    with pytest.raises(GraphError, match="the number of its events before it"):
        diagram(kuper().trace, cuts={"long": {"P1": 6, "P2": 0, "P3": 0}})


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_in_any_run_time_goes_forward_and_nothing_goes_back_across_the_cut_of_a_snapshot(seed: int) -> None:
    layout = lay_out(at_random(seed).trace)
    assert all(arrow.start.column < arrow.end.column for arrow in layout.arrows if arrow.end is not None)
    assert [cut.backwards for cut in layout.cuts] == [()] * len(layout.cuts)
    assert len({dot.at.column for dot in layout.dots}) == len(layout.dots)


def test_a_run_in_the_place_of_its_trace_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected the trace of a run, got a System: call diagram\(run\.trace\)"):
        diagram(kuper())  # type: ignore[arg-type]
