"""Sentences on how barriers were delayed, and what the tasks that held them up did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, assert_never

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Mode
from dataflow.views.causes import BarrierDelay, Causes, DelayPlace
from dataflow.views.checkpoint_facts import BarrierTravel, CheckpointFacts
from dataflow.views.sentence import Sentence, Strong, Word, counted, joined, percent
from dataflow.views.work_spans import Activity

__all__ = ["Figures", "Told", "cause_sentences", "is_noise"]

_WORTH_SAYING: Final = 0.15
"""The part of the whole delay from which a second and a third cause are told, too."""
_MOST_CAUSES: Final = 3
_LEAST_SHARE: Final = 0.1
_SHORT: Final = 1_000
"""Microseconds of a delay that is not worth saying beside a longer part of the checkpoint."""
_WORKED: Final = (DelayPlace.QUEUE, DelayPlace.TASK, DelayPlace.ENDED_INPUT, DelayPlace.SOURCE)
"""Where it matters what the task did meanwhile."""

Figures = dict[str, int]
Told = set[tuple[DelayPlace, str, int]]
"""The keys of delays."""


def main_delay(delays: Sequence[BarrierDelay]) -> BarrierDelay | None:
    """Return the longest of the delays; of equal ones the one nearest to the source."""
    return max(reversed(delays), key=lambda delay: delay.duration, default=None)


def is_noise(facts: CheckpointFacts, duration: int) -> bool:
    """Return whether a delay does not matter: less than a hundredth of the checkpoint, or 1 ms beside a longer part."""
    if duration * 100 < facts.until - facts.triggered:
        return True
    times = [facts.triggered, facts.travelled, facts.written, facts.ended]
    travel, *others = [0 if a is None or b is None else b - a for a, b in pairwise(times)]
    return duration < _SHORT and travel < max(others)


def cause_sentences(
    causes: Causes, delays: Sequence[BarrierDelay], begin: Sequence[Word], it: str, told: Told
) -> Iterator[Sentence]:
    """Return a sentence on the longest of ``delays``, which ``begin`` opens, and on others that are worth saying.

    Args:
        causes: the causes of the checkpoint.
        delays: a chain, as ``Causes.delays`` returns it.
        begin: words before the first sentence, up to "because" or a colon.
        it: what the first sentence calls the barrier.
        told: keys of the delays that were told already, which are not told again; those told now are added.
    """
    main = main_delay(delays)
    if main is None:
        return
    whole = sum([delay.duration for delay in delays])
    is_spread = main.duration < _WORTH_SAYING * whole
    worth = [d for d in delays if d is main or d.duration >= max(1, _WORTH_SAYING * whole)]
    most = sorted(worth, key=lambda delay: (delay is not main, -delay.duration))[:_MOST_CAUSES]
    new = [delay for delay in most if delay.key not in told and not is_noise(causes.facts, delay.duration)]
    if not new:
        return
    first, *others = new
    told |= {delay.key for delay in new}
    if first is not main:
        begin = (*begin[:-1], _also(begin[-1]))
    elif is_spread:
        begin = (*begin, f"{it} passed {counted(len(delays), 'place')} that each took some time; the longest: ")
    yield _sentence(causes, first, begin, "it" if first is main and is_spread else it)
    before = first
    for delay in sorted(others, key=lambda delay: delay.begin):
        when = "Before that, " if delay.end <= before.begin else "After that, "
        yield _sentence(causes, delay, (when,), "it")
        before = delay


def _also(begin: Word) -> Word:
    """Return the last words before a cause that is not the main one, which was told already."""
    return begin.replace("because ", "also because ") if isinstance(begin, str) else begin


def _sentence(causes: Causes, delay: BarrierDelay, begin: Sequence[Word], it: str) -> Sentence:
    figures: Figures = {"delay": delay.duration}
    words = (*begin, *_delay_words(causes, delay, figures, it), *_meanwhile(causes, delay, figures), ".")
    return Sentence("cause", words, figures)


def _delay_words(causes: Causes, delay: BarrierDelay, figures: Figures, it: str) -> Sequence[Word]:
    """Return the words on one delay of the barrier ``it``."""
    task, time = Strong(delay.task), Strong(duration_text(delay.duration))
    match delay.place:
        case DelayPlace.QUEUE:
            assert delay.barrier is not None, f"{delay} has no barrier"
            channel, ahead = Strong(delay.barrier.channel), _ahead(causes, delay.barrier, figures)
            if delay.barrier.arrived is None:
                return [f"{it} was still in ", channel, ", ", time, " after it was sent", *ahead]
            return [f"{it} spent ", time, " in ", channel, *ahead]
        case DelayPlace.TASK:
            facts = causes.facts.tasks[delay.task]
            if facts.snapshot is not None and facts.copy and delay.begin <= facts.snapshot <= delay.end:
                figures["copy"] = facts.copy
                copied: list[Word] = [", of which the copy of its state took ", Strong(duration_text(facts.copy))]
                return [task, " took ", time, " to complete its snapshot", *copied]
            until = [", until it saw between two steps that the alignment had timed out"]
            return [task, f" held {it} for ", time, *(until if causes.times_out(delay) else [])]
        case DelayPlace.ENDED_INPUT:
            return _ended_words(causes, delay, figures)
        case DelayPlace.SOURCE:
            return [*_without_barrier(causes, delay.task, delay.end), " ", time, " after the trigger"]
        case DelayPlace.STARTED_HERE:
            started: list[Word] = [", so the checkpoint started there, ", time, " after the trigger"]
            if causes.facts.mode == Mode.ALIGNED_TIMEOUT.value:
                started.append(", when its alignment had timed out")
            return [f"no task sent {it}: all tasks that write to ", task, " had ended", *started]
        case DelayPlace.UNKNOWN:
            return [f"{it} reached ", task, " ", time, " after the trigger; the event of its sending is missing"]
        case DelayPlace.ROUND:
            return [f"{it} came round to ", task, " again, ", time, " after the trigger"]
        case _:
            assert_never(delay.place)


def _without_barrier(causes: Causes, task: str, at: int) -> Sequence[Word]:
    """Return the words on the snapshot of a task that got no barrier, up to how late it was."""
    facts, name = causes.facts.tasks[task], Strong(task)
    took = "took its snapshot only" if facts.snapshot is not None else "had not taken its snapshot"
    if not causes.has_inputs(task):
        return ["the source ", name, f" {took}"]
    if facts.ended is not None and facts.ended <= causes.facts.triggered:
        return [name, f", which had ended, {took}"]
    if causes.has_ended_inputs(task, at):
        rows = _queued(causes, causes.ended_inputs(task, at))
        if rows:
            return [name, ", which still had ", Strong(rows), f" to read of tasks that had ended, {took}"]
        return [name, f", whose inputs had ended but were not read to the end, {took}"]
    return [name, f", which got no barrier, {took}"]


def _ended_words(causes: Causes, delay: BarrierDelay, figures: Figures) -> Sequence[Word]:
    """Return the words on a task that read inputs without writers to their ends."""
    figures["ended_inputs"] = len(delay.ended)
    rows, is_one = _queued(causes, delay.ended), len(delay.ended) == 1
    which: list[Word] = [*joined(delay.ended, what="input"), " to its end" if is_one else " to their ends"]
    if rows:
        which += [" (", Strong(rows), ")"]
    why = "its writer had ended and sent no barrier" if is_one else "their writers had ended and sent no barriers"
    task, time = Strong(delay.task), Strong(duration_text(delay.duration))
    if causes.facts.tasks[delay.task].complete is None:
        return [task, " had not read ", *which, " after ", time, f", and {why}"]
    return [task, " took ", time, " to read ", *which, f", as {why}"]


def _queued(causes: Causes, channels: Sequence[str]) -> str:
    """Return how many rows were queued in some channels, "" if that is not known of each."""
    queued = [causes.facts.queued.get(channel) for channel in channels]
    known = [rows for rows in queued if rows is not None]
    return counted(sum(known), "row") if known and len(known) == len(queued) and sum(known) else ""


def _ahead(causes: Causes, barrier: BarrierTravel, figures: Figures) -> Sequence[Word]:
    """Return the words on the rows that a barrier waited behind, or overtook."""
    rows = figures["rows_ahead"] = barrier.rows_ahead
    if barrier.overtaken:
        figures["overtaken"] = barrier.overtaken
        words: list[Word] = [", where it overtook ", Strong(counted(barrier.overtaken, "row"))]
        return words if causes.facts.mode == Mode.UNALIGNED_PERSISTED.value else [*words, " after the timeout"]
    return [", behind ", Strong(counted(rows, "row"))] if rows else [", with no row ahead of it"]


def _meanwhile(causes: Causes, delay: BarrierDelay, figures: Figures) -> Sequence[Word]:
    """Return the words on what the task did meanwhile. One that had ended did nothing; a long copy is told already."""
    ended = causes.facts.tasks[delay.task].ended
    if 2 * figures.get("copy", 0) >= delay.duration:
        return ()
    if delay.place in _WORKED and (ended is None or ended > delay.begin):
        return ["; ", *_activity_words(causes, delay, figures)]
    return ()


def _activity_words(causes: Causes, delay: BarrierDelay, figures: Figures) -> Sequence[Word]:
    """Return the words on what a task did meanwhile; if it had no room downstream, also on what took no rows of it."""
    task, begin, end = delay.task, delay.begin, delay.end
    did = causes.did(delay)
    if did is None:
        return ["what ", Strong(task), " did in that time is unknown: samples are missing, or too far apart"]
    shares = _shares(did)
    has_no_room = shares[0][0] == "back_pressured"
    if has_no_room:  # its cause follows
        shares = [*shares[1:], shares[0]]
    words: list[Word] = [Strong(task)]
    for at, (name, share, verb, what) in enumerate(shares):
        figures[name] = percent(share)
        of_it = "" if at else " of that time"
        words += [", and" if at else "", verb, Strong(f"{what} {percent(share)}%"), of_it]
    if not has_no_room:
        return words
    path = causes.downstream(task, begin, end)
    if not path:
        return words
    culprit, its = path[-1]
    words += [", because of ", Strong(culprit)]
    if len(path) > 1:
        words.append(f" (through {', '.join([name for name, _ in path[:-1]])})")
    if its is None:
        return [*words, ", whose samples are missing, or too far apart"]
    name, share, verb, what = _shares(its)[0]
    figures[f"culprit_{name}"] = percent(share)
    return [*words, ", which", verb, Strong(f"{what} {percent(share)}%"), " of it"]


def _shares(did: Activity) -> Sequence[tuple[str, float, str, str]]:
    """Return the shares worth saying, the largest first, each with its name, its verb, and what the task did."""
    every = [
        ("busy", did.busy, " was ", "busy"),
        ("back_pressured", did.back_pressured, " had ", "no room downstream"),
        ("blocked", did.blocked, " had ", "only blocked inputs"),
        ("waiting", did.waiting, " ", "waited for input"),
        ("ready", did.ready, " ", "waited for a thread"),
    ]
    every.sort(key=lambda share: -share[1])
    return [every[0], *[share for share in every[1:] if share[1] >= _LEAST_SHARE]][:3]
