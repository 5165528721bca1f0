"""Sentences that explain one checkpoint, from its facts: what took longest, who was blocked by what, and what if.

Each figure is in the events, or is a sum or a difference of such figures. Where events are missing, a sentence says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import mode_text
from dataflow.events.kinds import Unblocked
from dataflow.views.cause_sentences import Figures, Told, cause_sentences, is_noise
from dataflow.views.causes import Causes
from dataflow.views.checkpoint_facts import BlockedInput, CheckpointFacts
from dataflow.views.row_sentences import prediction_sentences, repeats_sentence, stored_sentences
from dataflow.views.sentence import Sentence, Strong, Word, counted, joined, size_text

__all__ = ["sentences_of"]

_EXPLAINED = 0.9
"""The part of a wait for the writer that is explained by other parts, or else is said not to be."""


def sentences_of(facts: CheckpointFacts) -> tuple[Sentence, ...]:
    """Return what to say about a checkpoint, the most important first.

    Topics, in this order, each only where it applies: ``parts`` (or ``failed``, ``open``), ``declined``, ``blocked``,
    ``cause``, ``all blocked``, ``overtaken``, ``stored``, ``prediction``, ``repeats``, ``missing``, ``not measured``.
    """
    return tuple(_sentences(facts))


def _sentences(facts: CheckpointFacts) -> Iterator[Sentence]:
    causes = Causes(facts)
    if not facts.plan.is_measured:
        yield from _not_measured(facts)
        return
    if facts.is_restored:  # events of its end are missing, so nothing else is known
        yield from _unfinished(causes)
        return
    if facts.is_durable:
        yield _parts(facts)
    else:
        yield from _unfinished(causes)
    yield from _blocked(causes)
    yield from _why(causes)
    yield from _all_blocked(causes)
    yield from stored_sentences(facts)
    yield from prediction_sentences(facts)
    yield from repeats_sentence(facts)
    yield from _missing(facts)


def _name(facts: CheckpointFacts) -> str:
    """Return the checkpoint and its mode, with the guarantee."""
    what = {"savepoint": "savepoint", "final": "the final checkpoint"}.get(facts.kind, "checkpoint")
    return f"{what} {facts.checkpoint}"


def _mode(facts: CheckpointFacts) -> str:
    if not facts.mode:  # only the last checkpoint is taken, to commit what sinks wrote
        return f"of a run without checkpoint= ({facts.guarantee})"
    return f"in mode {mode_text(facts.mode, facts.guarantee)}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _took(facts: CheckpointFacts) -> int:
    return facts.until - facts.triggered


def _parts(facts: CheckpointFacts) -> Sentence:
    """Return the sentence on the longest of the three parts of a durable checkpoint."""
    whole, name = _took(facts), f"{_name(facts)} was durable, {_mode(facts)}"
    if facts.travelled is None or facts.written is None:
        first = (f"{_capital(_name(facts))}, {_mode(facts)}, was durable after ", Strong(duration_text(whole)))
        return Sentence("parts", (*first, "; how that time passed is unknown, because events are missing."))
    travel, write = facts.travelled - facts.triggered, facts.written - facts.travelled
    manifest = facts.until - facts.written
    figures = {"duration": whole, "travel": travel, "write": write, "manifest": manifest}
    until: tuple[Word, ...] = (" of the ", Strong(duration_text(whole)), f" until {name}")
    times = {part: duration_text(length) for part, length in figures.items()}
    for part in ("travel", "write", "manifest"):
        if times[part] == times["duration"]:
            times[part] = "nearly all"
    longest = max(travel, write, manifest)
    if longest == travel:
        words: tuple[Word, ...] = ("Barriers travelled for ", Strong(times["travel"]), *until)
        after = f"; after that, state was written for {times['write']} and the manifest for {times['manifest']}."
        return Sentence("parts", (*words, after), figures)
    if longest == write:
        words = ("State was written for ", Strong(times["write"]), *until, ": ", *_slow_part(facts, figures))
        after = f". Before that, barriers travelled for {times['travel']}; the manifest took {times['manifest']}."
        return Sentence("parts", (*words, after), figures)
    words = ("The manifest took ", Strong(times["manifest"]), *until)
    after = f"; before that, barriers travelled for {times['travel']} and state was written for {times['write']}."
    return Sentence("parts", (*words, after), figures)


def _slow_part(facts: CheckpointFacts, figures: Figures) -> Sequence[Word]:
    """Return the words on the part that was written last: whether it waited for the writer, or was long written."""
    task = next(task for task in facts.tasks.values() if task.part_end == facts.written)
    assert task.part_begin is not None, f"{task} ended its part without beginning it"
    assert task.part_end is not None, f"{task} is not written"
    wait = max(0, task.part_begin - (task.part_begin if task.complete is None else task.complete))
    write = task.part_end - task.part_begin
    figures |= {"wait_for_writer": wait, "part_write": write, "part_bytes": task.part_bytes}
    part: list[Word] = ["the part of ", Strong(task.task), f" ({size_text(task.part_bytes)})"]
    if wait <= write:
        waited: list[Word] = [f", after it had waited {duration_text(wait)} for the writer"] if wait else []
        return [*part, " took ", Strong(duration_text(write)), " to write", *waited]
    waited = [" waited ", Strong(duration_text(wait)), " for the writer"]
    overlaps = {
        other.task: min(other.part_end, task.part_begin) - max(other.part_begin, task.complete or 0)
        for other in facts.tasks.values()
        if other.part_begin is not None and other.part_end is not None and other.task != task.task
    }
    overlaps = {name: time for name, time in overlaps.items() if time > 0}
    longest, together = max(overlaps, key=lambda name: overlaps[name], default=None), sum(overlaps.values())
    if longest is not None:
        figures |= {"other_part": overlaps[longest], "other_parts": together}
        which = f"the part of {longest}" if len(overlaps) == 1 else counted(len(overlaps), "other part")
        waited += [f", which wrote {which} for {duration_text(together)} of that time"]
    if together < wait * _EXPLAINED:
        waited += [", and was not writing for the rest" if together else ", which wrote no other part"]
    return [*part, *waited, f"; it took {duration_text(write)} to write"]


def _unfinished(causes: Causes) -> Iterator[Sentence]:
    """Return sentences on a checkpoint that failed, or has not ended: where it stopped."""
    facts = causes.facts
    time = Strong(duration_text(_took(facts)))
    figures = {"duration": _took(facts), "incomplete": len(causes.incomplete), "unwritten": len(causes.unwritten)}
    name = f"{_capital(_name(facts))}, {_mode(facts)},"
    if facts.is_restored:
        words: tuple[Word, ...] = (
            f"{name} was durable, because a later attempt was restored from it; its own ended ",
            time,
        )
        yield Sentence("open", (*words, " after the trigger, before it recorded this."), figures)
        return
    if facts.is_abandoned:
        yield Sentence("open", (f"{name} was abandoned: the attempt ended ", time, " after its trigger."), figures)
    elif facts.failure is None:
        words = (f"{name} was still under way at the last event, ", time, " after its trigger.")
        yield Sentence("open", words, figures)
    else:
        reason = facts.failure.removeprefix(f"checkpoint {facts.checkpoint}: ").rstrip(".")
        yield Sentence("failed", (f"{name} failed after ", time, *([f": {reason}"] if reason else []), "."), figures)
    declined: dict[str, list[str]] = {}
    for task in facts.tasks.values():
        if task.declined is not None:
            declined.setdefault(task.declined, []).append(task.task)
    for reason, tasks in declined.items():
        words = (*joined(tasks, what="task"), f" declined it: {reason.rstrip('.')}.")
        yield Sentence("declined", words, {"tasks": len(tasks)})
    if causes.incomplete:
        words = (
            "Not complete: ",
            *joined(causes.incomplete, what="task"),
            "; barriers or snapshots were missing there.",
        )
        yield Sentence("stopped", words, {"incomplete": len(causes.incomplete)})
    elif causes.unwritten:
        words = ("All tasks were complete. Not written: the part of ", *joined(causes.unwritten, what="task"), ".")
        yield Sentence("stopped", words, {"unwritten": len(causes.unwritten)})
    elif any(task.part_end is not None for task in facts.tasks.values()):
        yield Sentence("stopped", ("The parts of all tasks were written; the manifest was not.",))


def _blocked(causes: Causes) -> Iterator[Sentence]:
    blocked = causes.longest_blocked
    if blocked is None:
        if causes.facts.barriers:
            yield Sentence("blocked", ("No input was blocked.",), {"blocked": 0})
        return
    time = causes.blocked_time(blocked)
    words: tuple[Word, ...] = (Strong(blocked.channel), " was blocked for ", Strong(duration_text(time)))
    yield Sentence("blocked", (*words, *_reason(causes, blocked)), {"blocked": time})


def _reason(causes: Causes, blocked: BlockedInput) -> Sequence[Word]:
    """Return the words on what a blocked input waited for, and what ended the wait."""
    facts, task = causes.facts, blocked.task
    had: list[Word] = [": ", Strong(task), f" had barrier {facts.checkpoint} and waited for "]
    if blocked.awaited is not None:
        return [*had, "the one of ", Strong(blocked.awaited), "."]
    at = blocked.ended_by(facts.until)
    missing, ended = causes.missing(task, at), causes.ended_inputs(task, at)
    channels: Sequence[Word] = ["the one of ", *joined(missing, what="input")] if missing else ["other barriers"]
    rest: Sequence[Word] = ["the end of ", *joined(ended, what="input"), _whose_writers(len(ended))]
    if ended and not missing:
        channels = rest
    match blocked.why:
        case Unblocked.TIMEOUT:
            return [", until the timeout", *had, *channels, "; then barriers were allowed to overtake rows."]
        case Unblocked.ABORTED:
            return [*had, *channels, ", until the checkpoint was aborted."]
        case Unblocked.ENDED:
            if not ended:
                return [*had, "the barriers of its other inputs, of which the last one ended."]
            return [*had, *rest, "."]
        case Unblocked.COMPLETE | None if blocked.end is not None:
            return [*had, "others; the event of the last one is missing."]
        case _:
            still = ", until the attempt ended" if facts.is_abandoned else " and still was"
            return [still, *had, *channels, "."]


def _whose_writers(inputs: int) -> str:
    return ", whose writer had ended" if inputs == 1 else ", whose writers had ended"


def _why(causes: Causes) -> Iterator[Sentence]:
    """Return sentences on why barriers came late: of the longest blocked input, and of the task that was last."""
    facts, blocked, chain, task = causes.facts, causes.longest_blocked, causes.chain, causes.last_complete
    told: Told = set()
    explains_blocked = blocked is not None and causes.is_explained(blocked)
    if blocked is not None and explains_blocked and not is_noise(facts, causes.blocked_time(blocked)):
        yield from cause_sentences(causes, chain, ("It was late because ",), "it", told)
    if task is None or facts.travelled is None:
        yield from cause_sentences(causes, causes.stopped, ("Where it stopped: ",), "the barrier", told)
        return
    last = causes.delays(task, facts.travelled)
    if facts.travelled > facts.triggered:
        travel = Strong(duration_text(facts.travelled - facts.triggered))
        begin: Sequence[Word] = (Strong(task), " was complete last, ", travel, " after the trigger, because ")
        if len(last) == 1:  # it had no barrier
            begin = ("The last task to be complete: ",)
        yield from cause_sentences(causes, last, begin, "its barrier", told)


def _all_blocked(causes: Causes) -> Iterator[Sentence]:
    times = [time for blocked in causes.facts.blocked if (time := causes.blocked_time(blocked))]
    if len(times) > 1 and not is_noise(causes.facts, max(times)):
        words = (f"In all, {len(times):,} inputs were blocked, together for ", Strong(duration_text(sum(times))), ".")
        yield Sentence("all blocked", words, {"inputs": len(times), "blocked": sum(times)})


def _missing(facts: CheckpointFacts) -> Iterator[Sentence]:
    """Return a sentence if events of a durable checkpoint are missing."""
    parts_missing = facts.is_durable and (facts.travelled is None or facts.written is None)
    ways = [barrier for barrier in facts.barriers if facts.is_durable and barrier.arrived is None]
    if parts_missing or ways:
        dropped = f", because {counted(facts.missed, 'event')} were dropped" if facts.missed > 1 else ""
        yield Sentence("missing", (f"Events of this checkpoint are missing{dropped}.",), {"missed": facts.missed})


def _not_measured(facts: CheckpointFacts) -> Iterator[Sentence]:
    time, figures = Strong(duration_text(_took(facts))), {"duration": _took(facts)}
    how = "was durable after " if facts.is_durable else "failed after " if facts.failure is not None else "has run for "
    why = f": {facts.failure.rstrip('.')}" if facts.failure else ""
    yield Sentence("parts", (f"{_capital(_name(facts))}, {_mode(facts)}, {how}", time, f"{why}."), figures)
    text = "Barriers, blocked inputs, rows in flight and the parts of tasks are not measured on Spark."
    yield Sentence("not measured", (text,))
