"""The legend of a space-time diagram, shared by text and SVG: each cut, with the states of channels."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from dataflow.snapshots.diagrams.layout import CutLine, DiagramLayout, shown

__all__ = ["cut_lines", "dotted"]

WIDTH = 100
"""The maximum number of characters in a line of messages; longer lists are wrapped."""


def cut_lines(layout: DiagramLayout) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the position of each cut, its title, and lines about messages that cross it."""
    for position, line in enumerate(layout.cuts):
        missing = f", not reached: {', '.join(line.missing)}" if line.missing else ""
        yield position, line.title + missing, [*_backwards(layout, line), *_held(line)]


def dotted(layout: DiagramLayout) -> str:
    """Return the meaning of the dotted arrows of the picture."""
    return " or ".join(sorted({arrow.kind for arrow in layout.arrows if arrow.cut is not None})) or "marker"


def _backwards(layout: DiagramLayout, line: CutLine) -> Iterator[str]:
    for i in line.backwards:
        arrow = layout.arrows[i]
        yield f"inconsistent: {arrow.label} of {arrow.channel} is accepted before the cut, sent after it"


def _held(line: CutLine) -> Iterator[str]:
    if line.channels is None:
        return
    held = {channel: messages for channel, messages in line.channels.items() if messages}
    for channel, messages in held.items():
        line_of_channel = f"{channel}: {', '.join([shown(message) for message in messages])}"
        yield from wrap(line_of_channel, WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    yield "no message in any channel" if not held else "no message in any other channel"
