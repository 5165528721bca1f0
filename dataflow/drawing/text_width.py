"""Reckons how wide a text can be, whichever usual font the reader has.

Widths are upper bounds, not estimates. ``ADVANCES`` has the largest advance of each ASCII character in DejaVu Sans
2.37, Liberation Sans 2.1 (which has the widths of Arial and Helvetica) and their bold faces, read from the ``hmtx``
tables of the fonts. DejaVu Sans Bold has almost all of them. Other usual fonts are narrower.

This code assumes: texts are drawn without kerning and ligatures, because DejaVu Sans moves some pairs apart; and with
exact advances (``text-rendering:geometricPrecision``), because fonts are otherwise hinted to whole pixels. The style
sheet of a picture (``palette.FONT``) sets both.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect
from functools import lru_cache
from typing import Final

__all__ = ["ASCENT", "DESCENT", "ELLIPSIS", "fitted", "fitted_name", "printable", "printable_lines", "text_width"]

ADVANCES: Final = (
    349, 457, 521, 838, 696, 1002, 873, 307, 458, 458, 523, 838, 380, 416, 380, 366,  # space to /
    696, 696, 696, 696, 696, 696, 696, 696, 696, 696, 400, 400, 838, 838, 838, 611,  # 0 to ?
    1016, 774, 763, 734, 831, 684, 684, 821, 837, 373, 557, 775, 638, 996, 837, 851,  # @ to O
    733, 851, 771, 721, 683, 813, 774, 1104, 771, 725, 726, 458, 366, 458, 838, 557,  # P to _
    500, 675, 716, 593, 716, 679, 436, 716, 712, 343, 343, 666, 343, 1042, 712, 688,  # ` to o
    716, 716, 494, 596, 479, 712, 652, 924, 646, 652, 583, 712, 366, 712, 838,  # p to ~
)  # fmt: skip
"""Thousandths of an em, from the space on, rounded up."""

ASCENT: Final = 0.93
DESCENT: Final = 0.24
"""Em above and below the baseline; the larger ones of the two families."""

ELLIPSIS: Final = "…"

ROUNDING: Final = 0.05
"""Pixels by which browsers round up each run of a text."""

# The first character of a range and the width of its characters, in thousandths of an em.
_RANGES: Final = (
    (0x7F, 1100),  # Latin, Greek
    (0x400, 1500),  # Cyrillic, Arabic, Indic and others
    (0x1400, 2100),  # Canadian syllabics, Ogham
    (0x16A0, 1500),
    (0x1E00, 1100),  # more of Latin
    (0x1F00, 1500),
    (0x2010, 1100),  # dashes, quotation marks, the ellipsis
    (0x2028, 1500),
    (0x2190, 1100),  # arrows
    (0x2200, 1700),  # mathematics, technical signs
    (0x2E80, 1100),  # Chinese, Japanese
    (0xA000, 1500),
    (0xAC00, 1100),  # Korean
    (0xD7B0, 1750),
    (0xF900, 1100),
    (0xFB00, 1750),
    (0x10000, 2100),
    (0x1F000, 1700),  # pictographs
    (0x20000, 1100),  # rare Chinese
    (0xE0000, 2100),
)
_STARTS: Final = tuple([start for start, _ in _RANGES])
_WIDER: Final = {
    "\u0152": 1200, "\u01f6": 1300, "\u02a3": 1200, "\u02a4": 1250, "\u02a5": 1200, "\u2031": 1900, "\u20a7": 1600,
    "\u2e3a": 2200, "\u2e3b": 3300, "\u302e": 1700, "\u302f": 1700, "\ufdfd": 12000,
}  # fmt: skip
"""Characters that are wider than others of their range."""


def text_width(text: str, size: float) -> float:
    """Return an upper bound of the width of a text, in pixels.

    It holds for regular and for bold type, because readers' own style sheets can make all text bold.

    Args:
        text: one line, as ``printable`` returns it.
        size: the size of the font in pixels.

    >>> text_width("blocked 337 ms", 10)
    88.3
    >>> text_width("->", 100), text_width("→", 100)
    (125.45, 110.05)
    """
    return round(_breadth(text) * size / 1000 + ROUNDING, 3)


def fitted(text: str, width: float, size: float) -> str:
    """Return the text if it fits into ``width`` pixels, else its beginning with an ellipsis; "" if not even that fits.

    >>> fitted("payments[0]", 100, 12), fitted("payments[0]", 60, 12), fitted("payments[0]", 5, 12)
    ('payments[0]', 'payme…', '')
    """
    room = _room(width, size)
    if _breadth(text) <= room:
        return text
    room -= _advance(ELLIPSIS)
    return "" if room < 0 else _beginning(text, room).rstrip() + ELLIPSIS


def fitted_name(name: str, suffix: str, width: float, size: float) -> str:
    """Return a name with its suffix if it fits into ``width`` pixels, else without the middle of the name.

    Names that differ only in the suffix, as those of subtasks do, stay different; so do most that differ at the end.

    >>> fitted_name("orders-of-the-web-shop", "[1]", 120, 12), fitted_name("a", "[1]", 120, 12)
    ('orders-o…hop[1]', 'a[1]')
    """
    room = _room(width, size)
    if _breadth(name + suffix) <= room:
        return name + suffix
    room -= _advance(ELLIPSIS) + _breadth(suffix)
    if room < 0:
        return fitted(name + suffix, width, size)
    head = _beginning(name, room * 2 / 3)
    tail = _beginning(name[: len(head) - 1 : -1], room - _breadth(head))[::-1]
    return f"{head.rstrip()}{ELLIPSIS}{tail.lstrip()}{suffix}"


def _room(width: float, size: float) -> float:
    """Return ``width`` pixels in thousandths of an em."""
    return (width - ROUNDING) * 1000 / size + 1e-6


def _breadth(text: str) -> int:
    return sum([_advance(character) for character in text])


def _beginning(text: str, room: float) -> str:
    """Return as many characters as have room."""
    end = 0
    for character in text:
        room -= _advance(character)
        if room < 0:
            break
        end += 1
    return text[:end]


def printable(text: str) -> str:
    """Return the text with an escape for each character that is not printed, or that XML forbids.

    Control characters, line breaks, marks that reverse the direction of writing, and halves of surrogate pairs are
    shown, so that no name changes what is around it.

    >>> printable("two" + chr(10) + "lines"), printable("a" + chr(0xD800) + chr(0x202E))
    ('two\\\\nlines', 'a\\\\ud800\\\\u202e')
    """
    if text.isprintable():
        return text
    return "".join([c if c.isprintable() else c.encode("unicode_escape").decode() for c in text])


def printable_lines(text: str) -> str:
    """Return a text of several lines, each as ``printable`` does.

    >>> print(printable_lines(chr(27) + "[2J of two" + chr(10) + "lines"))
    \\x1b[2J of two
    lines
    """
    return "\n".join([printable(line) for line in text.split("\n")])


@lru_cache(maxsize=4096)
def _advance(character: str) -> int:
    code = ord(character)
    if 32 <= code < 127:
        return ADVANCES[code - 32]
    if code < 32:
        return 0  # not drawn; printable() replaces it
    if character in _WIDER:
        return _WIDER[character]
    width = _RANGES[bisect(_STARTS, code) - 1][1]
    parts = unicodedata.normalize("NFKD", character)
    if len(parts) == 1:
        return width
    return max(width, sum([_advance(part) for part in parts if not unicodedata.combining(part)]))
