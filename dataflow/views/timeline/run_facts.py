"""What happened in a whole run, from its events: attempts, checkpoints, barriers, blocked inputs, and work.

All times here are microseconds on the axis of the picture, which begins with the first attempt. Attempts are apart as
their wall clocks say; but a gap between two may be hours, so a part of it may be left out (``AttemptSpan.left_out``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dataflow.events.kinds import Kind
from dataflow.events.plan_shape import PlanShape
from dataflow.views.attempt_mode import AttemptMode, mode_of
from dataflow.views.checkpoint_facts import BarrierTravel, BlockedInput, WorkSpan
from dataflow.views.choose_checkpoint import require_begun, takes_checkpoints
from dataflow.views.find_facts import barriers_of, blocked_of
from dataflow.views.select_events import EventRow, event_rows, numbers, select
from dataflow.views.work_spans import work_spans

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["AttemptSpan", "CheckpointSpan", "RunFacts", "run_facts_of"]

_PARTS: Final = ["attempt", "checkpoint", "travel", "write"]
_KINDS: Final = (
    Kind.TRIGGERED, Kind.DURABLE, Kind.FAILED, Kind.SENT, Kind.ARRIVED, Kind.BLOCKED, Kind.UNBLOCKED, Kind.COMPLETE,
    Kind.PART,
)  # fmt: skip
_LAST_STATES: Final = ("finished", "stopped", "cancelled", "failed")
MOST_ATTEMPTS: Final = 100
"""So many attempts are shown, the last ones."""
_LONGEST_GAP: Final = 0.12
"""The part of the axis that a gap between two attempts may take."""


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One start of the job. ``restored`` is the checkpoint it began from, if any.

    ``outcome`` is "finished", "stopped", "cancelled" or "failed"; "crashed" if another attempt follows; else "".

    ``mode`` is the one of its checkpoints. ``left_out`` are the microseconds before ``begin`` that are not on the axis.
    """

    number: int
    begin: int
    end: int
    restored: int | None
    outcome: str
    error: str
    mode: AttemptMode
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointSpan:
    """When one checkpoint was triggered, its barriers had arrived, its state was written, and it ended."""

    attempt: int
    checkpoint: int
    kind: str
    triggered: int
    travelled: int | None
    written: int | None
    ended: int | None
    is_durable: bool
    failure: str | None
    mode: AttemptMode


@dataclass(frozen=True)
class RunFacts:
    """One run. ``barriers`` are those of each checkpoint, by attempt and id; ``earlier`` attempts are not shown."""

    plan: PlanShape
    pipeline: str
    attempts: tuple[AttemptSpan, ...]
    checkpoints: tuple[CheckpointSpan, ...]
    barriers: Mapping[tuple[int, int], Sequence[BarrierTravel]]
    blocked: tuple[BlockedInput, ...]
    work: Mapping[str, Sequence[WorkSpan]]
    missed: int
    earlier: int

    @property
    def begin(self) -> int:
        """The begin of the axis: 0, or shortly before the first sample if loops were compiled for long before it."""
        moments = [span.triggered for span in self.checkpoints]
        moments += [_first_action(spans[0]) for spans in self.work.values() if spans]
        first = min(moments, default=0)
        return first - (self.end - first) // 20 if first > self.end // 4 else 0

    @property
    def modes(self) -> Mapping[AttemptMode, Sequence[int]]:
        """The modes of the attempts, each with the numbers of its attempts, in order."""
        modes: dict[AttemptMode, list[int]] = {}
        for attempt in self.attempts:
            modes.setdefault(attempt.mode, []).append(attempt.number)
        return modes

    @property
    def end(self) -> int:
        """The end of the axis."""
        return max([attempt.end for attempt in self.attempts], default=0)


def run_facts_of(events: Events) -> RunFacts:
    """Return what happened in the whole run.

    Raises:
        EventsError: the job has not begun.
        EventsDamaged: the events contradict the plan beside them.
    """
    require_begun(events)
    recorded = events.recorded
    attempts = list(_attempts(events))
    checkpoints: list[CheckpointSpan] = []
    barriers: dict[tuple[int, int], Sequence[BarrierTravel]] = {}
    blocked: list[BlockedInput] = []
    work: defaultdict[str, list[WorkSpan]] = defaultdict(list)
    parts = {(row["attempt"], row["checkpoint"]): row for row in events.checkpoints.select(_PARTS).to_pylist()}
    for attempt in attempts:
        by_checkpoint = _by_checkpoint(events, attempt.number) if takes_checkpoints(events) else {}
        for checkpoint, by_kind in by_checkpoint.items():
            span = _checkpoint(by_kind, checkpoint, attempt, parts.get((attempt.number, checkpoint), {}))
            checkpoints += [span] if span is not None else []
            travels = barriers_of(recorded.plan, by_kind["sent"], by_kind["arrived"])
            inputs = blocked_of(recorded.plan, by_kind["blocked"], by_kind["unblocked"], travels)
            barriers[attempt.number, checkpoint] = [_moved_barrier(barrier, attempt.begin) for barrier in travels]
            blocked += [_moved_blocked(one, attempt) for one in inputs]
        spans = work_spans(events, attempt.number, 0, attempt.end - attempt.begin)
        for task in spans:
            work[task] += _moved(spans[task], attempt.begin)
    return RunFacts(
        plan=recorded.plan,
        pipeline=recorded.pipeline,
        attempts=tuple(attempts),
        checkpoints=tuple(checkpoints),
        barriers=barriers,
        blocked=tuple(blocked),
        work=work,
        missed=events.missed,
        earlier=len(events.attempts) - len(attempts),
    )


def _attempts(events: Events) -> Iterator[AttemptSpan]:
    """Yield the attempts. A wall clock that goes back does not move one before the end of another."""
    found: list[AttemptSpan] = []
    first: int | None = None
    free = 0
    for number in events.attempts[-MOST_ATTEMPTS:]:
        times = numbers(select(events, set(Kind), ["time"], attempt=number), "time")
        values = numbers(select(events, [Kind.STARTED], ["value"], attempt=number), "value")
        job = list(event_rows(events, [Kind.STARTED, Kind.RESTORED, Kind.STATE, Kind.ERROR], attempt=number))
        wall = int(values[0]) if len(values) else None
        first = wall if first is None else first
        begin = free if wall is None or first is None else max(free, wall - first)
        states = [event.detail for event in job if event.kind == "state" and event.detail in _LAST_STATES]
        outcome = states[-1] if states else "" if number == events.attempts[-1] else "crashed"
        errors = [event for event in job if event.kind == "error"]
        restored = [event.checkpoint for event in job if event.kind == "restored" or event.checkpoint]
        error = f"{errors[0].detail} at {errors[0].operator or errors[0].task}" if errors else ""
        free = begin + max(int(times.max()), 0) if len(times) else begin
        found.append(
            AttemptSpan(number, begin, free, restored[0] if restored else None, outcome, error, mode_of(events, number))
        )
    longest = int(_LONGEST_GAP * sum([attempt.end - attempt.begin for attempt in found]))
    left_out, before = 0, 0
    for attempt in found:
        left_out += max(0, attempt.begin - before - longest)
        before = attempt.end
        yield replace(attempt, begin=attempt.begin - left_out, end=attempt.end - left_out, left_out=left_out)


_Events = Mapping[str, Sequence[EventRow]]


def _by_checkpoint(events: Events, attempt: int) -> Mapping[int, _Events]:
    """Return the events of each checkpoint by kind."""
    found: defaultdict[int, defaultdict[str, list[EventRow]]] = defaultdict(lambda: defaultdict(list))
    for event in event_rows(events, _KINDS, attempt=attempt):
        found[event.checkpoint][event.kind].append(event)
    return dict(sorted(found.items()))


def _checkpoint(
    by_kind: _Events, checkpoint: int, attempt: AttemptSpan, parts: Mapping[str, int | None]
) -> CheckpointSpan | None:
    """Return the span of a checkpoint; None if it was neither triggered nor ended in this attempt.

    ``parts`` are the lengths of its parts, from the table of checkpoints.
    """
    trigger, close = next(iter(by_kind["triggered"]), None), next(iter([*by_kind["durable"], *by_kind["failed"]]), None)
    if trigger is None and close is None:
        return None
    triggered = trigger.time if trigger is not None else close.time - close.duration if close is not None else 0
    is_durable = bool(by_kind["durable"])
    travel, write = (parts.get("travel"), parts.get("write")) if is_durable else (None, None)
    travelled = None if travel is None else attempt.begin + triggered + travel
    return CheckpointSpan(
        attempt.number,
        checkpoint,
        trigger.detail if trigger is not None and trigger.detail else "checkpoint",
        attempt.begin + triggered,
        travelled,
        None if travelled is None or write is None else travelled + write,
        None if close is None else attempt.begin + close.time,
        is_durable,
        by_kind["failed"][0].detail if by_kind["failed"] else None,
        attempt.mode,
    )


def _moved_barrier(barrier: BarrierTravel, by: int) -> BarrierTravel:
    sent, arrived = (None if time is None else time + by for time in (barrier.sent, barrier.arrived))
    return replace(barrier, sent=sent, arrived=arrived)


def _moved_blocked(blocked: BlockedInput, attempt: AttemptSpan) -> BlockedInput:
    """Return a blocked input on the axis; one that still was blocked ends with the attempt."""
    end = attempt.end if blocked.end is None else attempt.begin + blocked.end
    return replace(blocked, begin=attempt.begin + blocked.begin, end=end)


def _first_action(span: WorkSpan) -> int:
    """Return when a task began to do anything, from its first sample."""
    return max(span.begin, span.end - span.busy - span.waiting - span.blocked - span.back_pressured)


def _moved(spans: Iterable[WorkSpan], by: int) -> list[WorkSpan]:
    return [replace(span, begin=span.begin + by, end=span.end + by) for span in spans]
