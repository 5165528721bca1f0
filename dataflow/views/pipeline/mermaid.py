"""Writes a sketch of a pipeline as a flowchart of Mermaid, which many wikis and code hosts draw.

Source: https://mermaid.js.org/syntax/flowchart.html. Identifiers are made here; every text is in quotes, with an entity
such as ``#34;`` for each character that could mean something in Mermaid, Markdown or HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from dataflow.drawing import printable
from dataflow.views.pipeline.sketch import BoxShape, Sketch, SketchBox, SketchOperator

__all__ = ["as_mermaid", "quoted"]

_OUTLINES: Final = {
    BoxShape.SOURCE: ("([", "])"),
    BoxShape.TRANSFORM: ("[", "]"),
    BoxShape.STATEFUL: ("[[", "]]"),
    BoxShape.SINK: ("[(", ")]"),
    BoxShape.STREAM: ("((", "))"),
}
_ARROWS: Final = {"rebalance": "-.->", "broadcast": "==>"}
"""By partitioning; the others have a plain arrow."""
_LONGEST: Final = 80
"""Characters of a text; a longer one is cut, because Mermaid does not break lines."""
_SPECIAL: Final = re.compile(r"[^\w ,…-]|(?<!\w)[_-]|[_-](?!\w)|^ | $|(?<= ) ")
"""Characters that are written as entities: all but letters, digits and commas, and what is between two of these."""


def as_mermaid(sketch: Sketch) -> str:
    """Return the flowchart, which ends with a line break."""
    return "\n".join(["flowchart TD", *[f"  {line}" for line in _lines(sketch)], ""])


def _lines(sketch: Sketch) -> Iterator[str]:
    if not sketch.boxes:
        yield f"n0[{quoted(f'{sketch.title}: {sketch.summary}')}]"
    ids: dict[tuple[str, str], str] = {}
    heads: dict[str, str] = {}
    for i, box in enumerate(sketch.boxes):
        names = [f"n{len(ids) + j}" for j in range(len(box.operators))] or [f"v{i}"]
        heads[box.name] = names[0]
        ids |= {(box.name, operator.name): name for operator, name in zip(box.operators, names, strict=False)}
        yield from _box(box, names, i)
    for arrow in sketch.arrows:
        source = ids.get((arrow.source, arrow.operator), heads[arrow.source])
        label = f"|{quoted(*arrow.lines)}|" if arrow.lines else ""
        yield f"{source} {_ARROWS.get(arrow.partitioning or '', '-->')}{label} {heads[arrow.target]}"


def _box(box: SketchBox, names: list[str], number: int) -> Iterator[str]:
    if not box.tasks:
        for operator, name in zip(box.operators, names, strict=True):
            yield _node(operator, name)
        return
    yield f"subgraph v{number}[{quoted(box.count, box.task_names)}]"
    for operator, name in zip(box.operators, names, strict=False):
        yield f"  {_node(operator, name)}"
    for operator, name in zip(box.operators, names, strict=False):
        if operator.parent is not None:
            yield f"  {names[operator.parent]} --- {name}"
    yield "end"


def _node(operator: SketchOperator, name: str) -> str:
    left, right = _OUTLINES[operator.shape]
    return f"{name}{left}{quoted(operator.name, operator.words)}{right}"


def quoted(*lines: str) -> str:
    """Return lines as one quoted text of Mermaid, in which they are text whatever they hold.

    >>> quoted("per-id", 'say "hi" <b>')
    '"per-id<br/>say #34;hi#34; #60;b#62;"'
    """
    return '"' + "<br/>".join([_escaped(line) for line in lines if line]) + '"'


def _escaped(line: str) -> str:
    text = printable(line)
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return _SPECIAL.sub(lambda character: f"#{ord(character[0])};", text)
