"""Draws barriers.svg: the same moment of one checkpoint in three modes, and the rows that the checkpoint has.

An operator counts rows of a fast and of a slow branch. The source sent barrier 7 behind row 4 on both. On the fast
branch it has arrived; on the slow one rows 3 and 4 are queued ahead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dataflow.drawing import Box, Canvas, Word, Words, wrapped

__all__ = ["svg"]

WIDTH, GAP, PAD = 304, 14, 18
"""Pixels: a panel, the space between two, and the space inside."""
ROW: Final = 22
"""Pixels: the side of a row."""
FAST, SLOW, COUNT = 128, 208, 168
"""The middle of each queue and of the operator, from the top."""
STORED: Final = 266
"""The top of the rows of the checkpoint."""
LEFT, RIGHT = 78, 206
"""The ends of the queues, from the left of a panel."""


@dataclass(frozen=True)
class Mode:
    """The words of a panel, each with the cause that gives them their colour, and the rows of the checkpoint."""

    name: str
    does: str
    cause: str
    result: Words
    price: str
    rows: Sequence[tuple[str, str]]


COUNTED: Final = [(str(row), "") for row in range(1, 5)]

MODES: Final = (
    Mode(
        "aligned",
        "The early input is blocked until barrier 7 has come on both.",
        "blocked",
        [Word("Exactly once:", "strong"), " no row counts twice."],
        "Price: rows 5 and 6 wait.",
        COUNTED,
    ),
    Mode(
        "unaligned",
        "Nothing waits. Rows pass the barrier.",
        "repeated",
        [Word("At least once:", "strong"), " after a restore rows 5 and 6 count twice, and are reported."],
        "Price: duplicates.",
        [*COUNTED, ("5", "repeated"), ("6", "repeated")],
    ),
    Mode(
        "unaligned-persisted",
        "Nothing waits. The barrier passes rows, which are stored.",
        "stored",
        [Word("Exactly once:", "strong"), " a restore puts rows 3 and 4 back into their queue."],
        "Price: larger checkpoints.",
        [*COUNTED[:2], ("3", "stored"), ("4", "stored")],
    ),
)


def svg() -> str:
    """Return the picture."""
    canvas = Canvas(
        "barriers",
        "One checkpoint in three modes",
        description="An operator counts rows of a fast and a slow branch. Barrier 7 has arrived on the fast one. On "
        "the slow one rows 3 and 4 are ahead of it. Aligned, the fast input is blocked, and rows 5 and 6 wait. "
        "Unaligned, rows 5 and 6 pass; they are in the checkpoint, and a restore reads them again. "
        "Unaligned-persisted, the barrier overtakes rows 3 and 4, which are stored in the checkpoint.",
    )
    for number, mode in enumerate(MODES):
        _panel(canvas, number * (WIDTH + GAP), mode)
    words = "Squares are rows; the source sent barrier 7 after row 4 on both branches, and a restore reads on at row 5."
    canvas.text(canvas.bounds.right / 2, canvas.bounds.bottom + 24, words, "soft", anchor="middle")
    return canvas.svg()


def _panel(canvas: Canvas, x: float, mode: Mode) -> None:
    with canvas.group():
        canvas.rect(x, 0, WIDTH, STORED + 108, "panel", radius=10)
        canvas.text(x + PAD, 32, mode.name, "strong", size=18)
        _lines(canvas, x + PAD, 56, [Word(mode.does, f"strong {mode.cause}")])
        for middle, branch in ((FAST, "fast"), (SLOW, "slow")):
            _queue(canvas, x, middle, branch)
        _node(canvas, Box(x + 228, COUNT - 24, x + WIDTH - PAD, COUNT + 24), "count")
        match mode.name:
            case "aligned":
                _aligned(canvas, x)
            case "unaligned":
                _unaligned(canvas, x)
            case _:
                _persisted(canvas, x)
        canvas.text(x + PAD, STORED + 15, "checkpoint 7", "soft")
        for place, (row, kind) in enumerate(mode.rows):
            _row(canvas, x + 116 + place * (ROW + 4), STORED, row, kind)
        _lines(canvas, x + PAD, STORED + 52, mode.result)
        canvas.text(x + PAD, STORED + 92, mode.price, "soft")


def _lines(canvas: Canvas, x: float, y: float, words: Words) -> None:
    for place, line in enumerate(wrapped(words, WIDTH - 2 * PAD, 12)):
        canvas.text(x, y + 18 * place, line)


def _aligned(canvas: Canvas, x: float) -> None:
    """The barrier waits at the end of the fast queue, which is blocked."""
    canvas.rect(x + LEFT, FAST - 16, RIGHT - LEFT, 32, "blocked", radius=6)
    _rows(canvas, x + 172, FAST, ("5", "6"))
    _barrier(canvas, x + RIGHT - 10, FAST)
    canvas.line(x + 213, FAST - 14, x + 213, FAST + 14, "blocked heavy")
    canvas.line(x + 219, FAST - 14, x + 219, FAST + 14, "blocked heavy")
    canvas.text(x + LEFT, FAST + 32, "5 and 6 wait", "strong blocked")
    _before_the_barrier(canvas, x)


def _unaligned(canvas: Canvas, x: float) -> None:
    """The rows behind the barrier of the fast queue pass it."""
    _barrier(canvas, x + RIGHT - 10, FAST)
    _rows(canvas, x + 172, FAST, ("5", "6"), "repeated")
    _wire(canvas, x, FAST)
    _over(canvas, (x + 183, FAST + 12), (x + 228, COUNT), FAST + 46, "repeated")
    canvas.text(x + LEFT, FAST + 32, "5 and 6 pass", "strong repeated")
    _before_the_barrier(canvas, x)


def _persisted(canvas: Canvas, x: float) -> None:
    """The barrier of the slow queue overtakes the rows ahead of it."""
    _barrier(canvas, x + RIGHT - 10, FAST)
    _rows(canvas, x + 172, FAST, ("5", "6"))
    _wire(canvas, x, FAST)
    _rows(canvas, x + 160, SLOW, ("3", "4"), "stored")
    _barrier(canvas, x + RIGHT - 10, SLOW, below=36)
    _over(canvas, (x + 100, SLOW - 16), (x + RIGHT - 8, SLOW - 24), SLOW - 50, "overtaken")
    _wire(canvas, x, SLOW)
    canvas.line(x + 146, SLOW + 18, x + 146, STORED - 14, "stored")
    canvas.arrow_head(x + 146, STORED - 6, 0, 1, "stored")


def _before_the_barrier(canvas: Canvas, x: float) -> None:
    """On the slow branch two rows are ahead of the barrier."""
    _rows(canvas, x + RIGHT - 6 - ROW, SLOW, ("3", "4"))
    _barrier(canvas, x + 142, SLOW)
    _wire(canvas, x, SLOW)


def _queue(canvas: Canvas, x: float, middle: float, branch: str) -> None:
    _node(canvas, Box(x + PAD, middle - 14, x + PAD + 46, middle + 14), branch)
    canvas.line(x + PAD + 46, middle, x + LEFT, middle)
    canvas.rect(x + LEFT, middle - 16, RIGHT - LEFT, 32, "node", radius=6)


def _node(canvas: Canvas, box: Box, name: str) -> None:
    canvas.rect(box.left, box.top, box.right - box.left, box.bottom - box.top, "node", radius=8)
    canvas.text((box.left + box.right) / 2, (box.top + box.bottom) / 2 + 4, name, anchor="middle")


def _rows(canvas: Canvas, x: float, middle: float, names: Sequence[str], kind: str = "") -> None:
    """Draw queued rows, the first at ``x`` and those behind it to its left."""
    for place, name in enumerate(names):
        _row(canvas, x - place * (ROW + 4), middle - ROW / 2, name, kind)


def _row(canvas: Canvas, x: float, y: float, name: str, kind: str) -> None:
    canvas.rect(x, y, ROW, ROW, kind or "panel edged", radius=5)
    canvas.text(x + ROW / 2, y + 15.5, name, f"on-{kind} strong" if kind else "strong", anchor="middle")


def _barrier(canvas: Canvas, x: float, middle: float, below: float = -27) -> None:
    canvas.rect(x, middle - 22, 6, 44, "barrier", radius=3)
    canvas.text(x + 3, middle + below, "barrier 7", "strong barrier", anchor="middle")


def _wire(canvas: Canvas, x: float, middle: float) -> None:
    end = COUNT - 10 if middle < COUNT else COUNT + 10
    canvas.line(x + RIGHT, middle, x + 226, end)
    canvas.arrow_head(x + 228, end, 22, end - middle)


def _over(canvas: Canvas, start: tuple[float, float], end: tuple[float, float], peak: float, kind: str) -> None:
    """Draw a bow from ``start`` to ``end``."""
    (x1, y1), (x2, y2) = start, end
    middle = (x1 + x2) / 2
    d = f"M{x1:g} {y1:g}Q{middle:g} {peak:g} {x2:g} {y2:g}"
    canvas.path(d, Box(min(x1, x2), min(y1, y2, peak), max(x1, x2), max(y1, y2, peak)), kind)
    canvas.arrow_head(x2, y2, x2 - middle, y2 - peak, kind)
