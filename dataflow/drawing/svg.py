"""A canvas on which pictures are drawn as SVG elements; it grows with what is drawn, and knows where each text is.

It is an element tree, so names and messages are always text and never markup. Words that follow each other are
``tspan`` elements of one ``text``, because nobody knows where a text ends. A text without room is cut, and its whole is
in a ``title``, which viewers show when the pointer is over it.

Each element has a line of its own, so stored pictures can be compared by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from dataflow.drawing.palette import CAUSES, pattern, style_sheet
from dataflow.drawing.text_width import ASCENT, DESCENT, fitted, printable, text_width

__all__ = ["Box", "Canvas", "Word", "Words", "plain", "words_width", "wrapped"]

PAD: Final = 6
"""Pixels between a text and the ends of its bar."""
_CELL: Final = 64
"""Pixels: the side of the cells by which texts are found."""


class Box(NamedTuple):
    """A rectangle in pixels; y grows downwards.

    >>> Box(0, 0, 4, 4).overlaps(Box(4, 0, 8, 4)), Box(0, 0, 4, 4).overlaps(Box(3, 3, 8, 8))
    (False, True)
    """

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Return whether both have a part in common; edges that touch are none."""
        beside = self.right <= other.left or other.right <= self.left
        return not beside and self.top < other.bottom and other.top < self.bottom

    def within(self, other: Box) -> bool:
        """Return whether all of this lies inside the other."""
        beside = self.left < other.left or other.right < self.right
        return not beside and other.top <= self.top and self.bottom <= other.bottom


class Word(NamedTuple):
    """A part of a text with classes of its own: "strong", "soft", or the name of a cause."""

    text: str
    kind: str = ""


Words = str | Sequence[str | Word]
"""One line: a text, or texts and styled words that follow each other; spaces between them are the caller's."""


class Canvas:
    """A picture that is being drawn.

    Classes (``kind``) are names of causes, and the neutral ones of the style sheet: for shapes "panel", "node",
    "edged", "edge", "grid", "outline" and "heavy", for texts "strong", "soft" and "halo".

    Args:
        name: the class of the picture; its style sheet speaks only of elements inside.
        title: what the picture shows, for readers who hear it.
        margin: pixels around what is drawn.

    >>> canvas = Canvas("chart", "A bar")
    >>> canvas.rect(0, 0, 120, 20, "blocked")
    >>> box = canvas.label(Box(0, 0, 120, 20), [Word("blocked", "strong"), " 337 ms"], "blocked")
    >>> box.within(canvas.bounds), canvas.overlaps(), "<svg" in canvas.svg()
    (True, [], True)
    """

    def __init__(self, name: str, title: str, *, margin: float = 16) -> None:
        self._name, self._title, self._margin = name, printable(title), margin
        self._body: list[Element] = []
        self._into: Element | None = None
        self._causes: set[str] = set()
        self._sizes: set[int] = set()
        self._texts: list[tuple[Box, str]] = []
        self._cells: dict[tuple[int, int], list[tuple[Box, str]]] = {}
        self._overlaps: dict[tuple[str, str], None] = {}
        self._left = self._top = self._right = self._bottom = 0.0

    @property
    def bounds(self) -> Box:
        """The smallest box around the origin and all that was drawn."""
        return Box(self._left, self._top, self._right, self._bottom)

    @property
    def texts(self) -> list[tuple[Box, str]]:
        """The box of each text, an upper bound in every font, and its words."""
        return list(self._texts)

    def overlaps(self) -> list[tuple[str, str]]:
        """Return the pairs of texts whose boxes overlap."""
        return list(self._overlaps)

    def is_free(self, box: Box) -> bool:
        """Return whether no text that was drawn overlaps the box."""
        return not any([other.overlaps(box) for cell in _cells(box) for other, _ in self._cells.get(cell, ())])

    def grow(self, box: Box) -> None:
        """Make sure that the picture holds a box."""
        self._left, self._top = min(self._left, box.left), min(self._top, box.top)
        self._right, self._bottom = max(self._right, box.right), max(self._bottom, box.bottom)

    @contextmanager
    def group(self, kind: str = "", *, title: str = "") -> Iterator[None]:
        """Draw into a ``g`` element until the end of the block."""
        outside = self._into
        self._into = self._add("g", kind, {}, title)
        self._into.text = "\n"
        try:
            yield
        finally:
            self._into = outside

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str = "", *, radius: float = 0, title: str = ""
    ) -> None:
        """Draw a rectangle."""
        place = {"x": number(x), "y": number(y), "width": number(width), "height": number(height)}
        self._add("rect", kind, place | ({"rx": number(radius)} if radius else {}), title)
        self.grow(Box(x, y, x + width, y + height))

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str = "", *, title: str = "") -> None:
        """Draw a straight line."""
        self._add("line", kind, {"x1": number(x1), "y1": number(y1), "x2": number(x2), "y2": number(y2)}, title)
        self.grow(Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)))

    def polyline(self, points: Sequence[tuple[float, float]], kind: str = "", *, title: str = "") -> None:
        """Draw lines from point to point."""
        self._add("polyline", kind, {"points": self._points(points)}, title)

    def polygon(self, points: Sequence[tuple[float, float]], kind: str = "", *, title: str = "") -> None:
        """Draw a filled area."""
        self._add("polygon", kind, {"points": self._points(points)}, title)

    def path(self, d: str, bounds: Box, kind: str = "", *, title: str = "") -> None:
        """Draw a path that lies within ``bounds``."""
        self._add("path", kind, {"d": d}, title)
        self.grow(bounds)

    def circle(self, x: float, y: float, radius: float, kind: str = "", *, title: str = "") -> None:
        """Draw a disc."""
        self._add("circle", kind, {"cx": number(x), "cy": number(y), "r": number(radius)}, title)
        self.grow(Box(x - radius, y - radius, x + radius, y + radius))

    def diamond(self, x: float, y: float, radius: float, kind: str = "", *, title: str = "") -> None:
        """Draw a square that stands on a corner."""
        self.polygon([(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)], kind, title=title)

    def arrow_head(self, x: float, y: float, dx: float, dy: float, kind: str = "", *, size: float = 8) -> None:
        """Draw the head of an arrow that ends at (x, y) and comes in the direction (dx, dy)."""
        length = (dx * dx + dy * dy) ** 0.5 or 1.0
        ux, uy = dx / length * size, dy / length * size
        self.polygon([(x, y), (x - ux - uy * 0.45, y - uy + ux * 0.45), (x - ux + uy * 0.45, y - uy - ux * 0.45)], kind)

    def text(
        self,
        x: float,
        y: float,
        words: Words,
        kind: str = "",
        *,
        anchor: str = "start",
        size: int = 12,
        width: float | None = None,
        title: str = "",
    ) -> Box:
        """Draw one line of text and return its box, an upper bound in every font.

        Args:
            x: where the text starts, ends, or has its middle.
            y: the baseline.
            words: a text, or words that follow each other.
            kind: classes of the whole text.
            anchor: "start", "middle" or "end".
            size: the size of the font in pixels.
            width: the room in pixels. A longer text is cut, and its whole is the title.
            title: what viewers show when the pointer is over the text.

        Returns:
            The box. It is empty, and nothing is drawn, if there is no room for a single character.
        """
        parts = _parts(words)
        whole = "".join([part.text for part in parts])
        if width is not None and text_width(whole, size) > width:
            parts, title = _cut(parts, width, size), title or whole
        drawn = "".join([part.text for part in parts])
        breadth = text_width(drawn, size)
        left = x - {"start": 0.0, "middle": breadth / 2, "end": breadth}[anchor]
        if not drawn:
            return Box(left, y, left, y)
        place = {"x": number(x), "y": number(y)} | ({} if anchor == "start" else {"text-anchor": anchor})
        element = self._add("text", f"{kind} s{size}" if size != 12 else kind, place, title)
        self._sizes.update([size] if size != 12 else [])
        self._fill(element, parts)
        box = Box(left, y - ceil(ASCENT * size), left + breadth, y + ceil(DESCENT * size))
        self._texts.append((box, drawn))
        for cell in _cells(box):
            near = self._cells.setdefault(cell, [])
            self._overlaps |= {(before, drawn): None for other, before in near if other.overlaps(box)}
            near.append((box, drawn))
        self.grow(box)
        return box

    def label(
        self, bar: Box, words: Words, cause: str, *, size: int = 12, room: Box | None = None, kind: str = ""
    ) -> Box:
        """Write inside a bar of a cause if there is room, else beside it: to the right, else to the left.

        Beside the bar a text takes only places that no other text has. If it fits nowhere, it is cut where the room is
        largest, and its whole is in a title.

        Args:
            bar: the bar.
            words: the words inside.
            cause: the cause of the bar, for the colour of the text.
            size: the size of the font in pixels.
            room: the part of the picture that the text may use; all that was drawn so far if None.
            kind: further classes.

        Returns:
            The box of the text, as ``text`` does.
        """
        room = room or self.bounds
        breadth = words_width(words, size)
        y = (bar.top + bar.bottom) / 2 + size * (ASCENT - DESCENT) / 2
        middle = (bar.left + bar.right) / 2
        top, bottom = y - ceil(ASCENT * size), y + ceil(DESCENT * size)
        inside = bar.right - bar.left - 2 * PAD
        right, left = room.right - bar.right - PAD, bar.left - room.left - PAD
        places = {"inside": inside}
        if self.is_free(Box(bar.right + PAD, top, bar.right + PAD + min(breadth, max(right, 0)), bottom)):
            places["right"] = right
        if self.is_free(Box(bar.left - PAD - min(breadth, max(left, 0)), top, bar.left - PAD, bottom)):
            places["left"] = left
        place = next((name for name, width in places.items() if width >= breadth), max(places, key=lambda p: places[p]))
        ends = {"inside": (middle, "middle"), "right": (bar.right + PAD, "start"), "left": (bar.left - PAD, "end")}
        x, anchor = ends[place]
        classes = f"{kind} on-{cause}" if place == "inside" else f"{kind} {cause}"
        return self.text(x, y, words, classes.strip(), anchor=anchor, size=size, width=max(places[place], 0))

    def svg(self) -> str:
        """Return the picture as an ``svg`` element, valid as a file or inside a page."""
        body = "".join([tostring(element, encoding="unicode") for element in self._body])
        mark = f"{self._name}-{blake2b(body.encode(), digest_size=4).hexdigest()}"
        bounds, margin = self.bounds, self._margin
        left, top = number(bounds.left - margin), number(bounds.top - margin)
        width = number(ceil(bounds.right - bounds.left + 2 * margin))
        height = number(ceil(bounds.bottom - bounds.top + 2 * margin))
        size = {"viewBox": f"{left} {top} {width} {height}", "width": width, "height": height}
        classes = f"{self._name} {mark}" if self._patterned() else self._name
        root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": classes, "role": "img", **size})
        root.text = "\n"
        SubElement(root, "title").text = self._title
        SubElement(root, "style").text = "\n" + style_sheet(self._name, mark, self._causes, self._sizes)
        if self._patterned():
            root.append(self._patterns(mark))
        SubElement(root, "rect", {"class": "page", "x": left, "y": top, "width": width, "height": height, "rx": "10"})
        for child in root:
            child.tail = "\n"
        head, end = tostring(root, encoding="unicode"), "</svg>"
        return head.removesuffix(end) + body + end + "\n"

    def _patterned(self) -> list[str]:
        return sorted([name for name in self._causes if CAUSES[name].pattern])

    def _patterns(self, mark: str) -> Element:
        definitions = Element("defs")
        for name in self._patterned():
            side, d = pattern(CAUSES[name].pattern)
            tile = {"id": f"{mark}-{name}", "class": f"tile-{name}", "width": str(side), "height": str(side)}
            element = SubElement(definitions, "pattern", {**tile, "patternUnits": "userSpaceOnUse"})
            SubElement(element, "rect", {"width": str(side), "height": str(side)})
            SubElement(element, "path", {"d": d})
        return definitions

    def _add(self, tag: str, kind: str, attributes: dict[str, str], title: str) -> Element:
        classes = {"class": kind} if kind else {}
        if self._into is None:
            element = Element(tag, classes | attributes)
            self._body.append(element)
        else:
            element = SubElement(self._into, tag, classes | attributes)
        element.tail = "\n"
        self._note(kind)
        if title:
            SubElement(element, "title").text = printable(title)
        return element

    def _note(self, kind: str) -> None:
        for name in kind.split():
            if (cause := name.removeprefix("on-")) in CAUSES:
                self._causes.add(cause)

    def _fill(self, element: Element, parts: Sequence[Word]) -> None:
        last: Element | None = element[-1] if len(element) else None
        for part in parts:
            if part.kind:
                last = SubElement(element, "tspan", {"class": part.kind})
                last.text = part.text
                self._note(part.kind)
            elif last is None:
                element.text = (element.text or "") + part.text
            else:
                last.tail = (last.tail or "") + part.text

    def _points(self, points: Sequence[tuple[float, float]]) -> str:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        self.grow(Box(min(xs), min(ys), max(xs), max(ys)))
        return " ".join([f"{number(x)},{number(y)}" for x, y in points])


def number(value: float) -> str:
    """Return a coordinate with at most one decimal.

    >>> number(3.0), number(2.345), number(-0.01), number(1234567.8)
    ('3', '2.3', '0', '1234567.8')
    """
    text = f"{value:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def plain(words: Words) -> str:
    """Return the words without their styles, as they are drawn."""
    return "".join([part.text for part in _parts(words)])


def words_width(words: Words, size: float) -> float:
    """Return an upper bound of the width of words that follow each other, in pixels."""
    return text_width(plain(words), size)


def wrapped(words: Words, width: float, size: float) -> list[list[Word]]:
    """Return the words in lines of at most ``width`` pixels, broken at spaces. A longer word has a line of its own.

    >>> [plain(line) for line in wrapped(["blocked for ", Word("342 ms", "strong"), ", waits"], 100, 12)]
    ['blocked for', '342 ms, waits']
    """
    atoms: list[list[Word]] = [[]]  # words between spaces: each a list of styled pieces
    for part in _parts(words):
        for position, piece in enumerate(part.text.split(" ")):
            if position:
                atoms.append([])
            if piece:
                atoms[-1].append(Word(piece, part.kind))
    lines: list[list[Word]] = []
    used = 0.0
    for atom in [atom for atom in atoms if atom]:
        breadth = sum([text_width(piece.text, size) for piece in atom])
        space = text_width(" ", size)
        if lines and used + space + breadth <= width:
            lines[-1] += [Word(" "), *atom]
            used += space + breadth
        else:
            lines.append(list(atom))
            used = breadth
    return [_joined(line) for line in lines]


def _joined(line: Sequence[Word]) -> list[Word]:
    """Return the pieces with neighbours of one style, and the spaces between them, as one word."""
    joined: list[Word] = []
    for position, piece in enumerate(line):
        follows = line[position + 1].kind if position + 1 < len(line) else ""
        kind = joined[-1].kind if piece.text == " " and joined and joined[-1].kind == follows else piece.kind
        if joined and joined[-1].kind == kind:
            joined[-1] = Word(joined[-1].text + piece.text, kind)
        else:
            joined.append(Word(piece.text, kind))
    return joined


def _parts(words: Words) -> list[Word]:
    several = [words] if isinstance(words, str) else words
    parts = [Word(part) if isinstance(part, str) else part for part in several]
    return [Word(printable(part.text), part.kind) for part in parts]


def _cut(parts: Sequence[Word], width: float, size: float) -> list[Word]:
    """Return the beginning of the words that fits, with an ellipsis."""
    drawn = fitted("".join([part.text for part in parts]), width, size)
    cut: list[Word] = []
    for part in parts:
        taken, drawn = drawn[: len(part.text)], drawn[len(part.text) :]
        cut += [Word(taken, part.kind)] if taken else []
    if drawn and cut:
        cut[-1] = Word(cut[-1].text + drawn, cut[-1].kind)
    return cut


def _cells(box: Box) -> list[tuple[int, int]]:
    columns = range(int(box.left // _CELL), int(box.right // _CELL) + 1)
    return [(column, row) for row in range(int(box.top // _CELL), int(box.bottom // _CELL) + 1) for column in columns]
