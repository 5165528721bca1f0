"""Sentences on how barriers were delayed, and what the tasks that held them up did meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from dataflow.clock import duration_text
from dataflow.views.causes import Causes, Delay, Place
from dataflow.views.sentence import Sentence, Strong, Word, counted, percent
from dataflow.views.work_spans import Activity

__all__ = ["Figures", "cause_sentences", "main_delay"]

_WORTH_SAYING: Final = 0.15
"""The part of the whole delay from which a second and a third cause are told, too."""
_MOST_CAUSES: Final = 3
_LEAST_SHARE: Final = 0.1

Figures = dict[str, int]


def main_delay(delays: Sequence[Delay]) -> Delay | None:
    """Return the longest of the delays; of equal ones the one nearest to the source."""
    return max(reversed(delays), key=lambda delay: delay.duration, default=None)


def cause_sentences(causes: Causes, delays: Sequence[Delay], begin: Sequence[Word], it: str) -> Iterator[Sentence]:
    """Return a sentence on the longest of ``delays``, which ``begin`` opens, and on others that are worth saying.

    Args:
        causes: the causes of the checkpoint.
        delays: a chain, as ``Causes.delays`` returns it.
        begin: words before the first sentence, up to "because" or a colon.
        it: what the first sentence calls the barrier.
    """
    main = main_delay(delays)
    if main is None:
        return
    whole = sum([delay.duration for delay in delays])
    yield _sentence(causes, main, begin, it)
    worth = [d for d in delays if d is not main and d.duration >= max(1, _WORTH_SAYING * whole)]
    others = sorted(worth, key=lambda delay: -delay.duration)[: _MOST_CAUSES - 1]
    for delay in sorted(others, key=lambda delay: delay.begin):
        when = "Before that, " if delay.end <= main.begin else "After that, "
        yield _sentence(causes, delay, (when,), "it")


def _sentence(causes: Causes, delay: Delay, begin: Sequence[Word], it: str) -> Sentence:
    figures: Figures = {"delay": delay.duration}
    words = (*begin, *_delay_words(causes, delay, figures, it), *_meanwhile(causes, delay, figures), ".")
    return Sentence("cause", words, figures)


def _delay_words(causes: Causes, delay: Delay, figures: Figures, it: str) -> Sequence[Word]:
    """Return the words on one delay of the barrier ``it``."""
    task, time = Strong(delay.task), Strong(duration_text(delay.duration))
    match delay.place:
        case Place.QUEUE:
            assert delay.barrier is not None, f"{delay} has no barrier"
            rows = figures["rows_ahead"] = delay.barrier.rows_ahead
            behind: list[Word] = [", behind ", Strong(counted(rows, "row"))] if rows else [", with no row ahead of it"]
            return [f"{it} spent ", time, " in ", Strong(delay.barrier.channel), *behind]
        case Place.TASK:
            facts = causes.facts.tasks[delay.task]
            if facts.snapshot is not None and facts.copy and delay.begin <= facts.snapshot <= delay.end:
                figures["copy"] = facts.copy
                copied: list[Word] = [", ", Strong(duration_text(facts.copy)), " of it to copy its state"]
                return [task, " took ", time, " to complete its snapshot then", *copied]
            return [task, f" held {it} for ", time]
        case Place.SOURCE if causes.has_inputs(delay.task):
            return [task, " took part ", time, " after the trigger, as its inputs had ended"]
        case Place.SOURCE:
            return ["the source ", task, " took its snapshot only ", time, " after the trigger"]
        case Place.STARTED_HERE:
            started: list[Word] = [", so the checkpoint started there, ", time, " after the trigger"]
            return [f"no task sent {it}: all that write to ", task, " had ended", *started]
        case Place.UNKNOWN:
            return [f"{it} reached ", task, " ", time, " after the trigger; the event of its sending is missing"]
        case Place.ROUND:
            return [f"{it} came round to ", task, " again, ", time, " after the trigger"]
        case _:
            assert_never(delay.place)


def _meanwhile(causes: Causes, delay: Delay, figures: Figures) -> Sequence[Word]:
    is_told = delay.place in (Place.QUEUE, Place.TASK) or (
        delay.place is Place.SOURCE and not causes.has_inputs(delay.task)
    )
    return ["; ", *_activity_words(causes, delay.task, delay.begin, delay.end, figures)] if is_told else ()


def _activity_words(causes: Causes, task: str, begin: int, end: int, figures: Figures) -> Sequence[Word]:
    """Return the words on what ``task`` did, and, if it had no room downstream, on what took none of its rows."""
    did = causes.activity(task, begin, end)
    if did is None:
        return ["what ", Strong(task), " did in that time is unknown, because samples are missing"]
    shares = _shares(did)
    words: list[Word] = [Strong(task)]
    for at, (name, share, verb, what) in enumerate(shares):
        figures[name] = percent(share)
        of_it = "" if at else " of that time"
        words += [", and" if at else "", verb, Strong(f"{what} {percent(share)}%"), of_it]
    if shares[0][0] != "back_pressured":
        return words
    path = causes.downstream(task, begin, end)
    if not path:
        return words
    culprit, its = path[-1]
    words += [", because of ", Strong(culprit)]
    if len(path) > 1:
        words.append(f" (through {', '.join([name for name, _ in path[:-1]])})")
    if its is None:
        return [*words, ", of which samples are missing"]
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
