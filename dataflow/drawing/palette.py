"""One colour per cause in every picture, light and dark, and a second sign for readers who see no colours.

A shape has the name of its cause as class. The style sheet of a picture fills rectangles, circles and polygons with
the colour of the cause, and draws lines, paths and texts with it. A text with the class ``on-CAUSE`` is legible on a
bar of that cause. Every rule is bound to the class of one picture, and none uses CSS variables: so a picture does not
change the page around it, and works in viewers without variables.

No two causes of one kind of shape differ in colour alone: bars differ in pattern, lines in dashes, points in shape.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["CAUSES", "DARK", "FONT", "LIGHT", "Cause", "Paint", "Scheme", "pattern", "series", "style_sheet"]

FONT: Final = (
    'font-family:"DejaVu Sans",ui-sans-serif,system-ui,sans-serif;font-kerning:none;'
    "font-variant-ligatures:none;text-rendering:geometricPrecision"
)
"""What ``text_width`` assumes."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """The neutral colours of a picture.

    Args:
        page: the ground of the picture.
        panel: the ground of a group on the page.
        edge: the outline of a panel or of a node.
        grid: lines that lead the eye: lanes, and ticks of a scale.
        ink: text and outlines.
        soft: secondary text.
    """

    page: str
    panel: str
    edge: str
    grid: str
    ink: str
    soft: str


LIGHT: Final = Scheme("#ffffff", "#f6f8fa", "#98a2b0", "#d5dae1", "#1b222c", "#5b6673")
DARK: Final = Scheme("#15191f", "#1d232b", "#7d8794", "#39424d", "#e6e9ee", "#a3adb9")


@dataclass(frozen=True, slots=True)
class Paint:
    """A cause in one scheme: ``fill`` of shapes, ``text`` that is legible on it, ``word`` for text on page or panel."""

    fill: str
    text: str
    word: str


@dataclass(frozen=True, slots=True)
class Cause:
    """What a colour says.

    Args:
        name: the class of shapes and texts.
        words: the entry of a legend.
        light: the colours on a light page.
        dark: the colours on a dark page.
        pattern: the pattern of bars: "" (plain), "rising", "falling", "upright", "level" or "dots".
        dashes: the dashes of lines, as in ``stroke-dasharray``.
    """

    name: str
    words: str
    light: Paint
    dark: Paint
    pattern: str = ""
    dashes: str = ""


def _strong(name: str, words: str, light: str, dark: str, pattern: str = "", dashes: str = "") -> Cause:
    """Return a cause of saturated colours, which are legible as text, too."""
    return Cause(name, words, Paint(light, "#ffffff", light), Paint(dark, "#10151c", dark), pattern, dashes)


_CAUSES = (
    _strong("barrier", "barriers travel", "#0b63b0", "#6cb6ff"),
    _strong("overtaken", "a barrier overtook rows", "#9a3d06", "#ff9d5c", "", "5 4"),
    _strong("blocked", "this input is blocked", "#c62828", "#ff8f86", "rising"),
    Cause(
        "work", "at work", Paint("#a9cfb4", "#1b222c", "#2b6b3e"), Paint("#3a6b4b", "#f2f5f8", "#8fd0a4")
    ),
    Cause(
        "held", "all inputs with rows are blocked",
        Paint("#f0a8a3", "#1b222c", "#a82a20"), Paint("#7c3a38", "#f2f5f8", "#ffb0a8"), "rising",
    ),
    Cause(
        "full", "no room downstream",
        Paint("#f0c27a", "#1b222c", "#7a4b00"), Paint("#74541c", "#f2f5f8", "#f0c27a"), "upright",
    ),
    Cause(
        "waiting", "waits for rows",
        Paint("#c9d0d8", "#1b222c", "#4c5663"), Paint("#2f3742", "#f2f5f8", "#b3bcc7"), "dots",
    ),
    _strong("state", "state is written", "#0a6f4e", "#57d9a3", "level"),
    _strong("stored", "rows in flight are stored", "#0d6a78", "#62d5e3", "falling"),
    _strong("manifest", "manifest is written", "#6b5800", "#e3c04a", "upright"),
    _strong("snapshot", "the task copies its state", "#4b46c6", "#b0adff"),
    _strong("durable", "durable", "#0a6f4e", "#57d9a3"),
    _strong("committed", "committed", "#7d3a9b", "#dd9bf5", "", "2 3"),
    _strong("failed", "failed", "#a31212", "#ffa39b", "dots", "2 2"),
    _strong("repeated", "rows that a restore delivers twice", "#9b2f7f", "#f08bd8", "dots"),
)  # fmt: skip

CAUSES: Final[Mapping[str, Cause]] = {cause.name: cause for cause in _CAUSES}
"""All causes by name."""

_SERIES: Final = (
    ("#0b63b0", "#6cb6ff", ""),
    ("#b3460a", "#ff9d5c", "9 4"),
    ("#0a7a55", "#57d9a3", "2 3"),
    ("#9b3a86", "#f08bd8", "12 3 2 3"),
    ("#756000", "#e3c04a", "6 2"),
    ("#4f4fd1", "#aaaaff", "1 4 7 4"),
)
"""Light and dark colours, and dashes."""


def series(prefix: str) -> dict[str, Cause]:
    """Return six colours, with dashes, for things that have only a number: ``prefix`` and 0 to 5.

    >>> list(series("cut"))[:2]
    ['cut0', 'cut1']
    """
    names = [f"{prefix}{i}" for i in range(len(_SERIES))]
    return {name: _strong(name, "", light, dark, "", dashes)
            for name, (light, dark, dashes) in zip(names, _SERIES, strict=True)}  # fmt: skip


_STILL: Final = {
    "text": f"{FONT};font-size:12px;font-weight:400",
    ".strong": "font-weight:700",
    ".halo": "paint-order:stroke;stroke-width:4px;stroke-linejoin:round",
    "line,path,polyline": "fill:none;stroke-width:1.6",
    ".edged": "stroke-width:1.4",
    ".outline": "stroke-width:2",
    ".heavy": "stroke-width:3",
    ".thin": "stroke-width:1",
    ".hit": "fill:transparent",
}


_OWN_DASHES: Final = {
    "solid": "stroke-dasharray:none",
    "dotted": "stroke-dasharray:1.5 3.5;stroke-linecap:round",
}
"""Lines with other dashes than those of their cause."""


_FILLED: Final = "rect,circle,polygon"


def style_sheet(
    picture: str, mark: str, causes: Collection[Cause], sizes: Collection[int], areas: Collection[str] = ()
) -> str:
    """Return the style sheet of one picture.

    Args:
        picture: the class of its ``svg`` element.
        mark: a class that no other picture has; the identifiers of patterns begin with it.
        causes: the causes in it.
        sizes: the sizes of its texts in pixels; class ``s14`` has 14.
        areas: the names of the causes of which it has areas: filled paths.
    """
    still = _STILL | {f".s{size}": f"font-size:{size}px" for size in sorted(sizes)}
    still |= {_shapes("line,path,polyline", cause.name): f"stroke-dasharray:{cause.dashes}"
              for cause in causes if cause.dashes}  # fmt: skip
    still |= {_shapes("line,path,polyline", kind): rule for kind, rule in _OWN_DASHES.items()}
    light, dark = (_bound(picture, _coloured(scheme, causes, areas)) for scheme in (LIGHT, DARK))
    tiles = {_shapes(_FILLED + ",path.area" * (cause.name in areas), cause.name): f"fill:url(#{mark}-{cause.name})"
             for cause in causes if cause.pattern}  # fmt: skip
    night = f"@media (prefers-color-scheme:dark){{\n{dark}}}\n"
    # Bound to both classes: another picture on the page has the same rules without tiles, and may come later.
    return _bound(picture, still) + light + night + _bound(f"{picture}.{mark}", tiles)


def pattern(kind: str) -> tuple[int, str]:
    """Return the side of a tile in pixels, and the path of what is drawn on it."""
    match kind:
        case "rising":
            return 7, "M-1 1L1-1M0 7L7 0M6 8L8 6"
        case "falling":
            return 7, "M-1 6L1 8M0 0L7 7M6-1L8 1"
        case "upright":
            return 5, "M2.5 0V5"
        case "level":
            return 5, "M0 2.5H5"
        case _:
            return 6, "M2 3H4"


def _coloured(scheme: Scheme, causes: Collection[Cause], areas: Collection[str]) -> dict[str, str]:
    rules = {
        "rect,circle,polygon": f"fill:{scheme.ink}",
        ".page": f"fill:{scheme.page}",
        ".panel": f"fill:{scheme.panel}",
        ".node": f"fill:{scheme.page};stroke:{scheme.edge}",
        ".edged": f"stroke:{scheme.edge}",
        ".outline": f"fill:{scheme.page};stroke:{scheme.ink}",
        "line,path,polyline": f"stroke:{scheme.ink}",
        ".edge": f"stroke:{scheme.edge}",
        ".grid": f"stroke:{scheme.grid}",
        "text": f"fill:{scheme.ink}",
        ".soft": f"fill:{scheme.soft}",
        ".halo": f"stroke:{scheme.page}",
    }
    for cause in causes:
        name, paint = cause.name, cause.light if scheme is LIGHT else cause.dark
        rules[_shapes(_FILLED, name)] = f"fill:{paint.fill}"
        rules[_shapes("line,path,polyline", name)] = f"stroke:{paint.fill}"
        if name in areas:
            rules[f"path.area.{name}"] = f"fill:{paint.fill};stroke:none"
        rules[f".{name}.outline"] = f"fill:{scheme.page};stroke:{paint.fill}"
        rules[_shapes("text,tspan", name)] = f"fill:{paint.word}"
        rules[f".on-{name}"] = f"fill:{paint.text}"
        if cause.pattern:
            rules[f".tile-{name} rect"] = f"fill:{paint.fill}"
            line, opacity = hatching(paint.text)
            rules[f".tile-{name} path"] = f"stroke:{line};stroke-opacity:{opacity}"
    return rules


def hatching(text: str) -> tuple[str, float]:
    """Return the colour and the opacity of a pattern's lines: away from the text, which stays legible."""
    return ("#000000", 0.28) if text.startswith("#f") else ("#ffffff", 0.42)


def _shapes(tags: str, name: str) -> str:
    return ",".join([f"{tag}.{name}" for tag in tags.split(",")])


def _bound(picture: str, rules: Mapping[str, str]) -> str:
    parts = [(",".join([f".{picture} {name}" for name in names.split(",")]), rule) for names, rule in rules.items()]
    return "".join([f"{names}{{{rule}}}\n" for names, rule in parts])
