"""When checkpoints are taken, how long they may last, and how many are kept. And when the next periodic one is due."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import ConfigurationError

__all__ = ["CheckpointPolicy", "Timetable"]


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """All times are microseconds.

    ``interval`` lies between two periodic triggers (None: only on request); ``min_pause`` after the end of one
    checkpoint and before the next periodic one; ``timeout`` between a trigger and the last acknowledgement. At most
    ``max_concurrent`` checkpoints are under way. More than ``tolerable_failures`` in a row fail the job (None: any
    number is tolerated). The newest ``keep`` completed checkpoints are kept, savepoints not counted. The last
    checkpoint of a job is tried ``final_attempts`` times, with a pause of ``final_pause`` that doubles each time.
    With ``savepoint_blocks_others`` nothing is triggered while a savepoint collects. A savepoint aligns, so in modes
    where barriers overtake, the barriers of a later checkpoint would come first and abort it every time.

    Raises: ConfigurationError for a value outside its range.
    """

    interval: int | None = None
    min_pause: int = 0
    timeout: int = 600_000_000
    max_concurrent: int = 1
    tolerable_failures: int | None = 0
    keep: int = 1
    final_attempts: int = 3
    final_pause: int = 0
    savepoint_blocks_others: bool = False

    def __post_init__(self) -> None:
        for name, value, least in (
            ("interval", self.interval, 1),
            ("min_pause", self.min_pause, 0),
            ("timeout", self.timeout, 1),
            ("max_concurrent", self.max_concurrent, 1),
            ("tolerable_failures", self.tolerable_failures, 0),
            ("keep", self.keep, 1),
            ("final_attempts", self.final_attempts, 1),
            ("final_pause", self.final_pause, 0),
        ):
            if value is not None and value < least:
                raise ConfigurationError(f"checkpoint policy: {name} must be at least {least}, got {value}")


class Timetable:
    """When the next periodic checkpoint is due: ``interval`` after the last trigger, and not before the pause is over.

    >>> timetable = Timetable(CheckpointPolicy(interval=1_000, min_pause=500), started_at=0)
    >>> timetable.triggered(1_000)
    >>> timetable.completed(1_800)
    >>> timetable.due
    2300
    """

    __slots__ = ("_interval", "_min_pause", "_not_before", "_triggered")

    def __init__(self, policy: CheckpointPolicy, started_at: int) -> None:
        self._interval = policy.interval
        self._min_pause = policy.min_pause
        self._not_before = started_at
        self._triggered = started_at

    @property
    def due(self) -> int | None:
        """When the next periodic checkpoint may be triggered; None: never."""
        return None if self._interval is None else max(self._triggered + self._interval, self._not_before)

    def triggered(self, now: int) -> None:
        """A checkpoint was triggered."""
        self._triggered = now

    def completed(self, now: int) -> None:
        """A checkpoint or savepoint became durable."""
        self._not_before = now + self._min_pause
