"""Draws pictures as SVG: widths of texts, elements, and one colour per cause. All pictures of the project use it.

A picture is drawn in a process that knows neither the reader's fonts nor the reader's screen. So a text gets room for
the widest usual font, everything that is drawn enlarges the picture, and both colour schemes are in the style sheet.

Files: ``text_width`` (how wide a text can be), ``words`` (lines of styled words), ``palette`` (colours and patterns of
causes), ``svg`` (the canvas).
"""

from dataflow.drawing.palette import CAUSES, Cause
from dataflow.drawing.svg import Box, Canvas
from dataflow.drawing.text_width import fitted, fitted_name, printable, printable_lines, text_width
from dataflow.drawing.words import Word, Words, plain, words_width, wrapped

__all__ = [
    "CAUSES", "Box", "Canvas", "Cause", "Word", "Words", "fitted", "fitted_name", "plain", "printable",
    "printable_lines", "text_width", "words_width", "wrapped",
]  # fmt: skip
