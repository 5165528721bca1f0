"""Timelines: pictures of one checkpoint or of a whole run, with the sentences that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from operator import index
from os import PathLike
from typing import TYPE_CHECKING

from dataflow.drawing import printable
from dataflow.errors import ConfigurationError, EventsError
from dataflow.views.choose_checkpoint import choose, why_chosen
from dataflow.views.documents import notebook_html, save
from dataflow.views.find_facts import facts_of
from dataflow.views.timeline.page import timeline_body, timeline_page
from dataflow.views.timeline.run_facts import run_facts_of
from dataflow.views.timeline.section import TimelineSection, draw_sections, section_of

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["Timeline", "compare_timelines", "timeline_of"]


class Timeline:
    """A picture of one checkpoint, of a whole run, or of several runs below each other, with sentences.

    ``RunResult.timeline``, ``Events.timeline`` and `compare_timelines` return it; a notebook shows it. Time runs to the
    right. Each block is a task, with a lane for each of its inputs: a line is a barrier on its way from the task that
    sent it to the input where it arrived, so its slope is the delay; a solid bar is an input that was blocked. What a
    task did is the height of the strip in its lane, and what it did most while barriers travelled is written at the
    right.

    In a large job subtasks share a lane, which shows the slowest; ``html()`` has the others, folded.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("counts") as p:
    ...     rows = p.source(op.from_arrow(pa.table({"k": [1, 2, 1]})), name="rows")
    ...     rows.key_by("k").agg(op.count().alias("n"), name="per-k").sink(op.collect(), name="out")
    >>> result = p.run(flow.SimulatedRunner(), checkpoint=flow.Checkpointing(flow.MemoryStore()))
    >>> timeline = result.timeline()
    >>> timeline.title, timeline.svg().startswith("<svg"), len(timeline.sentences) > 0
    ("Checkpoint 1 of 'counts'", True, True)
    """

    def __init__(self, title: str, sections: Sequence[TimelineSection]) -> None:
        self._title, self._sections = title, tuple(sections)

    @property
    def title(self) -> str:
        """The title: what is shown of which pipeline."""
        return self._title

    @property
    def heading(self) -> str:
        """The title, and why this checkpoint is shown unless it was asked for; each character is printed."""
        reasons = [f", {section.why}" for section in self._sections if section.why and not section.name]
        return printable(self._title + "".join(reasons))

    @property
    def sentences(self) -> tuple[str, ...]:
        """The sentences above the pictures, as plain text. Of several runs, each begins with the name of its run.

        A character that is not printed is shown as its escape.
        """
        return tuple([
            printable(f"{section.name}: {sentence.text}" if section.name else sentence.text)
            for section in self._sections
            for sentence in section.sentences
        ])  # fmt: skip

    def svg(self) -> str:
        """Return the picture with its sentences as an ``svg`` element, valid as a file or inside a page.

        It has a light and a dark scheme.
        """
        return draw_sections(self._title, self._sections).canvas.svg()

    def html(self) -> str:
        """Return a page of HTML: one file that requests nothing and has no script."""
        return timeline_page(self._title, self._sections)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the picture to a file, as the suffix of its name says: ``.svg`` or ``.html``.

        Args:
            path: the file, in a directory that exists. One that exists is replaced.

        Raises:
            ConfigurationError: the name ends in something else.
            StoreError: the file cannot be written. An existing one is unchanged.
        """
        save(path, {".svg": self.svg, ".html": self.html})

    def body(self, level: int = 2) -> str:
        """Return the part of ``html()`` below the title, for a page that has a heading and a style sheet of its own.

        Args:
            level: the level of the headings in it, 2 for ``h2``.
        """
        return timeline_body(self._sections, level)

    def _repr_html_(self) -> str:
        return notebook_html(f"<h3>{escape(printable(self._title))}</h3>\n{self.body(level=4)}\n")

    def __str__(self) -> str:
        return "\n".join([self.heading, *self.sentences])

    def __repr__(self) -> str:
        return f"Timeline({self._title!r})"


def timeline_of(events: Events, checkpoint: int | str | None = None) -> Timeline:
    """Return the timeline of one checkpoint, or of the whole run.

    Args:
        events: the events of a run.
        checkpoint: its id; None: the slowest one in which every input still had a barrier; ``"all"``: the whole run.

    Raises:
        EventsError: the checkpoint is not in the events, or there is none; the message says why.
        EventsDamaged: the events contradict the plan beside them.
        ConfigurationError: ``checkpoint`` is something else.
    """
    section = _section(events, checkpoint, "")
    return Timeline(f"{section.what} of {events.recorded.pipeline!r}", (section,))


def compare_timelines(runs: Mapping[str, Events], checkpoint: int | str | None = None) -> Timeline:
    """Return the timelines of several runs of one pipeline below each other, at one scale of time.

    Args:
        runs: for each run a name, such as its mode, and its events.
        checkpoint: as for ``Events.timeline``; None chooses the checkpoint of each run.

    Raises:
        ConfigurationError: there is no run, or the runs are of different pipelines.
        EventsError: a run does not have the checkpoint.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> def events(mode):
    ...     with flow.Pipeline("copy") as p:
    ...         p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
    ...     checkpoint = flow.Checkpointing(flow.MemoryStore(), mode=mode)
    ...     return p.run(flow.SimulatedRunner(), checkpoint=checkpoint).events
    >>> flow.compare_timelines({mode: events(mode) for mode in ("aligned", "unaligned")}).title
    "What one checkpoint does to 'copy'"
    >>> flow.compare_timelines({})
    Traceback (most recent call last):
    dataflow.errors.ConfigurationError: compare_timelines() needs at least one run: {"aligned": result.events, ...}
    """
    from dataflow.views.events import Events

    example = '{"aligned": result.events, ...}'
    if not isinstance(runs, Mapping):
        raise ConfigurationError(
            f"compare_timelines() expects a mapping from names to events, such as {example}, got {type(runs).__name__}"
        )
    if not runs:
        raise ConfigurationError(f"compare_timelines() needs at least one run: {example}")
    for name, events in runs.items():
        if not isinstance(name, str):
            raise ConfigurationError(
                f"compare_timelines(): the name of a run must be text, such as a mode; got {name!r}"
            )
        if not isinstance(events, Events):
            raise ConfigurationError(
                f"compare_timelines(): expected the events of run {name!r}, got {type(events).__name__}; "
                "result.events has the events of a run"
            )
    (first, expected), *others = runs.items()
    for name, events in others:
        _require_same(first, expected, name, events)
    sections = []
    for name, events in runs.items():
        try:
            sections.append(_section(events, checkpoint, name))
        except EventsError as error:
            raise type(error)(f"run {name!r}: {error}") from error
    what = "Whole runs" if checkpoint == "all" else "What one checkpoint does"
    joint = "of" if checkpoint == "all" else "to"
    return Timeline(f"{what} {joint} {expected.recorded.pipeline!r}", tuple(sections))


def _section(events: Events, checkpoint: int | str | None, name: str) -> TimelineSection:
    if isinstance(checkpoint, str) and checkpoint == "all":
        return section_of(run_facts_of(events), name)
    if checkpoint is None:
        attempt, chosen = choose(events)
        return section_of(facts_of(events, chosen, attempt), name, why_chosen(events))
    try:
        if isinstance(checkpoint, bool | str):
            raise TypeError
        chosen = index(checkpoint)
    except TypeError:
        raise ConfigurationError(f'checkpoint must be an id, "all" or None, got {checkpoint!r}') from None
    return section_of(facts_of(events, chosen), name)


def _require_same(first: str, expected: Events, name: str, events: Events) -> None:
    """Raise unless both runs are of one pipeline: its name, and names and kinds of its operators."""
    ours, theirs = expected.recorded, events.recorded
    if ours.pipeline != theirs.pipeline:
        raise ConfigurationError(
            f"cannot compare runs of different pipelines: {first!r} is of {ours.pipeline!r}, and {name!r} of "
            f"{theirs.pipeline!r}"
        )
    known = {(operator.name, operator.kind) for operator in ours.plan.operators}
    others = {(operator.name, operator.kind) for operator in theirs.plan.operators}
    if known != others:
        differing = ", ".join(sorted({repr(operator) for operator, _ in known ^ others})[:3])
        raise ConfigurationError(
            f"cannot compare runs {first!r} and {name!r} of {ours.pipeline!r}: their operators differ ({differing})"
        )
