"""The sheet that a timeline is drawn on: its columns, lanes, axis of time, legend and header.

Labels of lanes are left of x = 0, the axis of time is from 0 to ``CHART``, and shares and sums are right of it. The
body is drawn from y = 0 down. The header is drawn last and above it, because only then is known what the legend needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dataflow.drawing import CAUSES, Box, Canvas, Word, fitted_name, printable
from dataflow.drawing.text_width import text_width
from dataflow.drawing.words import Words, words_width, wrapped
from dataflow.views.timeline.lanes import InputLane, Lanes, TaskLane
from dataflow.views.timeline.scale import Scale

__all__ = ["CHART", "LanePlace", "Sheet"]

CHART: Final = 660.0
"""The width of the axis of time in pixels."""
LABELS: Final = 186.0
"""The room of the labels of lanes."""
SHARES: Final = 122.0
"""The room right of the axis."""
TASK_HEIGHT: Final = 26.0
INPUT_HEIGHT: Final = 19.0
PADDING: Final = 5.0
GAP: Final = 6.0
STRIP: Final = 16.0
"""The height of a strip of work."""
NOT_ON_SPARK: Final = "not measured on Spark"
LINE: Final = 18.0
"""The height of a line of text of 13 pixels."""

_SAMPLES: Final = {
    "barrier": "line", "overtaken": "line", "failed": "cross", "snapshot": "diamond", "durable": "mark",
    "committed": "mark",
}  # fmt: skip
_WORDS: Final = {"barrier": "a barrier on its way from a task to an input", "overtaken": "it overtook rows"}


class LanePlace:
    """Where a lane is: ``y`` is its middle."""

    __slots__ = ("inputs", "lane", "y")

    def __init__(self, lane: TaskLane, y: float, inputs: Sequence[tuple[InputLane, float]]) -> None:
        self.lane, self.y, self.inputs = lane, y, inputs

    @property
    def floor(self) -> float:
        """The bottom of the strip of work."""
        return self.y + STRIP / 2


class Sheet:
    """A canvas with the columns of a timeline. ``y`` is where the next thing is drawn."""

    def __init__(self, title: str) -> None:
        self.canvas = Canvas("timeline", title)
        self.y = 0.0
        self.used: dict[str, None] = {}
        self._segments: list[tuple[float, float, float, float]] = []

    def use(self, cause: str) -> str:
        """Note that a cause occurs, for the legend, and return it; other classes are returned as they are."""
        self.used[cause] = None
        return cause

    def paragraph(self, words: Words, *, size: int = 13, kind: str = "", gap: float = 0) -> None:
        """Write words over the whole width, in as many lines as they need."""
        for line in wrapped(words, CHART + LABELS + SHARES - 8, size):
            self.y += LINE * size / 13
            self.canvas.text(-LABELS, self.y, line, kind, size=size, width=CHART + LABELS + SHARES)
        self.y += gap

    def row_label(self, y: float, words: str, suffix: str = "", *, is_task: bool) -> None:
        """Write the label of a lane, right-aligned before the axis. If it is too long, its suffix is not cut."""
        kind, size = ("strong", 12) if is_task else ("soft", 11)
        whole, width = printable(words + suffix), LABELS - 20
        label = fitted_name(printable(words), suffix, width, size)
        self.canvas.text(-12, y + 4, label, kind, anchor="end", size=size, title=whole if label != whole else "")

    def share(self, y: float, words: Words, title: str = "") -> None:
        """Write right of the axis."""
        self.canvas.text(CHART + SHARES - 6, y + 4, words, anchor="end", width=SHARES - 14, title=title)

    def place_lanes(self, lanes: Lanes) -> list[LanePlace]:
        """Draw the ground of all lanes from ``y`` on, and return where they are."""
        places = []
        for block in lanes.blocks:
            lane = block.lane
            padding = 0.0 if lanes.is_folded and not lane.inputs else PADDING
            height = TASK_HEIGHT + INPUT_HEIGHT * len(lane.inputs) + (2 * padding if lane.inputs else padding)
            self.canvas.rect(-LABELS, self.y, LABELS + CHART + SHARES, height, "panel", radius=5)
            middle = self.y + padding / (1 if lane.inputs else 2) + TASK_HEIGHT / 2
            first = middle + TASK_HEIGHT / 2 + INPUT_HEIGHT / 2
            inputs = [(channels, first + INPUT_HEIGHT * row) for row, channels in enumerate(lane.inputs)]
            self.row_label(middle, lane.words, lane.suffix, is_task=True)
            for channels, y in inputs:
                self.row_label(y, channels.words, channels.suffix, is_task=False)
                self.canvas.line(0, y, CHART, y, "grid thin")
            places.append(LanePlace(lane, middle, inputs))
            self.y += height + (2 if lanes.is_folded and not lane.inputs else GAP)
        return places

    def axis(self, scale: Scale, ticks: Sequence[tuple[int, str]], caption: str, bottom: float) -> None:
        """Draw ticks at ``y`` with lines down to ``bottom``, and the caption of what is right of the axis.

        The label of a tick is left out if it has no room.
        """
        if caption:
            self.canvas.text(CHART + SHARES - 6, self.y, caption, "soft", anchor="end", size=10)
        for time, words in ticks:
            x, half = scale.x(time), text_width(words, 11) / 2 + 2
            self.canvas.line(x, self.y + 6, x, bottom, "grid thin")
            if self.canvas.is_free(Box(x - half, self.y - 11, x + half, self.y + 3)):
                self.canvas.text(x, self.y, words, "soft", anchor="middle", size=11)

    def header(self, title: str, notes: Sequence[Words]) -> None:
        """Draw title, notes and legend above everything."""
        entries = self._legend_lines()
        lines = [line for note in notes for line in wrapped(note, CHART + LABELS + SHARES - 8, 13)]
        self.y = self.canvas.bounds.top - 14 - 20 * len(entries) - LINE * len(lines)
        self.canvas.text(-LABELS, self.y - 10, [Word(title, "strong")], size=18, width=LABELS + CHART + SHARES)
        for text in lines:
            self.y += LINE
            self.canvas.text(-LABELS, self.y - 2, text, "soft", size=13, width=LABELS + CHART + SHARES)
        for line in entries:
            self.y += 20
            for x, cause, words in line:
                self._sample(x, self.y - 4, cause)
                self.canvas.text(x + 30, self.y, words, "soft", size=11)

    def _legend_lines(self) -> list[list[tuple[float, str, str]]]:
        lines: list[list[tuple[float, str, str]]] = []
        x = CHART
        for cause in [cause for cause in CAUSES if cause in self.used]:
            words = _WORDS.get(cause, CAUSES[cause].words)
            breadth = 30 + text_width(words, 11) + 18
            if x + breadth > CHART + SHARES or not lines:
                lines.append([])
                x = -LABELS
            lines[-1].append((x, cause, words))
            x += breadth
        return lines

    def _sample(self, x: float, y: float, cause: str) -> None:
        canvas = self.canvas
        match _SAMPLES.get(cause):
            case "line":
                canvas.line(x, y, x + 22, y, cause)
                canvas.circle(x + 22, y, 3, "barrier")
            case "cross":
                self.cross(x + 12, y, cause)
            case "diamond":
                canvas.diamond(x + 12, y, 6, f"{cause} outline")
            case "mark":
                canvas.line(x + 12, y - 6, x + 12, y + 6, f"{cause} heavy solid")
            case _:
                canvas.rect(x, y - 5, 24, 10, cause, radius=2)

    def cross(self, x: float, y: float, cause: str) -> None:
        """Draw a cross: something has not come."""
        for slope in (-1, 1):
            self.canvas.polyline([(x - 4.5, y - 4.5 * slope), (x + 4.5, y + 4.5 * slope)], f"{cause} heavy solid")

    def arrow(self, start: tuple[float, float], end: tuple[float, float], kind: str, title: str = "") -> None:
        """Draw a line that texts keep away from where they can."""
        self.canvas.line(*start, *end, kind, title=title)
        self._segments.append((*start, *end))

    def note_at(
        self, places: Sequence[tuple[float, float, str]], words: Words, kind: str, *, right: float = CHART
    ) -> None:
        """Write words at the first of some places that is free of texts and crossed by the fewest lines.

        Args:
            places: x, baseline and anchor, the best first.
            words: what to write; it is left out if all places are taken.
            kind: classes of the text.
            right: how far it may reach.
        """
        breadth = words_width(words, 11)
        best: tuple[int, float, float, str] | None = None
        for x, y, anchor in places:
            left = x - {"start": 0.0, "middle": breadth / 2, "end": breadth}[anchor]
            box = Box(left, y - 10, left + breadth, y + 3)
            if left < 0 or box.right > right or not self.canvas.is_free(Box(left, y - 11, box.right, y + 4)):
                continue
            crossing = sum([_crosses(segment, box) for segment in self._segments])
            if best is None or crossing < best[0]:
                best = (crossing, x, y, anchor)
        if best is not None:
            self.canvas.text(best[1], best[2], words, f"halo {kind}", anchor=best[3], size=11)


def _crosses(segment: tuple[float, float, float, float], box: Box) -> bool:
    x1, y1, x2, y2 = segment
    if max(x1, x2) < box.left or min(x1, x2) > box.right or max(y1, y2) < box.top or min(y1, y2) > box.bottom:
        return False
    corners = [(x, y) for x in (box.left, box.right) for y in (box.top, box.bottom)]
    sides = [(x2 - x1) * (y - y1) - (y2 - y1) * (x - x1) for x, y in corners]
    return min(sides) < 0 < max(sides)
