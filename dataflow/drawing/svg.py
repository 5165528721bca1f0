"""A canvas on which pictures are drawn as SVG elements; it grows with what is drawn, and knows where each text is.

It is an element tree, so names and messages are always text and never markup. Words that follow each other are
``tspan`` elements of one ``text``, because the end of a text depends on the font. A text without room is cut, and
its whole is in a ``title``, which viewers show when the pointer is over it.

Each element has a line of its own, so stored pictures can be compared by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from dataflow.drawing.palette import CAUSES, Cause, pattern, style_sheet
from dataflow.drawing.text_width import ASCENT, DESCENT, printable, text_width
from dataflow.drawing.words import Word, Words, cut_words, parts_of, plain, words_width

__all__ = ["Box", "Canvas", "number", "text_box"]

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


class _Place(NamedTuple):
    """Where the label of a bar may be: its x, its anchor, its room in pixels, and the class of a text there."""

    x: float
    anchor: str
    width: float
    kind: str

    def box(self, y: float, breadth: float, size: int) -> Box:
        """Return the box of a text there, with its baseline at y."""
        return _box(self.x, y, breadth, self.anchor, size)


class Canvas:
    """A picture that is being drawn.

    Classes (``kind``) are names of causes, and the neutral ones of the style sheet: for shapes "panel", "node",
    "edged" and "outline", for lines "edge", "grid", "thin", "heavy", "solid" and "dotted", for texts "strong", "soft"
    and "halo". Shapes, lines and texts without a class have the colour of ink.

    Args:
        name: the class of the picture; its style sheet speaks only of elements inside.
        title: what the picture shows, for readers who hear it.
        description: more of it, in sentences.
        margin: pixels around what is drawn.
        causes: the colours of the picture.

    >>> canvas = Canvas("chart", "A bar")
    >>> canvas.rect(0, 0, 120, 20, "blocked")
    >>> box = canvas.label(Box(0, 0, 120, 20), [Word("blocked", "strong"), " 337 ms"], "blocked")
    >>> box.within(canvas.bounds), canvas.overlaps(), "<svg" in canvas.svg()
    (True, [], True)
    """

    def __init__(
        self,
        name: str,
        title: str,
        *,
        description: str = "",
        margin: float = 16,
        causes: Mapping[str, Cause] = CAUSES,
    ) -> None:
        self._name, self._title, self._description = name, printable(title), printable(description)
        self._margin, self._known = margin, causes
        self._body: list[Element] = []
        self._into: Element | None = None
        self._causes: dict[str, Cause] = {}
        self._sizes: set[int] = set()
        self._areas: set[str] = set()
        self._texts: list[tuple[Box, str]] = []
        self._cells: dict[tuple[int, int], list[tuple[Box, str | None]]] = {}
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

    def reserve(self, box: Box) -> None:
        """Keep a place for a text that is drawn later, so that ``is_free`` and ``label`` leave it out."""
        for cell in _cells(box):
            self._cells.setdefault(cell, []).append((box, None))

    def is_free(self, box: Box) -> bool:
        """Return whether the box overlaps no text and no reserved place."""
        return not any([other.overlaps(box) for cell in _cells(box) for other, _ in self._cells.get(cell, ())])

    def grow(self, box: Box) -> None:
        """Make sure that the picture holds a box."""
        self._left, self._top = min(self._left, box.left), min(self._top, box.top)
        self._right, self._bottom = max(self._right, box.right), max(self._bottom, box.bottom)

    @contextmanager
    def group(self, kind: str = "", *, title: str = "", **data: str) -> Iterator[None]:
        """Draw into a ``g`` element, with attributes ``data-...`` for scripts, until the end of the block."""
        outside = self._into
        self._into = self._add("g", kind, {f"data-{name}": printable(value) for name, value in data.items()}, title)
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

    def area(self, d: str, bounds: Box, cause: str) -> None:
        """Fill a path that lies within ``bounds``."""
        self._areas.add(cause)
        self.path(d, bounds, f"area {cause}")

    def circle(self, x: float, y: float, radius: float, kind: str = "", *, title: str = "") -> None:
        """Draw a disc."""
        self._add("circle", kind, {"cx": number(x), "cy": number(y), "r": number(radius)}, title)
        self.grow(Box(x - radius, y - radius, x + radius, y + radius))

    def diamond(self, x: float, y: float, radius: float, kind: str = "", *, title: str = "") -> None:
        """Draw a diamond."""
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
        parts = parts_of(words)
        whole = "".join([part.text for part in parts])
        if width is not None and text_width(whole, size) > width:
            parts, title = cut_words(parts, width, size), title or whole
        drawn = "".join([part.text for part in parts])
        if not drawn:
            return Box(x, y, x, y)
        box = text_box(x, y, drawn, anchor=anchor, size=size)
        place = {"x": number(x), "y": number(y)} | ({} if anchor == "start" else {"text-anchor": anchor})
        element = self._add("text", f"{kind} s{size}" if size != 12 else kind, place, title)
        self._sizes.update([size] if size != 12 else [])
        self._fill(element, parts)
        self._texts.append((box, drawn))
        for cell in _cells(box):
            near = self._cells.setdefault(cell, [])
            self._overlaps |= {(before, drawn): None for other, before in near if before and other.overlaps(box)}
            near.append((box, drawn))
        self.grow(box)
        return box

    def label(
        self, bar: Box, words: Words, cause: str, *, size: int = 12, room: Box | None = None, kind: str = ""
    ) -> Box:
        """Write inside a bar of a cause if there is room, else beside it: to the right, else to the left.

        It takes only a place that no other text has. If it fits into none, it is cut where the room is largest, and its
        whole is in a title. If there is no room for a single character, the bar itself has the title.

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
        y = (bar.top + bar.bottom) / 2 + size * (ASCENT - DESCENT) / 2
        breadth = words_width(words, size)
        is_high = (ASCENT + DESCENT) * size <= bar.bottom - bar.top + 1
        inside = bar.right - bar.left - 2 * PAD if is_high else 0
        places = [
            _Place((bar.left + bar.right) / 2, "middle", inside, f"on-{cause}"),
            _Place(bar.right + PAD, "start", room.right - bar.right - PAD, cause),
            _Place(bar.left - PAD, "end", bar.left - room.left - PAD, cause),
        ]
        free = [place for place in places if self.is_free(place.box(y, min(breadth, max(place.width, 0)), size))]
        fitting = [place for place in free if place.width >= breadth]
        place = fitting[0] if fitting else max(free or places[:1], key=lambda each: each.width)
        width = max(place.width, 0) if free else 0
        box = self.text(place.x, y, words, f"{kind} {place.kind}".strip(), anchor=place.anchor, size=size, width=width)
        if box.left == box.right:
            self.rect(bar.left, bar.top, bar.right - bar.left, bar.bottom - bar.top, "hit", title=plain(words))
        return box

    def svg(self) -> str:
        """Return the picture as an ``svg`` element, valid as a file or inside a page."""
        return self.with_others([])[0]

    def with_others(self, others: Sequence[Canvas]) -> list[str]:
        """Return several pictures of this name for one page, this one first.

        Only this one has a style sheet and patterns, for all of them; so it must be visible if one of them is.
        """
        pictures = [self, *others]
        causes = {name: cause for canvas in pictures for name, cause in canvas._causes.items()}
        ordered = [cause for name, cause in self._known.items() if name in causes]
        patterned = [cause for cause in ordered if cause.pattern]
        body = self._markup()
        mark = f"{self._name}-{blake2b(body.encode(), digest_size=4).hexdigest()}"
        style = Element("style")
        sizes = {size for canvas in pictures for size in canvas._sizes}
        areas = {name for canvas in pictures for name in canvas._areas}
        style.text = "\n" + style_sheet(self._name, mark, ordered, sizes, areas)
        shared = [style, _patterns(mark, patterned)] if patterned else [style]
        classes = f"{self._name} {mark}" if patterned else self._name
        return [
            self._written(body, classes, shared),
            *[other._written(other._markup(), classes, []) for other in others],
        ]

    def _markup(self) -> str:
        return "".join([tostring(element, encoding="unicode") for element in self._body])

    def _written(self, body: str, classes: str, shared: Sequence[Element]) -> str:
        bounds, margin = self.bounds, self._margin
        left, top = number(bounds.left - margin), number(bounds.top - margin)
        width = number(ceil(bounds.right - bounds.left + 2 * margin))
        height = number(ceil(bounds.bottom - bounds.top + 2 * margin))
        size = {"viewBox": f"{left} {top} {width} {height}", "width": width, "height": height}
        root = Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "class": classes, "role": "img", **size})
        root.text = "\n"
        SubElement(root, "title").text = self._title
        if self._description:
            SubElement(root, "desc").text = self._description
        root.extend(shared)
        SubElement(root, "rect", {"class": "page", "x": left, "y": top, "width": width, "height": height, "rx": "10"})
        for child in root:
            child.tail = "\n"
        head, end = tostring(root, encoding="unicode"), "</svg>"
        return head.removesuffix(end) + body + end + "\n"

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
            if (cause := self._known.get(name.removeprefix("on-"))) is not None:
                self._causes[cause.name] = cause

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


def _patterns(mark: str, causes: Sequence[Cause]) -> Element:
    definitions = Element("defs")
    for cause in causes:
        side, d = pattern(cause.pattern)
        tile = {"id": f"{mark}-{cause.name}", "class": f"tile-{cause.name}", "width": str(side), "height": str(side)}
        element = SubElement(definitions, "pattern", {**tile, "patternUnits": "userSpaceOnUse"})
        SubElement(element, "rect", {"width": str(side), "height": str(side)})
        SubElement(element, "path", {"d": d})
    return definitions


def text_box(x: float, y: float, words: Words, *, anchor: str = "start", size: int = 12) -> Box:
    """Return the box that ``Canvas.text`` returns for a text that is not cut."""
    return _box(x, y, words_width(words, size), anchor, size)


def _box(x: float, y: float, breadth: float, anchor: str, size: int) -> Box:
    left = x - {"start": 0.0, "middle": breadth / 2, "end": breadth}[anchor]
    return Box(left, y - ceil(ASCENT * size), left + breadth, y + ceil(DESCENT * size))


def number(value: float) -> str:
    """Return a coordinate with at most one decimal.

    >>> number(3.0), number(2.345), number(-0.01), number(1234567.8)
    ('3', '2.3', '0', '1234567.8')
    """
    text = f"{value:.1f}"
    text = text[:-2] if text.endswith(".0") else text
    return "0" if text == "-0" else text


def _cells(box: Box) -> list[tuple[int, int]]:
    columns = range(int(box.left // _CELL), int(box.right // _CELL) + 1)
    return [(column, row) for row in range(int(box.top // _CELL), int(box.bottom // _CELL) + 1) for column in columns]
