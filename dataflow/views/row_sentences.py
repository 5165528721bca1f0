"""Sentences on the rows of a checkpoint: overtaken, stored, repeated by a restore, or stored in another mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from dataflow.clock import duration_text
from dataflow.contracts.checkpointing import Mode
from dataflow.events.kinds import Arrival, Unblocked
from dataflow.views.checkpoint_facts import BarrierTravel, CheckpointFacts
from dataflow.views.repeats import repeats_in_order
from dataflow.views.sentence import Sentence, Strong, Word, counted, joined, size_text

__all__ = ["is_aligned", "prediction_sentences", "repeats_sentence", "stored_sentences"]

_PERSISTED: Final = str(Mode.UNALIGNED_PERSISTED)
_OPERATORS: Final = 12
"""So many operators are listed where rows come twice."""


def is_aligned(facts: CheckpointFacts) -> bool:
    """Return whether barriers were aligned to the end: by the mode, or because no timeout let them overtake rows."""
    if facts.mode == Mode.ALIGNED_TIMEOUT.value:
        overtakes = any(b.how in (Arrival.OVERTAKING, Arrival.STARTED_HERE) for b in facts.barriers)
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
    ended = [name for name in _ended_inputs(facts) if links[name].overtakable]
    left = {name: facts.queued.get(name, 0) for name in _ended_inputs(facts)}
    queued = sum([left[name] for name in ended])
    ahead = sum(free) + queued
    fixed = sum([barrier.rows_ahead for barrier in sent]) + sum(left.values()) - ahead
    figures = {"rows_ahead": ahead, "ended_rows": queued, "fixed_rows": fixed}
    if not any(link.overtakable for link in facts.plan.links):
        text = f"{_PERSISTED} would change nothing: barriers cannot overtake rows on channels that keep their order."
        yield Sentence("prediction", (text,), figures)
        return
    if not facts.is_durable:
        if ahead:
            rows = Strong(counted(ahead, "row"))
            where = (
                " queued ahead of barriers." if not queued else " queued ahead of barriers, or of tasks that had ended."
            )
            yield Sentence("prediction", (f"{_PERSISTED} would not have waited for the ", rows, where), figures)
        return
    rows = Strong(f"about {counted(ahead, 'row')}" if ahead else "no rows")
    words: tuple[Word, ...] = (f"{_PERSISTED} would have stored ", rows)
    if facts.travelled is not None:
        figures["sooner"] = facts.travelled - facts.triggered
        sooner = Strong(f"at most {duration_text(figures['sooner'])}")
        words += (" and been durable ", sooner, " sooner, the time that barriers travelled")
    if any(name not in facts.queued for name in ended):
        words += ("; rows in channels whose writers had ended are not counted",)
    drained = _read_beside_barriers(facts, [name for name in ended if left[name]])
    if fixed or drained:
        words += ("; it would still have waited for ",)
    if fixed:
        words += (f"{counted(fixed, 'row')} in channels that keep their order",)
    if drained:
        words += (" and " if fixed else "", "the end of ", *joined(drained, what="input"))
    yield Sentence("prediction", (*words, "."), figures)


def _ended_inputs(facts: CheckpointFacts) -> Sequence[str]:
    """Return the channels that may have had rows and no barrier: the writer had ended, and the reader had not."""
    sent = {barrier.channel for barrier in facts.barriers if barrier.sent is not None}
    names = []
    for channel in facts.plan.channels:
        source, target = facts.tasks[channel.source].ended, facts.tasks[channel.target].ended
        is_read = target is None or target > facts.triggered
        if channel.name not in sent and source is not None and is_read:
            names.append(channel.name)
    return names


def _read_beside_barriers(facts: CheckpointFacts, ended: Sequence[str]) -> Sequence[str]:
    """Return those of the ``ended`` channels whose reader gets barriers from others: it waits for these ends, too."""
    readers = {barrier.target for barrier in facts.barriers if barrier.sent is not None}
    return [name for name in ended if facts.plan.channels_by_name[name].target in readers]


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
    rest = min(_rows_before_ends(facts), max(0, stored - passed))
    figures = {"stored": stored, "bytes": size, "between": stored - passed, "before_ends": rest}
    if not stored:
        yield Sentence("stored", ("It stored no rows in flight.",), figures)
        return
    words = ("It stored ", Strong(counted(stored, "row")), f" in flight ({size_text(size)})")
    again = "A restore puts them back, each once." if stored > 1 else "A restore puts it back once."
    if passed > stored:
        words += (f"; events that would explain the other {passed - stored:,} are missing",)
    else:
        words += (f": {_which(passed, rest, stored - passed - rest)}",)
    yield Sentence("stored", (*words, f". {again}"), figures)


def _which(passed: int, rest: int, between: int) -> str:
    """Return words on the rows that were stored: overtaken, left by writers that had ended, or taken after a snapshot.

    >>> _which(600, 0, 61), _which(1, 0, 0)
    ('these, and 61 that came between the snapshot of a task and its last barrier', 'the one that a barrier overtook')
    """
    came, left = "that came between the snapshot of a task and its last barrier", "in channels whose writers had ended"
    kinds = [f"{rows:,} {what}" for rows, what in ((rest, left), (between, came)) if rows]
    if not kinds:
        return "the one that a barrier overtook" if passed == 1 else "the ones that barriers overtook"
    if passed:
        kinds = ["this one" if passed == 1 else "these", *kinds]
    elif len(kinds) == 1:
        return f"the ones {left if rest else came}"
    return f"{', '.join(kinds[:-1])}, and {kinds[-1]}"


def _rows_before_ends(facts: CheckpointFacts) -> int:
    """Return how many stored rows came between a snapshot and the end of an input whose writer had ended.

    Of a task that still waited for a barrier after its snapshot, as many as were queued in such inputs.
    """
    by_task: dict[str, list[str]] = {}
    for name in _ended_inputs(facts):
        channel = facts.plan.channels_by_name[name]
        if channel.link.overtakable:
            by_task.setdefault(channel.target, []).append(name)
    arrivals: dict[str, list[BarrierTravel]] = {task: [] for task in by_task}
    for barrier in facts.barriers:
        if barrier.target in arrivals:
            arrivals[barrier.target].append(barrier)
    total = 0
    for task, names in by_task.items():
        each = facts.tasks[task]
        left = max(0, each.stored_rows - sum([barrier.overtaken for barrier in arrivals[task]]))
        taken = each.snapshot or 0
        waits = any(barrier.arrived is not None and barrier.arrived > taken for barrier in arrivals[task])
        total += min(left, sum([facts.queued.get(name, 0) for name in names])) if waits else left
    return total


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
