"""Settings of checkpoints: interval, timeout, number kept. And the timetable of the periodic ones."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import ConfigurationError

__all__ = ["CheckpointPolicy", "Timetable"]


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """Settings of the coordinator. All times are microseconds.

    Args:
        interval: Time between two periodic triggers; None: only on request.
        min_pause: Minimum time from the end of a checkpoint to the next periodic trigger.
        timeout: Maximum time from a trigger to the last acknowledgement; a savepoint has none.
        max_concurrent: Maximum number of checkpoints under way.
        tolerable_failures: More failures than this in a row fail the job; None: any number is tolerated.
        keep: Number of completed checkpoints to keep, the newest.
        final_attempts: Maximum number of attempts at the last checkpoint of a job.
        final_pause: Pause after the first failed attempt; it doubles each time.
        savepoint_blocks_others: Trigger nothing while a savepoint collects. A savepoint aligns, so in modes where
            barriers overtake, the barriers of a later checkpoint would arrive first and abort it every time.

    Raises:
        ConfigurationError: A value is outside its range.
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
    """The time of the next periodic checkpoint: ``interval`` after the last trigger, but not before the pause ends.

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
        """The time from which the next periodic checkpoint may be triggered; None: never."""
        return None if self._interval is None else max(self._triggered + self._interval, self._not_before)

    def triggered(self, now: int) -> None:
        """Record that a checkpoint was triggered."""
        self._triggered = now

    def completed(self, now: int) -> None:
        """Record that a checkpoint became durable."""
        self._not_before = now + self._min_pause
