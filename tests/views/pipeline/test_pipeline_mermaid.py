"""Pipelines as Mermaid: every line is one of a small strict grammar, whatever the names are."""

from __future__ import annotations

import html
import re
from itertools import pairwise

from dataflow.events.plan_shape import LinkShape, PlanShape, VertexShape
from dataflow.views.pipeline.mermaid import as_mermaid, quoted
from dataflow.views.pipeline.sketch import BoxShape, Sketch, SketchBox, SketchOperator, logical_sketch, physical_sketch
from tests.views.pipeline.sketches import HOSTILE, hostile_plan, join_pipeline, random_sketch

# Outside entities and line breaks: letters, digits, commas, and single spaces, "-" and "_" between others. Nothing of
# this begins Markdown, HTML, a comment, an icon, a link or a directive.
TEXT = r'"(?:[^\W_]|[,…]|(?<![" ]) (?![" ])|(?<=\w)[-_](?=\w)|#\d+;|<br/>)+"'
NODE = rf"n\d+(?:\(\[{TEXT}\]\)|\[{TEXT}\]|\[\[{TEXT}\]\]|\[\({TEXT}\)\]|\(\({TEXT}\)\))"
LINE = re.compile(
    rf"flowchart TD|(?:  ){{1,2}}{NODE}|    n\d+ --- n\d+|  subgraph v\d+\[{TEXT}\]|  end"
    rf"|  [nv]\d+ (?:-->|-\.->|==>)(?:\|{TEXT}\|)? [nv]\d+"
)


def check(flowchart: str) -> None:
    """Check each line, that subgraphs end, and that arrows join boxes that there are."""
    first, *lines = flowchart.splitlines()
    assert first == "flowchart TD"
    assert not [line for line in lines if not LINE.fullmatch(line)]
    assert len(re.findall("^  subgraph", flowchart, re.M)) == len(re.findall("^  end$", flowchart, re.M))
    boxes = re.findall(r"^ +(?:subgraph )?([nv]\d+)[\[(]", flowchart, re.M)
    ends = re.findall(r"^ +([nv]\d+) [-=].*?([nv]\d+)$", flowchart, re.M)
    assert len(set(boxes)) == len(boxes)
    assert {name for pair in ends for name in pair} <= set(boxes)


def unquoted(text: str) -> str:
    """Return what a browser shows of a text."""
    return html.unescape(re.sub(r"#(\d+);", r"&#\1;", text[1:-1].replace("<br/>", "\n")))


def test_random_graphs_are_flowcharts() -> None:
    for seed in range(50):
        sketch = random_sketch(seed, circles=True)
        flowchart = as_mermaid(sketch)
        check(flowchart)
        assert flowchart.count(" -->") == len(sketch.arrows)


def test_hostile_names_are_text() -> None:
    plan = hostile_plan()
    names = [operator.name for operator in plan.operators]
    vertices = tuple(VertexShape(name, 3, (name, "second")) for name in names)
    links = tuple(LinkShape(a, b, a, "broadcast", tag=b) for a, b in pairwise(names))
    check(as_mermaid(logical_sketch(names[0], plan)))
    check(as_mermaid(physical_sketch(names[0], PlanShape("local", plan.operators, vertices, links))))


def test_every_character_is_shown_as_it_is() -> None:
    assert unquoted(quoted(HOSTILE[0], HOSTILE[4])) == f"{HOSTILE[0]}\n{HOSTILE[4]}"
    ascii_characters = "".join(map(chr, range(32, 127)))
    assert unquoted(quoted(ascii_characters[:60])) + unquoted(quoted(ascii_characters[60:])) == ascii_characters


def test_words_that_mean_something_in_markdown_are_escaped_at_their_beginning() -> None:
    for text in ("1. one", "- one", "_one_", "    code", "www.example.org", "one  two", "a_b_"):
        assert re.fullmatch(TEXT, quoted(text)), text


def test_a_physical_flowchart_has_a_subgraph_for_each_vertex() -> None:
    flowchart = join_pipeline().draw(parallelism=2, physical=True).mermaid()
    check(flowchart)
    assert 'subgraph v2["2 tasks<br/>check#91;0#93;, check#91;1#93;"]' in flowchart
    assert 'n2 -.->|"rebalance, 2 x 2 channels"|' in flowchart.replace("n3", "n2")


def test_an_empty_pipeline_and_a_vertex_without_operators_are_flowcharts() -> None:
    check(as_mermaid(Sketch("empty", "no operators", (), ())))
    check(as_mermaid(Sketch("one", "", (SketchBox("v", (), 1),), ())))
    check(as_mermaid(Sketch("end", "", (SketchBox("s", (SketchOperator("s", "", BoxShape.STREAM),)),), ())))
