"""A timeline as a page of HTML: sentences, the picture, and the subtasks that share lanes, folded, without script."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape

from dataflow.clock import duration_text
from dataflow.drawing import printable
from dataflow.events.plan_shape import VertexShape
from dataflow.views.checkpoint_facts import BarrierTravel, BlockedInput, CheckpointFacts
from dataflow.views.documents import html_page
from dataflow.views.sentence import Sentence, Strong
from dataflow.views.timeline.lanes import Lanes, all_lanes, inputs_of
from dataflow.views.timeline.marks import Emphasis, marks_of
from dataflow.views.timeline.one_checkpoint import draw_lanes, interest_of, scale_of
from dataflow.views.timeline.section import TimelineSection, draw_body
from dataflow.views.timeline.sheet import Sheet
from dataflow.views.timeline.strips import column_width

__all__ = ["timeline_body", "timeline_page"]

_STYLE = """\
body{max-width:82rem}
h2,h3{font-size:1.1rem;overflow-wrap:anywhere}
p{margin:.2rem 0;overflow-wrap:anywhere}
figure{margin:.5rem -1rem}
details svg{margin:0 -1rem}
figure svg,details svg{height:auto}
figure svg{width:100%}
details svg{width:calc(100% + 2rem)}
details{margin:.2rem 0}
.mode{opacity:.75}
"""


def timeline_page(title: str, sections: Sequence[TimelineSection]) -> str:
    """Return the document."""
    return html_page(title, f"<h1>{_text(title)}</h1>\n{timeline_body(sections)}", style=_STYLE)


def timeline_body(sections: Sequence[TimelineSection], level: int = 2) -> str:
    """Return what is below the title: for each section its sentences, its picture, and its folded subtasks.

    Args:
        sections: the sections.
        level: the level of the headings, 2 for ``h2``: one below the heading above them.
    """
    length = max([section.length for section in sections])
    return "\n".join([part for section in sections for part in _section(section, length, level)])


def _section(section: TimelineSection, length: int, level: int) -> Iterator[str]:
    if section.name:
        yield f"<h{level}>{_text(section.name)}: {_text(section.what)}</h{level}>"
        level += 1
    for note in section.notes:
        yield f'<p class="mode">{_text(note)}</p>'
    yield from map(_paragraph, section.sentences)
    sheet = Sheet(section.what)
    lanes = draw_body(sheet, section, length)
    sheet.header("", [])
    if isinstance(section.view, CheckpointFacts) and lanes.is_folded:
        folded = list(_folded(section.view, lanes, length))
        picture, *details = sheet.canvas.with_others([vertex.canvas for _, vertex in folded])
        yield f"<figure>{picture}</figure>"
        yield f"<h{level}>All subtasks of {len(folded)} vertices, at the same scale of time</h{level}>"
        for (summary, _), detail in zip(folded, details, strict=True):
            yield f"<details><summary>{_text(summary)}</summary>{detail}</details>"
    else:
        yield f"<figure>{sheet.canvas.svg()}</figure>"


def _folded(facts: CheckpointFacts, lanes: Lanes, length: int) -> Iterator[tuple[str, Sheet]]:
    """Yield a line and a picture of all subtasks of each vertex of which some share a lane."""
    marks = marks_of(facts)
    interest, inputs, scale = interest_of(facts, marks), inputs_of(facts.plan), scale_of(facts, length)
    shared = {block.vertex for block in lanes.blocks if len(block.lane.tasks) > 1}
    vertex_of = {task: vertex.name for vertex in facts.plan.vertices for task in vertex.tasks}
    barriers: defaultdict[str, list[BarrierTravel]] = defaultdict(list)
    blocked: defaultdict[str, list[BlockedInput]] = defaultdict(list)
    for barrier in facts.barriers:
        barriers[vertex_of[barrier.target]].append(barrier)
    for one in facts.blocked:
        blocked[vertex_of[one.task]].append(one)
    column = column_width(len(facts.plan.tasks))
    for vertex in facts.plan.vertices:
        if vertex.name in shared:
            part = replace(facts, barriers=tuple(barriers[vertex.name]), blocked=tuple(blocked[vertex.name]))
            sheet = Sheet(vertex.name)
            places = sheet.place_lanes(all_lanes(vertex, interest, inputs))
            draw_lanes(sheet, part, Emphasis(culprit=marks.culprit), scale, places, column)
            yield _summary(part, vertex), sheet


def _summary(part: CheckpointFacts, vertex: VertexShape) -> str:
    complete = [part.tasks[task].complete for task in vertex.tasks]
    times = [time - part.triggered for time in complete if time is not None]
    words = f"{vertex.name}, {vertex.parallelism} subtasks"
    if len(times) == len(complete):
        first, last = duration_text(max(min(times), 0)), duration_text(max(*times, 0))
        words += f": complete {first} to {last} after the trigger"
    elif part.plan.is_measured:
        words += f": {len(complete) - len(times)} not complete"
    blocked = [one.length(part.until) for one in part.blocked]
    return f"{words}, an input blocked for {duration_text(max(blocked))}" if blocked else words


def _paragraph(sentence: Sentence) -> str:
    words = [f"<b>{_text(w.text)}</b>" if isinstance(w, Strong) else _text(w) for w in sentence.words]
    return f"<p>{''.join(words)}</p>"


def _text(text: str) -> str:
    return escape(printable(text))
