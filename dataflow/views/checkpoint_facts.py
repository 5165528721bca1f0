"""What happened in one checkpoint, computed from its events. Sentences and pictures read these facts, and nothing else.

All times are microseconds since the start of the attempt, as in the table of events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dataflow.events.kinds import Arrival, Unblocked
from dataflow.events.plan_shape import PlanShape

__all__ = ["BarrierTravel", "BlockedInput", "CheckpointFacts", "TaskFacts", "WorkSpan"]


@dataclass(frozen=True, slots=True)
class BarrierTravel:
    """The barrier of the checkpoint on one channel, from the task that sent it to the input where it arrived.

    ``rows_ahead`` and ``bytes_ahead`` were queued in the channel when it was sent; ``overtaken`` are the rows that it
    passed. ``sent`` is None if no task sent it (``how`` is STARTED_HERE) or the event is missing; ``arrived`` is None
    if it has not arrived.
    """

    channel: str
    source: str
    target: str
    sent: int | None
    arrived: int | None
    rows_ahead: int = 0
    bytes_ahead: int = 0
    overtaken: int = 0
    overtaken_bytes: int = 0
    how: Arrival = Arrival.IN_ORDER

    @property
    def overtakes(self) -> bool:
        """Whether it passed rows, or began the checkpoint at a gate ahead of rows whose writers had ended."""
        return self.how is Arrival.OVERTAKING or (self.how is Arrival.STARTED_HERE and self.overtaken > 0)


@dataclass(frozen=True, slots=True)
class BlockedInput:
    """An input that was blocked by the checkpoint's barrier. ``end`` and ``why`` are None if it still is.

    ``awaited`` is the channel whose barrier came last and ended the wait; None if something else did, or none yet.
    """

    channel: str
    task: str
    begin: int
    end: int | None
    why: Unblocked | None
    awaited: str | None = None

    def ended_by(self, now: int) -> int:
        """Return when it was blocked no longer; ``now`` if it still is."""
        return now if self.end is None else self.end

    def length(self, now: int) -> int:
        """Return how long it was blocked, until ``now`` if it still is."""
        return self.ended_by(now) - self.begin


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """The part of one task: when it took its snapshot, when it was complete, when its part was written.

    ``copy`` is the duration of the copy, which ended at ``snapshot``. ``part_begin`` is when the write began.
    ``repeats`` counts by operator the rows that a restore would deliver twice there; never add them up.
    """

    task: str
    snapshot: int | None = None
    copy: int = 0
    complete: int | None = None
    stored_rows: int = 0
    stored_bytes: int = 0
    part_begin: int | None = None
    part_end: int | None = None
    part_bytes: int = 0
    declined: str | None = None
    ended: int | None = None
    repeats: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """What a task did between two samples: microseconds of each, and rows.

    ``is_measured``: whether it is known how long it was busy, which on Spark it is not of each task. How long it was
    waiting, blocked or back-pressured is never measured on Spark; these are 0.
    """

    begin: int
    end: int
    busy: int
    waiting: int
    blocked: int
    back_pressured: int
    rows_in: int
    rows_out: int
    is_measured: bool = True


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """One checkpoint of one attempt, in the ``mode`` of that attempt.

    ``guarantee`` is the one from source to sink; None if it is not known.
    ``travelled`` is when the last task was complete (None: not all were), ``written`` when the last part was,
    ``ended`` when the checkpoint was durable or failed (None: neither, yet). ``until`` is ``ended``, or the time of the
    last event. ``failure`` says why it failed. ``bytes`` is None if they are not measured, as in a stream on Spark.
    ``missed`` counts events that are missing, because buffers are bounded. ``tasks`` has all tasks of the plan.
    ``barriers`` has the channels with an event, in the order of arrival; those that have not arrived come last.
    ``work`` has the samples from a while before the trigger until after the end, by task, in order.
    ``queued`` has the rows in channels on which no barrier was sent, at the reader's first sample since the trigger;
    of channels without such a sample it has none. ``held_until`` is when channels were unblocked that an earlier
    checkpoint blocked after the trigger of this one. ``is_abandoned``: its attempt ended before it did.
    ``is_restored``: nevertheless a later attempt began from it.
    """

    plan: PlanShape
    pipeline: str
    mode: str
    guarantee: str | None
    attempt: int
    checkpoint: int
    kind: str
    triggered: int
    travelled: int | None
    written: int | None
    ended: int | None
    is_durable: bool
    failure: str | None
    committed: int | None
    bytes: int | None
    rows_in_flight: int
    tasks: Mapping[str, TaskFacts]
    barriers: tuple[BarrierTravel, ...]
    blocked: tuple[BlockedInput, ...]
    work: Mapping[str, tuple[WorkSpan, ...]]
    missed: int = 0
    until: int = 0
    queued: Mapping[str, int] = field(default_factory=dict)
    held_until: Mapping[str, int] = field(default_factory=dict)
    is_abandoned: bool = False
    is_restored: bool = False
