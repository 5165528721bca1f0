"""Sentences on the rows of a checkpoint: overtaken, stored, repeated by a restore, or stored in another mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Mode
from dataflow.events.kinds import Arrival, Unblocked
from dataflow.views.checkpoint_facts import CheckpointFacts
from dataflow.views.repeats import repeats_in_order
from dataflow.views.sentence import Sentence, Strong, Word, counted, size_text

__all__ = ["is_aligned", "prediction_sentences", "repeats_sentence", "stored_sentences"]

_PERSISTED: Final = str(Mode.UNALIGNED_PERSISTED)
_OPERATORS: Final = 12
"""So many operators are listed where rows come twice."""


def is_aligned(facts: CheckpointFacts) -> bool:
    """Return whether barriers were aligned to the end: by the mode, or because no timeout let them overtake rows."""
    if facts.mode == Mode.ALIGNED_TIMEOUT.value:
        overtakes = any(b.how is Arrival.OVERTAKING for b in facts.barriers)
        return not overtakes and not any(b.why is Unblocked.TIMEOUT for b in facts.blocked)
    return facts.mode == Mode.ALIGNED.value


def prediction_sentences(facts: CheckpointFacts) -> Iterator[Sentence]:
    """Return what ``unaligned-persisted`` would have stored instead of an aligned checkpoint, and how it would gain.

    A barrier overtakes only on channels where the order of rows does not matter. A savepoint is aligned in every mode.
    """
    if not is_aligned(facts) or facts.kind == "savepoint" or not facts.barriers:
        return
    links = {channel.name: channel.link for channel in facts.plan.channels}
    sent = [barrier for barrier in facts.barriers if barrier.sent is not None]
    free = [barrier.rows_ahead for barrier in sent if links[barrier.channel].overtakable]
    ahead, fixed = sum(free), sum([barrier.rows_ahead for barrier in sent]) - sum(free)
    figures = {"rows_ahead": ahead, "fixed_rows": fixed}
    if not any(link.overtakable for link in facts.plan.links):
        text = f"{_PERSISTED} would change nothing: barriers cannot overtake rows on channels that keep their order."
        yield Sentence("prediction", (text,), figures)
        return
    if not facts.is_durable:
        if ahead:
            rows = Strong(counted(ahead, "row"))
            words: tuple[Word, ...] = (
                f"{_PERSISTED} would not have waited for the ",
                rows,
                " queued ahead of barriers.",
            )
            yield Sentence("prediction", words, figures)
        return
    rows = Strong(f"about {counted(ahead, 'row')}" if ahead else "no rows")
    words = (f"{_PERSISTED} would have stored ", rows)
    if facts.travelled is not None:
        figures["sooner"] = facts.travelled - facts.triggered
        sooner = Strong(f"at most {duration_text(figures['sooner'])}")
        words += (" and been durable ", sooner, " sooner, the time that barriers travelled")
    if _is_partial(facts):
        words += ("; rows in channels whose writers had ended are not counted",)
    if fixed:
        words += (f"; it would still have waited for {counted(fixed, 'row')} in channels that keep their order",)
    yield Sentence("prediction", (*words, "."), figures)


def _is_partial(facts: CheckpointFacts) -> bool:
    """Return whether a channel with rows may have had no barrier: its writer had ended, and its reader had not."""
    sent = {barrier.channel for barrier in facts.barriers if barrier.sent is not None}
    for channel in facts.plan.channels:
        ended = facts.tasks[channel.target].ended
        if channel.name not in sent and channel.link.overtakable and (ended is None or ended > facts.triggered):
            return True
    return False


def stored_sentences(facts: CheckpointFacts) -> Iterator[Sentence]:
    """Return how many rows barriers overtook, and how many were stored in flight: where these differ, why."""
    if facts.mode not in (Mode.UNALIGNED_PERSISTED.value, Mode.ALIGNED_TIMEOUT.value) or is_aligned(facts):
        return
    overtaken = {barrier.channel: barrier.overtaken for barrier in facts.barriers if barrier.overtaken}
    passed = sum(overtaken.values())
    if not overtaken:
        yield Sentence("overtaken", ("Barriers overtook no rows.",), {"overtaken": 0})
    else:
        most = max(overtaken, key=lambda channel: overtaken[channel])
        figures = {"overtaken": passed, "most": overtaken[most]}
        words: tuple[Word, ...] = ("Barriers overtook ", Strong(counted(passed, "row")))
        words += (", ", Strong(f"{overtaken[most]:,}"), " of them in ") if len(overtaken) > 1 else (" in ",)
        yield Sentence("overtaken", (*words, Strong(most), "."), figures)
    if not facts.is_durable:
        return
    stored, size = facts.rows_in_flight, sum([task.stored_bytes for task in facts.tasks.values()])
    figures = {"stored": stored, "bytes": size, "between": stored - passed}
    if not stored:
        yield Sentence("stored", ("It stored no rows in flight.",), figures)
        return
    words = ("It stored ", Strong(counted(stored, "row")), f" in flight ({size_text(size)})")
    came = "came between the snapshot of a task and its last barrier"
    if stored == passed:
        words += (": the ones that barriers overtook",)
    elif not passed:
        words += (f", which {came}",)
    elif stored > passed:
        words += (f": these, and {stored - passed:,} that {came}",)
    else:
        words += (f"; events that would explain the other {passed - stored:,} are missing",)
    yield Sentence("stored", (*words, ". A restore puts them back, each once."), figures)


def repeats_sentence(facts: CheckpointFacts) -> Iterator[Sentence]:
    """Return how many rows a restore would deliver twice, at each operator. They are never added up."""
    if facts.mode != Mode.UNALIGNED.value or not facts.is_durable:
        return
    repeats: dict[str, int] = {}
    for task in facts.tasks.values():
        for operator, rows in task.repeats.items():
            repeats[operator] = repeats.get(operator, 0) + rows
    figures = {f"repeats at {operator}": rows for operator, rows in repeats.items() if rows}
    some = repeats_in_order(facts.plan, repeats)
    is_partial = facts.travelled is None
    if not some:
        unknown = "How many rows a restore would deliver twice is unknown."
        none = "A restore would deliver no row twice."
        yield Sentence("repeats", (unknown if is_partial else none,), figures)
        return
    listed = some[:_OPERATORS]
    words: list[Word] = ["A restore would deliver ", Strong(some[0].amount_of_rows), " twice at "]
    words.append(Strong(some[0].operator))
    for each in listed[1:]:
        words += [", and " if each is some[-1] else ", ", Strong(each.amount), " at ", Strong(each.operator)]
    if len(some) > len(listed):
        words.append(f", and some at {counted(len(some) - len(listed), 'other operator')}")
    if len(some) > 1:
        words.append("; each operator counts for itself, so these do not add up")
    if is_partial:
        words.append("; events are missing, so there may be more")
    yield Sentence("repeats", (*words, "."), figures)
