"""What is drawn in a timeline: its canvas, its texts, and the causes that it uses."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from dataflow.drawing import CAUSES
from dataflow.views.timeline.section import draw_sections
from dataflow.views.timeline.sheet import CHART, LABELS, SHARES, Sheet

__all__ = ["legend", "sheet_of", "texts", "titles", "wrong"]


def sheet_of(timeline) -> Sheet:
    """Return the sheet of the whole picture."""
    return draw_sections(timeline.title, timeline._sections)


def texts(timeline):
    """Return all texts of a picture, without titles."""
    return [text for _, text in sheet_of(timeline).canvas.texts]


def titles(timeline):
    """Return all titles: what is shown when the pointer is over something."""
    return [
        element.text for element in ElementTree.fromstring(timeline.svg()).iter("{http://www.w3.org/2000/svg}title")
    ]


def wrong(timeline):
    """Return what is wrong with a picture.

    Texts that overlap, or leave the columns of the sheet; causes that are drawn and not in the legend, or the reverse.
    """
    sheet = sheet_of(timeline)
    outside = [box for box, _ in sheet.canvas.texts if box.left < -LABELS - 0.01 or box.right > CHART + SHARES + 0.01]
    return [*sheet.canvas.overlaps(), *outside, *sorted(_causes(sheet.canvas.svg()) ^ _legend(sheet))]


def _causes(svg):
    classes = {name for kinds in re.findall(r'class="([^"]*)"', svg) for name in kinds.split()}
    return {name for name in CAUSES if name in classes}


def _legend(sheet):
    return {name for name in CAUSES if name in sheet.used}


def legend(timeline):
    """Return the names of the causes in the legend."""
    return _legend(sheet_of(timeline))
