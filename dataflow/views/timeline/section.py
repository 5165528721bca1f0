"""One run in a timeline: its heading, its sentences, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.drawing import Word
from dataflow.views.attempt_mode import AttemptMode
from dataflow.views.checkpoint_facts import CheckpointFacts
from dataflow.views.sentence import Sentence, Strong
from dataflow.views.sentences import sentences_of
from dataflow.views.timeline.lanes import Lanes
from dataflow.views.timeline.marks import marks_of
from dataflow.views.timeline.one_checkpoint import draw_checkpoint, shown_length
from dataflow.views.timeline.run_facts import RunFacts
from dataflow.views.timeline.run_sentences import run_sentences_of
from dataflow.views.timeline.sheet import Sheet
from dataflow.views.timeline.whole_run import draw_run

__all__ = ["TimelineSection", "draw_body", "draw_sections", "section_of"]

_MODES = {
    "aligned": "an input whose barrier has come is blocked until all barriers have come",
    "unaligned": "no input is blocked, and a restore delivers rows twice that came between two barriers",
    "unaligned-persisted": "barriers overtake queued rows, which are stored with the checkpoint",
    "aligned-timeout": "inputs are blocked until the timeout; then barriers overtake queued rows, which are stored",
}


@dataclass(frozen=True)
class TimelineSection:
    """One checkpoint or one run, and what to say about it.

    ``name`` is "" if the picture has only this one. ``why`` says why this checkpoint is shown, unless it was asked for.
    """

    name: str
    view: CheckpointFacts | RunFacts
    sentences: tuple[Sentence, ...]
    why: str = ""

    @property
    def length(self) -> int:
        """The microseconds that its picture shows."""
        if isinstance(self.view, RunFacts):
            return self.view.end - self.view.begin
        return shown_length(self.view)

    @property
    def what(self) -> str:
        """The checkpoint or the run, for a title."""
        if isinstance(self.view, RunFacts):
            return "Whole run"
        return f"{'Savepoint' if self.view.kind == 'savepoint' else 'Checkpoint'} {self.view.checkpoint}"

    @property
    def notes(self) -> Sequence[str]:
        """The lines below the heading: why this checkpoint is shown, and the mode."""
        return [f"Shown is {self.why}.", self.mode] if self.why else [self.mode]

    @property
    def mode(self) -> str:
        """The mode with its guarantee, unless that is the name of the section, and what it does."""
        if not self.view.plan.is_measured:
            return "On Spark, a micro-batch is a checkpoint."
        if isinstance(self.view, CheckpointFacts):
            return _explained(AttemptMode(self.view.mode, self.view.guarantee), self.name)
        modes = self.view.modes
        if len(modes) == 1:
            return _explained(next(iter(modes)), self.name)
        each = [f"attempt{'s' * (len(numbers) > 1)} {_listed(numbers)} {mode.text}" for mode, numbers in modes.items()]
        return f"The mode changed: {'; '.join(each)}."


def _explained(mode: AttemptMode, name: str) -> str:
    """Return a mode with its guarantee, unless that is the ``name`` of the section, and what it does."""
    if not mode.mode:
        return "Without checkpoints."
    does = _MODES.get(mode.mode, "")
    return f"{does[:1].upper()}{does[1:]}." if does and name == mode.text else f"Mode {mode.text}: {does}."


def _listed(numbers: Sequence[int]) -> str:
    """Return the numbers of some attempts in words.

    >>> _listed([1]), _listed([1, 3, 4])
    ('1', '1, 3 and 4')
    """
    *before, last = map(str, numbers)
    return f"{', '.join(before)} and {last}" if before else last


def section_of(view: CheckpointFacts | RunFacts, name: str = "", why: str = "") -> TimelineSection:
    """Return a section with its sentences."""
    sentences = run_sentences_of(view) if isinstance(view, RunFacts) else sentences_of(view)
    return TimelineSection(name, view, sentences, why)


def draw_body(sheet: Sheet, section: TimelineSection, length: int) -> Lanes:
    """Draw the picture of a section at a scale of ``length`` microseconds, and return its lanes."""
    if isinstance(section.view, RunFacts):
        return draw_run(sheet, section.view, length)
    return draw_checkpoint(sheet, section.view, marks_of(section.view), length)


def draw_sections(title: str, sections: Sequence[TimelineSection]) -> Sheet:
    """Draw sections below each other at one scale of time, with their sentences, and title and legend above them."""
    sheet = Sheet(title)
    length = max([section.length for section in sections])
    for section in sections:
        if section.name:
            sheet.paragraph([Word(section.name, "strong"), Word(f": {section.what}", "soft")], size=15, gap=2)
            for note in section.notes:
                sheet.paragraph(note, kind="soft", gap=2)
        for sentence in section.sentences:
            words = [Word(w.text, "strong") if isinstance(w, Strong) else Word(w) for w in sentence.words]
            sheet.paragraph(words, gap=1)
        sheet.y += 10
        draw_body(sheet, section, length)
        sheet.y += 34
    one = [note for section in sections if not section.name for note in section.notes]
    sheet.header(title, one or [f"{len(sections)} runs at one scale of time, which runs to the right."])
    return sheet
