"""Choose the checkpoint to show, and say which checkpoints there are if that one is not there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from dataflow.errors import EventsError
from dataflow.events.kinds import Kind
from dataflow.views.select_events import event_rows

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["attempt_with", "choose", "require_begun", "takes_checkpoints", "why_chosen"]

_JOB_KINDS: Final = (Kind.TRIGGERED, Kind.DURABLE, Kind.FAILED)
_LISTED: Final = 12


def choose(events: Events) -> tuple[int, int]:
    """Return attempt and id of the checkpoint that tells most: the slowest in which every input still had a barrier.

    At the end of a run inputs end, and checkpoints wait for fewer barriers. If there is no durable checkpoint of which
    barriers arrived at all inputs, choose the slowest durable one; if none is durable, the slowest that failed; if none
    failed, the last one that was triggered.

    Raises: EventsError if there is none.
    """
    candidates, _ = _candidates(events)
    attempt, checkpoint, _ = max(reversed(candidates), key=lambda row: -1 if row[2] is None else row[2])
    return attempt, checkpoint


def why_chosen(events: Events) -> str:
    """Return in words why ``choose`` returns that checkpoint; "" if there is no other one.

    Raises: EventsError if there is none.
    """
    candidates, rule = _candidates(events)
    if events.checkpoints.num_rows == 1:
        return ""
    if candidates[0][2] is None:  # none has ended
        return f"the last of {len(candidates)} checkpoints, {rule}"
    which = "the only checkpoint" if len(candidates) == 1 else f"the slowest of {len(candidates):,} checkpoints"
    return f"{which} {rule}"


def _candidates(events: Events) -> tuple[Sequence[tuple[int, int, int | None]], str]:
    """Return the checkpoints to choose from, each with its attempt, its id and its duration, and what they have."""
    require_begun(events)
    if not takes_checkpoints(events):
        raise _no_checkpoint(events)
    columns = ("attempt", "checkpoint", "duration", "state", "barriers")
    table = events.checkpoints
    rows = list(zip(*[table[name].to_pylist() for name in columns], strict=True))
    if not rows:
        raise _no_checkpoint(events)
    durable = [row for row in rows if row[3] in ("durable", "committed")]
    whole = [row for row in durable if row[4] == len(events.plan.channels)]
    failed = [row for row in rows if row[3] == "failed"]
    groups = (
        (whole, "in which every input still had a barrier"),
        (durable, "that became durable"),
        (failed, "that failed"),
        (rows, "of which none has ended"),
    )
    chosen, rule = next((group, rule) for group, rule in groups if group)
    return [row[:3] for row in chosen], rule


def attempt_with(events: Events, checkpoint: int, attempt: int | None = None) -> int:
    """Return ``attempt`` if it has ``checkpoint``; if it is None, the last attempt that does.

    Raises: EventsError if there is none; the message says which checkpoints there are.
    """
    begun = {(found, event.checkpoint) for found in events.attempts for event in _begun(events, found)}
    if not begun or not takes_checkpoints(events):
        raise _no_checkpoint(events)
    attempts = [found for found, n in begun if n == checkpoint and attempt in (None, found)]
    if attempts:
        return max(attempts)
    ids = _listing({n for found, n in begun if attempt in (None, found)})
    where = "the events" if attempt is None else f"the events of attempt {attempt}"
    dropped = ""
    if events.missed:
        dropped = f"; {events.missed:,} events were dropped, the oldest first: record= keeps all in a file"
    raise EventsError(f"checkpoint {checkpoint} is not in {where}, which have {ids}{dropped}")


def _begun(events: Events, attempt: int) -> Iterable[Any]:
    return event_rows(events, _JOB_KINDS, attempt=attempt)


def takes_checkpoints(events: Events) -> bool:
    """Return whether the run has checkpoints to show.

    Without ``checkpoint=`` the last barrier, which ends a job, is in the events like a final checkpoint; nothing is
    stored. On Spark, micro-batches are shown also then.
    """
    return bool(events.recorded.mode) or not events.plan.is_measured


def require_begun(events: Events) -> None:
    """Raise EventsError if the job has not begun."""
    if not events.attempts:
        name = events.recorded.pipeline
        raise EventsError(f"the job of {name!r} has not begun, so there is nothing to show; try again when it runs")


def _no_checkpoint(events: Events) -> EventsError:
    require_begun(events)
    name = events.recorded.pipeline
    if not events.recorded.mode:
        return EventsError(f"{name!r} ran without checkpoints; run it with checkpoint=Checkpointing(..., every=...)")
    if events.missed:
        return EventsError(
            f"no checkpoint of {name!r} is in the events: {events.missed:,} were dropped; record= keeps all in a file"
        )
    return EventsError(f"no checkpoint of {name!r} was triggered; let it run longer, or shorten Checkpointing(every=)")


def _listing(ids: Iterable[int]) -> str:
    """Return ids as ranges.

    >>> _listing([5, 1, 2, 3, 6, 8]), _listing([])
    ('1 to 3, 5, 6, 8', 'none')
    """
    ranges: list[list[int]] = []
    for n in sorted(ids):
        if ranges and n == ranges[-1][1] + 1:
            ranges[-1][1] = n
        else:
            ranges.append([n, n])
    shown = [f"{a}" if a == b else f"{a}, {b}" if a + 1 == b else f"{a} to {b}" for a, b in ranges]
    if len(shown) > _LISTED:
        shown = [*shown[: _LISTED // 2], "...", *shown[-_LISTED // 2 :]]
    return ", ".join(shown) or "none"
