"""Space-time diagrams as SVG: what is in the picture, and whether it is where the layout has it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree.ElementTree import Element

import pytest

from dataflow.drawing.palette import series
from dataflow.snapshots.diagrams import diagram
from dataflow.snapshots.diagrams.svg import DOT, LANE, draw
from tests.documents import ROOT, run_python
from tests.drawing.browser import Browser
from tests.snapshots.spacetime_runs import (
    LETTERS,
    SVG,
    at_random,
    groups,
    kuper,
    kuper_with_all,
    numbers,
    parsed,
    players,
)

CUTS = series("cut")


def rings_of(event: Element) -> list[str]:
    """Return the classes of an event's rings, the innermost first."""
    return [circle.attrib["class"] for circle in event.findall(f"{SVG}circle")[-2::-1]]


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
    rings = [rings_of(event) for event in events]
    assert rings == [[f"cut{cut} outline" for cut in dot.inside] for dot in made.layout.dots]
    assert ["cut0 outline", "cut1 outline"] in rings
    assert [] in rings


def test_many_snapshots_do_not_bury_an_event_under_rings() -> None:
    system = players("a", "b")
    system.act("a", "rest")
    for _ in range(20):
        system.snapshot("a")
    made = diagram(system.trace)
    root = parsed(made.svg())
    (event,) = groups(root, "event")
    assert rings_of(event) == ["cut0 outline", "cut1 outline", "cut2 outline"]
    assert "at most three circles" in groups(root, "legend")[-1].find(f"{SVG}text").text
    assert "[0, 1, 2, …]" in made.text()


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
    through = [numbers(path.attrib["points"]) for path in cut.findall(f"{SVG}polyline")]
    for path, above, below in zip(through, crossings, crossings[1:], strict=False):
        assert path == [float(above["x2"]), float(above["y2"]), float(below["x1"]), float(below["y1"])]
    assert len(through) == 2


def test_snapshots_differ_in_dashes_and_at_their_markers_without_any_colour() -> None:
    root = parsed(diagram(kuper_with_all().trace).svg())
    first, second = [cut.find(f"{SVG}polyline").attrib["class"] for cut in groups(root, "cut")]
    assert CUTS[first].dashes != CUTS[second].dashes
    labels = [marker.find(f"{SVG}text") for marker in groups(root, "marker")]
    assert {(label.text, label.attrib["class"]) for label in labels} == {("0", "halo cut0"), ("1", "halo cut1")}
    assert [cut.find(f"{SVG}text").text for cut in groups(root, "cut")] == ["0", "1"]


def test_the_legend_names_snapshots_and_lists_what_channels_held() -> None:
    root = parsed(diagram(kuper().trace).svg())
    texts = [group.find(f"{SVG}text").text for group in groups(root, "legend")]
    assert texts[:3] == ["snapshot 0, begun by P1", "P2 -> P1: m3", "no message in any other channel"]


def test_the_legend_says_whom_a_snapshot_has_not_reached() -> None:
    system = players("a", "b")
    system.snapshot("a")
    texts = [group.find(f"{SVG}text").text for group in groups(parsed(diagram(system.trace).svg()), "legend")]
    assert texts[0] == "snapshot 0, begun by a, under way, not reached: b"


def test_a_message_that_goes_back_across_a_cut_stands_out_and_is_in_the_legend() -> None:
    root = parsed(diagram(kuper().trace, cuts={"wrong": {"P1": 4, "P2": 2, "P3": 1}}).svg())
    assert [group.find(f"{SVG}text").text for group in groups(root, "backwards")] == ["m3"]
    texts = [group.find(f"{SVG}text").text for group in groups(root, "legend")]
    assert "inconsistent: m3 of P2 -> P1 is accepted before the cut, sent after it" in texts


def test_a_diamond_says_where_a_state_was_recorded_and_only_there() -> None:
    root = parsed(diagram(kuper().trace, cuts={"also": {"P1": 2, "P2": 3, "P3": 1}}).svg())
    snapshot, other = groups(root, "cut")
    middles = [(float(line.attrib["x1"]), float(line.attrib["y1"]) + 16) for line in snapshot.findall(f"{SVG}line")]
    corners = [numbers(diamond.attrib["points"]) for diamond in snapshot.findall(f"{SVG}polygon")]
    assert [(sum(points[::2]) / 4, sum(points[1::2]) / 4) for points in corners] == middles
    assert other.findall(f"{SVG}polygon") == []


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
    selectors = re.findall(r"^([^{}@]+){", style, re.MULTILINE)
    assert len(selectors) > 20
    assert all(each.startswith(".spacetime ") for selector in selectors for each in selector.strip().split(","))
    assert root.find(f"{SVG}rect").attrib["width"] == root.attrib["width"]


@pytest.mark.parametrize("seed", range(5))
def test_no_text_overlaps_another_also_in_a_crowded_run(seed: int) -> None:
    system = at_random(seed)
    cut = dict.fromkeys(system.trace.processes, 1)
    picture = draw(diagram(system.trace, names={"P0": ["a long name", "W" * 30] * 9}, cuts={"W" * 40: cut}).layout)
    assert picture.overlaps() == []


def test_most_messages_of_a_crowded_run_have_a_label() -> None:
    layout = diagram(at_random(0).trace).layout
    messages = [arrow.label for arrow in layout.arrows if arrow.cut is None]
    labels = {text for _, text in draw(layout).texts} & set(messages)
    assert len(labels) > 0.9 * len(messages)


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(4))
def test_a_picture_holds_in_any_font(browser: Browser, seed: int) -> None:
    names = {"P0": ["<img src=x>", "W" * 30, "größe → 人数"]}
    assert browser.problems(diagram(at_random(seed).trace, names=names).svg()) == []
    assert browser.problems(diagram(kuper_with_all().trace, names=LETTERS).svg()) == []


def test_a_notebook_shows_the_svg() -> None:
    made = diagram(kuper().trace)
    assert made._repr_svg_() == made.svg()


def test_the_pictures_of_the_guide_are_what_its_code_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert list(run_python(ROOT / "docs/processes.md"))
    (drawn,) = tmp_path.glob("*.svg")
    there = (ROOT / "docs" / drawn.name).read_text(encoding="utf-8")
    assert there == drawn.read_text(encoding="utf-8"), f"run the code of docs/processes.md, and keep its {drawn.name}"
