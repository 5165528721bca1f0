"""Sentences on a whole run: its checkpoints, and the channel that was blocked longest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import mode_text
from dataflow.events.kinds import Kind
from dataflow.views.checkpoint_table import blocked_inputs, slowest
from dataflow.views.select_events import event_rows
from dataflow.views.sentence import Sentence, Strong, Word, counted

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["run_sentences"]


def run_sentences(events: Events) -> tuple[Sentence, ...]:
    """Return what to say about all checkpoints of a run.

    Topics: ``checkpoints``, ``blocked``, ``starts``, ``missing``, ``not measured``; each only where it applies.
    """
    return tuple(_sentences(events))


def _sentences(events: Events) -> Iterator[Sentence]:
    recorded = events.recorded
    if not recorded.mode:
        yield Sentence("checkpoints", ("The job took no checkpoints.",))
        return
    states = Counter(events.checkpoints["state"].to_pylist())
    durable, failed = states["durable"] + states["committed"], states["failed"]
    verb = "was" if durable == 1 else "were"
    words: list[Word] = [Strong(counted(durable, "checkpoint")), f" {verb} durable"]
    words.append(f", in mode {mode_text(recorded.mode, recorded.guarantee)}")
    if failed:
        words += ["; ", Strong(f"{failed:,} failed")]
    figures = {"durable": durable, "failed": failed}
    for slow in slowest(events, 1):
        figures["slowest"] = slow.duration
        words += ["; the slowest, checkpoint ", Strong(f"{slow.checkpoint}"), ", took "]
        words.append(Strong(duration_text(slow.duration)))
    yield Sentence("checkpoints", (*words, "."), figures)
    yield from _blocked(events)
    starts = len(list(event_rows(events, [Kind.STARTED])))
    if starts > 1:
        yield Sentence("starts", (f"The job was started {starts:,} times.",), {"starts": starts})
    if events.missed:
        yield Sentence("missing", (f"{counted(events.missed, 'event')} of the run are missing.",))


def _blocked(events: Events) -> Iterator[Sentence]:
    if not events.plan.is_measured:
        yield Sentence("not measured", ("Barriers and blocked inputs are not measured on Spark.",))
        return
    for blocked in blocked_inputs(events, 1):
        words: list[Word] = [
            Strong(blocked.channel),
            " was blocked longest: for ",
            Strong(duration_text(blocked.blocked)),
        ]
        if blocked.longest < blocked.blocked:
            words.append(f" in all, {duration_text(blocked.longest)} of it in checkpoint {blocked.checkpoint}")
        else:
            words.append(f" in checkpoint {blocked.checkpoint}")
        if blocked.awaited is not None:
            words += [", where it waited for the barrier of ", Strong(blocked.awaited)]
        yield Sentence("blocked", (*words, "."), {"blocked": blocked.blocked, "longest": blocked.longest})
