"""Space-time diagrams: what is drawn, and where. The layout is checked by itself, the pictures by what is in them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from dataflow.cuts import equivalent
from dataflow.errors import GraphError
from dataflow.observe.spacetime import diagram
from dataflow.observe.spacetime.layout import Layout, Point, lay_out
from dataflow.observe.spacetime.svg import DOT, LANE
from dataflow.processes import Process, ProcessGraph, Sends, action
from dataflow.runners.processes.system import Marker, System
from tests.processes.test_classic_cases import CASES, replay

SVG = "{http://www.w3.org/2000/svg}"
LETTERS = {"P1": "ABCDE", "P2": "FGH", "P3": "IJK"}

KUPER = """\
P1        P2      P3
 ◉         ┃       ┃  A
 ┃         ┃ ╭─────◉  I sends m2 to P2
 ◉─╮       ┃ │     ┃  B sends m1 to P2
 ┃ ╰──────▶◉ │     ┃  F takes m1 of P1
 ◆┄┬┄┄┄┄┄┄┄╂┄┼┄╮   ┃  P1 begins snapshot 0
 ╏ ┊       ◉◀╯ ┊   ┃  G takes m2 of P3
 ╏ ┊       ┃   ╰┄┄▶◆  P3 records for snapshot 0
 ╏ ┊ ╭┄┄┄┄┄╂┄┬┄┄┄┄┄┨
 ● ┊ ┊     ┃ ┊     ╏  C
 ╏◀┼┄╯     ┃ ┊     ╏  marker of snapshot 0 from P3
 ╏ ┊       ┃ ┊     ●  J
 ╏ ┊ ╭─────◉ ┊     ╏  H sends m3 to P1
 ╏ ┊ │     ◆◀╯     ╏  P2 records for snapshot 0
 ╏ ┊ │ ╭┄┄┄┠┄╮     ╏
 ●◀┼─╯ ┊   ╏ ┊     ╏  D takes m3 of P2
 ╏ ╰┄┄┄┼┄┄▶╏ ┊     ╏  marker of snapshot 0 from P1
 ╏◀┄┄┄┄╯   ╏ ┊     ╏  marker of snapshot 0 from P2
 ╏         ╏ ╰┄┄┄┄▶╏  marker of snapshot 0 from P2
 ●─────────╂─╮     ╏  E sends m4 to P3
 ╏         ╏ ╰────▶●  K takes m4 of P1

snapshot 0, begun by P1
  P2 -> P1: m3
  no message in any other channel"""


class Player(Process):
    @action
    def throw(self, to: str, ball: str) -> Sends:
        return {to: ball}

    @action
    def rest(self) -> None:
        pass

    def receive(self, sender: str, message: str) -> None:
        pass


def players(*names: str) -> System:
    graph = ProcessGraph()
    for name in names:
        graph.add(name, Player())
    return System(graph.connect(*names))


def kuper() -> System:
    case = CASES["kuper_2019"]
    return replay(case, case["script"])


def kuper_with_all() -> System:
    """Kuper's run, with a second snapshot that two processes begin, under way at the end, and a message on its way."""
    system = kuper()
    assert system.snapshot("P2", "P3") == 1
    assert system.deliver("P2", "P1") == Marker(1)
    system.act("P1", "send", "L", "P2", "m5")
    return system


def parsed(svg: str) -> ElementTree.Element:
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    return root


def groups(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [group for group in root.iter(f"{SVG}g") if name in group.attrib["class"].split()]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


def names_inside(layout: Layout, cut: int) -> str:
    return "".join(sorted([dot.name for dot in layout.dots if cut in dot.inside]))


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
    assert snapshot.crossings == (Point(4, 0), Point(11, 1), Point(6, 2))
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
    with pytest.raises(GraphError, match=r"names for the events of 'P4'.*there are \['P1', 'P2', 'P3'\]"):
        diagram(kuper().trace, names={"P4": "X"})


def test_a_cut_of_another_run_is_refused() -> None:
    with pytest.raises(GraphError, match="how many of its events lie before it"):
        diagram(kuper().trace, cuts={"long": {"P1": 6, "P2": 0, "P3": 0}})


def test_kupers_run_as_text() -> None:
    assert str(diagram(kuper().trace, names=LETTERS)) == KUPER


def test_in_text_every_event_message_and_marker_is_drawn_once() -> None:
    layout = lay_out(kuper_with_all().trace, LETTERS)
    text = str(diagram(kuper_with_all().trace, names=LETTERS))
    assert text.count("●") + text.count("◉") == len(layout.dots)
    assert text.count("▶") + text.count("◀") == sum(arrow.end is not None for arrow in layout.arrows)
    assert text.count("▽") == sum(arrow.end is None for arrow in layout.arrows)
    assert text.count("◆") == sum(len(cut.crossings) for cut in layout.cuts)


def test_a_process_that_sends_to_itself_is_drawn() -> None:
    system = System(ProcessGraph().add("a", Player()).channel("a", "a"))
    system.act("a", "throw", "a", "ball")
    system.deliver("a", "a")
    assert str(diagram(system.trace)) == "a\n●─╮  throw sends ball to a\n●◀╯  receive takes ball of a"
    (arrow,) = groups(parsed(diagram(system.trace).svg()), "message")
    assert "Q" in arrow.find(f"{SVG}path").attrib["d"]


def test_a_run_in_which_nothing_happened_is_drawn() -> None:
    made = diagram(players("a", "b").trace)
    assert str(made) == "a   b"
    assert len(groups(parsed(made.svg()), "process")) == 2


def test_a_long_run_is_clipped_where_it_is_only_looked_at() -> None:
    system = players("a", "b")
    for _ in range(300):
        system.act("a", "rest")
    made = diagram(system.trace)
    assert made.text().count("●") == 300
    assert repr(made).count("●") == 200
    assert "... 100 more lines" in repr(made)


def test_a_longer_run_makes_a_wider_picture_and_not_a_denser_one() -> None:
    system, columns = players("a", "b"), []
    for _ in range(2):
        for _ in range(50):
            system.act("a", "rest")
        root = parsed(diagram(system.trace).svg())
        found = [float(g.find(f"{SVG}circle").attrib["cx"]) for g in groups(root, "event")]
        columns.append(found[1] - found[0])
        assert float(root.attrib["width"]) > found[-1]
    assert columns[0] == columns[1] >= 42


def test_what_is_too_long_is_clipped_and_whole_on_demand() -> None:
    system = players("a" * 40, "b")
    system.act("a" * 40, "throw", "b", "x" * 70)
    made = diagram(system.trace)
    assert "a" * 15 + "…" in str(made)
    assert "a" * 17 not in str(made).splitlines()[0]
    (message,) = groups(parsed(made.svg()), "message")
    assert message.find(f"{SVG}text").text == "x" * 13 + "…"
    assert message.find(f"{SVG}title").text.startswith("x" * 59 + "…")


def test_events_are_dots_where_the_layout_has_them() -> None:
    made = diagram(kuper().trace, names=LETTERS)
    events = groups(parsed(made.svg()), "event")
    dots = [event.findall(f"{SVG}circle")[-1].attrib for event in events]
    assert [event.attrib["data-event"] for event in events] == [
        f"{dot.event.process}.{dot.event.number}" for dot in made.layout.dots
    ]
    assert [event.find(f"{SVG}text").text for event in events] == [dot.name for dot in made.layout.dots]
    assert len({(float(d["cx"]) - dot.at.column * 42, float(d["cy"]) - dot.at.lane * LANE)
                for d, dot in zip(dots, made.layout.dots, strict=True)}) == 1  # fmt: skip
    assert {dot["r"] for dot in dots} == {str(DOT)}


def test_recorded_events_have_a_ring_for_each_cut_that_they_lie_before() -> None:
    made = diagram(kuper_with_all().trace, names=LETTERS)
    events = groups(parsed(made.svg()), "event")
    rings = [[circle.attrib["data-cut"] for circle in event.findall(f"{SVG}circle")[:-1]] for event in events]
    assert rings == [[str(cut) for cut in dot.inside] for dot in made.layout.dots]
    assert ["0", "1"] in rings
    assert [] in rings


def test_arrows_reach_from_dot_to_dot_and_open_ones_to_the_edge() -> None:
    made = diagram(kuper_with_all().trace, names=LETTERS)
    root = parsed(made.svg())
    at = {
        event.attrib["data-event"]: [float(event.findall(f"{SVG}circle")[-1].attrib[c]) for c in ("cx", "cy")]
        for event in groups(root, "event")
    }
    messages = {group.find(f"{SVG}text").text: group for group in groups(root, "message")}
    assert list(messages) == ["m2", "m1", "m3", "m4", "m5"]
    assert numbers(messages["m3"].find(f"{SVG}path").attrib["d"]) == at["P2.3"] + at["P1.4"]
    m5 = numbers(messages["m5"].find(f"{SVG}path").attrib["d"])
    assert m5[:2] == at["P1.6"]
    assert m5[2] > max(x for x, _ in at.values())
    assert "open" in messages["m5"].attrib["class"].split()
    assert len(groups(root, "marker")) == 6 + 6


def test_the_cut_is_a_line_through_every_process() -> None:
    made = diagram(kuper().trace, names=LETTERS)
    (cut,) = groups(parsed(made.svg()), "cut")
    crossings = [line.attrib for line in cut.findall(f"{SVG}line")]
    assert len({float(line["x1"]) - point.column * 42 for line, point in
                zip(crossings, made.layout.cuts[0].crossings, strict=True)}) == 1  # fmt: skip
    assert [line["x1"] for line in crossings] == [line["x2"] for line in crossings]
    through = [numbers(path.attrib["d"]) for path in cut.findall(f"{SVG}path")]
    for path, above, below in zip(through, crossings, crossings[1:], strict=False):
        assert path == [float(above["x2"]), float(above["y2"]), float(below["x1"]), float(below["y1"])]
    assert len(through) == 2


def test_snapshots_differ_in_dashes_and_at_their_markers_without_any_colour() -> None:
    root = parsed(diagram(kuper_with_all().trace).svg())
    first, second = [cut.find(f"{SVG}path").attrib["stroke-dasharray"] for cut in groups(root, "cut")]
    assert first != second
    assert {
        marker.find(f"{SVG}text").text for marker in groups(root, "cut1") if "marker" in marker.attrib["class"]
    } == {"1"}
    assert [cut.find(f"{SVG}text").text for cut in groups(root, "cut")] == ["0", "1"]


def test_the_legend_names_snapshots_and_lists_what_channels_held() -> None:
    root = parsed(diagram(kuper().trace).svg())
    texts = [group.find(f"{SVG}text").text for group in groups(root, "legend")]
    assert texts[:3] == ["snapshot 0, begun by P1", "P2 -> P1: m3", "no message in any other channel"]


def test_what_users_write_is_text_and_never_markup() -> None:
    evil = "<script>alert('1')</script>&\x00\n\ud800"
    system = players(evil, "b")
    system.act(evil, "throw", "b", evil)
    system.snapshot(evil)
    made = diagram(system.trace, names={evil: [evil]}, cuts={evil: {evil: 1, "b": 0}})
    root = parsed(made.svg())
    assert not [each for each in root.iter() if "script" in each.tag]
    assert "\x00" not in made.text()
    assert "<script>" in made.text().encode().decode()


def test_a_picture_is_the_same_every_time_and_has_no_addresses() -> None:
    system = players("a", "b")
    system.act("a", "throw", "b", object())
    once, again = diagram(system.trace), diagram(system.copy().trace)
    assert (once.svg(), once.text()) == (again.svg(), again.text())
    assert "0x" not in once.svg()


def test_it_is_readable_on_light_and_on_dark_and_leaves_the_page_around_alone() -> None:
    root = parsed(diagram(kuper().trace).svg())
    style = root.find(f"{SVG}style").text
    assert "prefers-color-scheme:dark" in style
    selectors = re.findall(r"^(?:@media[^{]*{)?([^{}]+){", style, re.MULTILINE)
    assert len(selectors) > 20
    assert all(each.startswith(".spacetime ") for selector in selectors for each in selector.split(","))
    assert root.find(f"{SVG}rect").attrib["width"] == root.attrib["width"]


def test_a_notebook_shows_the_svg() -> None:
    made = diagram(kuper().trace)
    assert made._repr_svg_() == made.svg()
