"""Space-time diagrams for the terminal."""

from __future__ import annotations

import pytest

from dataflow.snapshots.diagrams import diagram
from dataflow.snapshots.diagrams.layout import lay_out
from dataflow.snapshots.processes import ProcessGraph
from dataflow.snapshots.runs.system import System
from tests.seeds import seeds
from tests.snapshots.spacetime_runs import (
    LETTERS,
    SVG,
    Player,
    at_random,
    groups,
    kuper,
    kuper_with_all,
    parsed,
    players,
)

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
  no message in any other channel
◉ before the cut, ● after, ◆ state recorded, ┊ marker"""


def test_kupers_run_as_text() -> None:
    assert str(diagram(kuper().trace, names=LETTERS)) == KUPER


def test_in_text_every_event_message_and_marker_is_drawn_once() -> None:
    layout = lay_out(kuper_with_all().trace, LETTERS)
    text = str(diagram(kuper_with_all().trace, names=LETTERS)).partition("\n\n")[0]
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


def test_of_a_long_run_that_is_only_looked_at_what_happens_later_takes_no_room() -> None:
    system = players("a", "b")
    system.act("a", "throw", "b", "first")
    for _ in range(250):
        system.act("a", "rest")
    for _ in range(3):
        system.act("a", "throw", "b", "later")
    lines = repr(diagram(system.trace)).splitlines()
    assert lines[1] == "●─╮   ┃  throw sends first to b"
    assert lines[200:] == ["● │   ┃  rest", "... 54 more lines: print(diagram.text())", "  ▽      still in the channel"]


def test_what_is_too_long_is_clipped_and_whole_on_demand() -> None:
    system = players("a" * 40, "b")
    system.act("a" * 40, "throw", "b", "x" * 70)
    made = diagram(system.trace)
    assert "a" * 15 + "…" in str(made)
    assert "a" * 17 not in str(made).splitlines()[0]
    (message,) = groups(parsed(made.svg()), "message")
    assert message.find(f"{SVG}text").text == "x" * 13 + "…"
    assert message.find(f"{SVG}title").text.startswith("x" * 59 + "…")


def test_all_that_a_channel_held_is_listed_in_as_many_lines_as_it_takes() -> None:
    system = players("a", "b")
    for number in range(40):
        system.act("a", "throw", "b", f"ball {number}")
    system.snapshot("b")
    for source, target in [("b", "a"), *[("a", "b")] * 41]:
        system.deliver(source, target)
    made = diagram(system.trace)
    listed = str(made).partition("begun by b\n")[2].partition("no message in any other")[0]
    assert " ".join(listed.split()) == "a -> b: " + ", ".join([f"ball {number}" for number in range(40)])
    assert max(map(len, listed.splitlines())) <= 102
    texts = [group.find(f"{SVG}text").text for group in groups(parsed(made.svg()), "legend")]
    assert [text.strip() for text in texts[1:-2]] == [line.strip() for line in listed.splitlines() if line.strip()]


def sender(lines: list[str], x: int, y: int) -> int:
    """Follow an arrow back from its head at (x, y): where in its line the lane is on which it starts, and that line."""
    away = 1 if lines[y][x] == "◀" else -1
    while lines[y][x] not in "╰╯":
        x += away
    while lines[y][x] not in "╮╭┬":
        y -= 1
    ends = []
    for side in (-1, 1):
        end = x + side
        while lines[y][end] in "─┄┬┼╂":
            end += side
        ends += [end] * (lines[y][end] in "●◉◆┠┨")
    (lane,) = ends
    return lane


@pytest.mark.parametrize("seed", seeds(5, 20))
def test_every_arrow_of_the_text_leads_back_to_its_sender(seed: int) -> None:
    made = diagram(at_random(seed).trace)
    lines = [line.ljust(200) for line in made.text().splitlines()]
    heads = [(x, y) for y, line in enumerate(lines) for x, sign in enumerate(line) if sign in "▶◀"]
    lanes = [lines[0].index(name) + 1 for name in made.layout.lanes]
    found = [lanes.index(sender(lines, x, y)) for x, y in heads]
    came = sorted([arrow for arrow in made.layout.arrows if arrow.end is not None], key=lambda arrow: arrow.end)
    assert found == [arrow.start.lane for arrow in came]
    assert sum(line.count("▽") for line in lines) == len(made.layout.arrows) - len(came)
