"""Pipelines as SVG: stored pictures, texts that hold in any font, outlines for roles, and names that stay text."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

import dataflow as flow
from dataflow.drawing import Box, Canvas
from dataflow.events.plan_shape import InputShape, LinkShape, OperatorShape, PlanShape, VertexShape
from dataflow.views.pipeline.sketch import Sketch, logical_sketch, physical_sketch
from dataflow.views.pipeline.svg import as_svg, draw
from tests.views.pipeline.sketches import GOLDEN, golden_pictures, hostile_plan, random_sketch, unstyled

SVG = "{http://www.w3.org/2000/svg}"


def hostile_sketches() -> list[Sketch]:
    plan = hostile_plan()
    names = tuple(operator.name for operator in plan.operators)
    vertices = tuple(VertexShape(name, 64, (name, name + "!", names[0])) for name in names)
    links = tuple(LinkShape(a, b, a, "hash", tag=a, keys=(b,)) for a, b in pairwise(names))
    physical = PlanShape("local", plan.operators, vertices, links)
    return [logical_sketch(names[0], plan), physical_sketch(names[1], physical)]


def outlines(canvas: Canvas) -> list[Box]:
    """Return the boxes of operators that are drawn as rectangles."""
    root = ElementTree.fromstring(canvas.svg())
    rects = [rect.attrib for rect in root.iter(f"{SVG}rect") if rect.get("class") == "node edged"]
    places = [[float(rect[key]) for key in ("x", "y", "width", "height")] for rect in rects]
    return [Box(x, y, x + width, y + height) for x, y, width, height in places]


@pytest.mark.parametrize("name", ["logical", "physical"])
def test_a_picture_is_the_stored_one(name: str) -> None:
    picture = golden_pictures()[name]
    assert unstyled(picture.svg()) == unstyled((GOLDEN / f"{name}.svg").read_text(encoding="utf-8"))
    assert picture.text() + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_no_text_overlaps_another_or_leaves_the_picture() -> None:
    sketches = hostile_sketches() + [random_sketch(seed, circles=bool(seed % 2)) for seed in range(40)]
    for sketch in sketches:
        canvas = draw(sketch)
        assert canvas.overlaps() == [], sketch.title
        assert all(box.within(canvas.bounds) for box, _ in canvas.texts), sketch.title


def test_the_words_of_an_operator_are_in_its_outline() -> None:
    for sketch in hostile_sketches():
        canvas = draw(sketch)
        texts = [box for box, _ in canvas.texts]
        for outline in outlines(canvas):
            inside = [box for box in texts if box.overlaps(outline)]
            assert len(inside) == 2, outline
            assert all(box.within(outline) for box in inside), outline


def test_each_role_has_an_outline_of_its_own() -> None:
    operators = (
        OperatorShape("in", "read", "source"),
        OperatorShape("some", "filter", inputs=(InputShape("in"),)),
        OperatorShape("sum", "aggregate", inputs=(InputShape("some"),), stateful=True),
        OperatorShape("out", "write", "sink", inputs=(InputShape("sum"),)),
    )
    root = ElementTree.fromstring(as_svg(logical_sketch("roles", PlanShape("", operators))))
    assert [rect.get("rx") for rect in root.iter(f"{SVG}rect")][1:] == ["24", "5", "5"]  # the first one is the page
    assert len([line for line in root.iter(f"{SVG}line") if line.get("class") == "edge edged"]) == 2
    assert len([path for path in root.iter(f"{SVG}path") if path.get("class") == "node edged"]) == 1


def test_hostile_names_are_text() -> None:
    for sketch in hostile_sketches():
        root = ElementTree.fromstring(as_svg(sketch))
        tags = {element.tag.removeprefix(SVG) for element in root.iter()}
        assert tags <= {"svg", "title", "style", "g", "rect", "path", "polyline", "line", "circle", "text", "tspan"}
        names = {name for element in root.iter() for name in element.attrib}
        assert not {name for name in names if name.startswith("on") or "href" in name or name == "src"}
        assert "<img src=x onerror=alert(1)>" in "".join(root.itertext())


def test_a_long_name_is_cut_and_is_whole_in_a_title() -> None:
    plan = PlanShape("", (OperatorShape("x" * 300, "read", "source"),))
    root = ElementTree.fromstring(as_svg(logical_sketch("long", plan)))
    (text,) = [text for text in root.iter(f"{SVG}text") if "x…" in "".join(text.itertext())]
    assert text[0].tag == f"{SVG}title"
    assert text[0].text == "x" * 300


def test_pictures_have_no_names_of_other_places() -> None:
    for sketch in hostile_sketches():
        assert re.findall(r"(?:href|src|url)\s*[=(]", re.sub(r">[^<]*<", "><", as_svg(sketch))) == []


def test_an_empty_pipeline_and_one_of_a_single_operator_have_pictures() -> None:
    for plan in (PlanShape(""), PlanShape("", (OperatorShape("in", "read", "source"),))):
        assert draw(logical_sketch("small", plan)).overlaps() == []
        assert draw(physical_sketch("small", plan)).overlaps() == []


def test_sixty_four_subtasks_are_three_panels_and_a_count() -> None:
    plan = PlanShape("local", vertices=(VertexShape("in", 64, ("in",)),))
    svg = as_svg(physical_sketch("wide", plan))
    assert svg.count('class="panel edged"') == 3
    assert '<tspan class="strong">64 tasks</tspan><tspan class="soft">  in[0] to in[63]</tspan>' in svg


def test_a_forged_plan_without_operators_in_a_vertex_has_a_picture() -> None:
    plan = PlanShape("local", vertices=(VertexShape("a", 1, ()), VertexShape("b", 1, ("b", "b", "c"))),
                     links=(LinkShape("a", "b", "nothing", "hash"), LinkShape("b", "a", "b", "hash")))  # fmt: skip
    assert draw(physical_sketch("forged", plan)).overlaps() == []


def test_a_hundred_operators_make_a_small_file() -> None:
    p = flow.Pipeline("none")
    assert len(p.draw().svg()) < 4_000
    operators = [OperatorShape("n0", "read", "source")]
    operators += [OperatorShape(f"n{i}", "map", inputs=(InputShape(f"n{i // 2}"),)) for i in range(1, 100)]
    assert len(as_svg(logical_sketch("many", PlanShape("", tuple(operators))))) < 100_000


def test_the_arrows_into_an_operator_end_apart() -> None:
    sources = tuple(OperatorShape(f"s{i}", "read", "source") for i in range(30))
    union = OperatorShape("union", "union", inputs=tuple(InputShape(source.name) for source in sources))
    root = ElementTree.fromstring(as_svg(logical_sketch("star", PlanShape("", (*sources, union)))))
    heads = [line.attrib["points"].split() for line in root.iter(f"{SVG}polyline")]
    places = sorted(float(points[1].split(",")[0]) for points in heads)
    assert len(places) == 30
    assert min(right - left for left, right in pairwise(places)) >= 12
