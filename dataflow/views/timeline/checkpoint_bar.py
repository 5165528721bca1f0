"""The bar of a checkpoint in its three parts, with marks where it was durable, and committed."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.clock import duration_text
from dataflow.drawing import Word
from dataflow.drawing.words import words_width
from dataflow.views.checkpoint_facts import CheckpointFacts
from dataflow.views.timeline.scale import Scale
from dataflow.views.timeline.sheet import CHART, SHARES, Sheet

__all__ = ["draw_bar"]


@dataclass(frozen=True, slots=True)
class _Phase:
    """A part of the bar of a checkpoint; ``cause`` is "" if it is not known what took the time."""

    cause: str
    words: str
    begin: int
    end: int

    @property
    def kind(self) -> str:
        return self.cause or "panel edged"

    @property
    def on(self) -> str:
        return f"on-{self.cause}" if self.cause else ""

    @property
    def whole(self) -> str:
        return f"{self.words} {duration_text(self.end - self.begin)}"


def _phases(facts: CheckpointFacts) -> list[_Phase]:
    end = facts.until
    phases: list[_Phase] = []
    begin = facts.triggered
    steps = (("barrier", "barriers travel", facts.travelled), ("state", "state is written", facts.written))
    for cause, words, moment in steps:
        if moment is None:
            if facts.is_durable:
                return [_Phase("", "parts not known", facts.triggered, end)]
            return [*phases, _Phase(cause, words, begin, end)]
        phases.append(_Phase(cause, words, begin, max(moment, begin)))
        begin = max(moment, begin)
    return [*phases, _Phase("manifest", "manifest", begin, max(end, begin))]


def draw_bar(sheet: Sheet, facts: CheckpointFacts, scale: Scale, y: float) -> None:
    """Draw the bar in its parts, marks for durable and committed, and below it the words that did not fit."""
    canvas = sheet.canvas
    name = facts.kind if facts.kind and facts.kind != "final" else "checkpoint"
    sheet.row_label(y, f"{name} {facts.checkpoint}", is_task=True)
    below: list[Word] = []
    phases = _phases(facts)
    if facts.travelled is None and not facts.plan.is_measured:
        whole = "checkpoint" if facts.kind == "final" else "micro-batch"  # of a batch, of a stream
        phases = [_Phase("", whole, facts.triggered, phases[-1].end)]
    for phase in phases:
        left, right = scale.x(phase.begin), scale.x(phase.end)
        if phase.end > phase.begin:
            canvas.rect(left, y - 8, max(right - left, 1.0), 16, sheet.use(phase.kind), title=phase.whole)
        for words in (phase.whole, duration_text(phase.end - phase.begin)):
            if words_width(words, 12) <= right - left - 8:
                canvas.text((left + right) / 2, y + 4, words, f"strong {phase.on}", anchor="middle")
                break
        else:
            below.append(Word(phase.whole, sheet.use(phase.cause)))
    marks: list[tuple[str, str, int]] = []
    if facts.ended is not None:
        words = "durable after" if facts.is_durable else "failed after"
        marks.append(("durable" if facts.is_durable else "failed", words, facts.ended))
    if facts.committed is not None:
        marks.append(("committed", "committed after", facts.committed))
    for cause, words, moment in marks:
        x = scale.x(moment)
        if moment <= scale.end:
            canvas.line(x, y - 12, x, y + 12, f"{sheet.use(cause)} heavy solid")
        below.append(Word(f"{words} {duration_text(moment - facts.triggered)}", f"strong {cause}"))
    if not facts.is_durable and facts.ended is None:
        below.append(Word("not durable yet", "strong"))
    line: list[Word] = []
    for word in below:
        line += [Word(", ", "soft")] if line else []
        line.append(word)
    x = scale.x(marks[0][2]) if marks else scale.x(phases[-1].end)
    breadth = words_width(line, 12)
    canvas.text(max(0.0, min(x + 4, CHART + SHARES - 6) - breadth), y + 25, line, width=CHART + SHARES - 6)
