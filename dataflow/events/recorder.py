"""The buffers in which tasks, gates, part writers and the job record events, one writer each and without a lock.

A drain moves what was recorded to the ``EventLog``, and to a file if there is one. Between two drains a buffer holds as
much as its share of the room for all: then its oldest samples, or the events of its oldest checkpoint, are dropped and
counted. The events of one checkpoint are kept however many there are, and so is the last watermark.

Guarantees: ``record`` never blocks and takes about a microsecond; what a writer records keeps its order.
This code assumes: one thread at a time records with a writer. Any thread may drain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from dataflow.events.event_log import EventLog
from dataflow.events.event_rows import Event, Origin, event_bytes
from dataflow.events.kinds import JOB, TOTALS, Kind
from dataflow.events.recorded import RecordedJob

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DRAINED_EACH", "SAMPLED_EACH", "UNRECORDED", "EventTarget", "EventWriter", "Recorder", "Weight"]

DRAINED_EACH: Final = 250_000
"""Microseconds between two drains of a running job."""
SAMPLED_EACH: Final = 1_000_000
"""Microseconds between two samples of a task, unless a recording asks for more."""

_ROOM: Final = 8 << 20
"""Bytes of all buffers together, for events and for samples each."""
_LEAST_FACTS, _LEAST_SAMPLES = 16, 2
_MOST: Final = 4_096


class EventTarget(Protocol):
    """A recording that grows while the job runs."""

    @property
    def attempt(self) -> int:
        """The number of the attempt that it is open for, from 1: earlier ones of the job may be in it."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Append events."""
        ...

    def close(self) -> None:
        """End the recording. Later calls do nothing."""
        ...


OpenFile = Callable[[RecordedJob, Callable[[str], None]], EventTarget]
"""Opens a recording of what is given, and calls the function with the reason if the recording ends early."""


def _ignore(reason: str) -> None:
    """Do nothing."""


class Weight(NamedTuple):
    """How many events and samples a writer records in one checkpoint, for its share of the room.

    ``inputs`` is the number of inputs, whose queued rows are in each sample.
    """

    facts: int = 4
    samples: int = 2
    inputs: int = 0

    @property
    def sample_bytes(self) -> int:
        """The memory of a sample, about."""
        return event_bytes(len(TOTALS) + self.inputs)


class EventWriter:
    """The buffer of one writer, whose events are of ``task``.

    >>> writer = EventWriter("a[0]")
    >>> writer.record(Kind.SNAPSHOT, 17, 1, duration=5)
    >>> [(event.kind.label, event.time, event.checkpoint) for event in writer.take()[0]]
    [('snapshot', 17, 1)]
    """

    __slots__ = (
        "_facts",
        "_facts_room",
        "_last_times",
        "_samples",
        "_samples_room",
        "_seq",
        "found_samples",
        "lost_facts",
        "lost_samples",
        "task",
    )

    def __init__(self, task: str) -> None:
        self.task = task
        self._facts: deque[Event] = deque()  # append and popleft are atomic: the writer appends, a drain takes out
        self._samples: deque[Event] = deque()
        self._seq = 0
        self._facts_room = self._samples_room = _MOST
        self.lost_facts = self.lost_samples = 0  # only the writer adds to them
        self.found_samples = 0  # those of ``lost_samples`` that a drain got nevertheless; only a drain adds to it
        self._last_times: dict[str | None, Event] = {}  # dropped watermarks since the last drain, by operator

    def set_room(self, facts: int, samples: int) -> None:
        """Set how many events of each kind the buffer holds."""
        self._facts_room, self._samples_room = facts, samples

    def record(
        self,
        kind: Kind,
        time: int,
        checkpoint: int | None = None,
        *,
        channel: str | None = None,
        operator: str | None = None,
        duration: int | None = None,
        rows: int | None = None,
        bytes: int | None = None,
        value: int | None = None,
        detail: str | None = None,
    ) -> None:
        """Record an event at ``time``, by the clock of the job. The table has the same fields."""
        facts = self._facts
        if len(facts) >= self._facts_room and not _is_of(facts, checkpoint) and _drop_first(facts):
            self.lost_facts += 1
        numbers = (checkpoint, duration, rows, bytes, value)
        facts.append(Event(kind, time, self._seq, self.task, *numbers, channel, operator, None, detail))
        self._seq += 1

    def sample(
        self,
        kind: Kind,
        time: int,
        *,
        totals: Sequence[int | None] | None = None,
        duration: int | None = None,
        value: int | None = None,
        channel: str | None = None,
        operator: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Record a sample, of a kind in ``SAMPLES``."""
        samples = self._samples
        if len(samples) >= self._samples_room and (dropped := _drop_first(samples)):
            self.lost_samples += 1
            if dropped.kind is Kind.WATERMARK:
                self._last_times[dropped.operator] = dropped
        samples.append(
            Event(
                kind, time, self._seq, self.task, None, duration, None, None, value, channel, operator, totals, detail
            )
        )
        self._seq += 1

    def take(self) -> tuple[list[Event], list[Event]]:
        """Remove and return the events, and the samples, so far. Called by a drain.

        The last watermark of each operator is among them, even if it had to make room for later samples.
        """
        dropped, self._last_times = self._last_times, {}
        facts, samples = list(_taken(self._facts)), list(_taken(self._samples))
        later = {event.operator for event in samples if event.kind is Kind.WATERMARK}
        kept = [event for operator, event in dropped.items() if operator not in later]
        self.found_samples += len(kept)
        return facts, [*kept, *samples]


class _Unrecorded(EventWriter):
    """Records nothing: for gates and tasks outside of a job."""

    __slots__ = ()

    def record(self, *args: object, **fields: object) -> None:
        """Do nothing."""

    def sample(self, *args: object, **fields: object) -> None:
        """Do nothing."""


UNRECORDED: Final[EventWriter] = _Unrecorded("")


def _drop_first(buffer: deque[Event]) -> Event | None:
    """Drop and return the oldest event; None: a drain took it first."""
    try:
        return buffer.popleft()
    except IndexError:
        return None


def _is_of(buffer: deque[Event], checkpoint: int | None) -> bool:
    """Return whether the oldest event is of ``checkpoint``: then all in the buffer are of the last checkpoint."""
    try:
        return checkpoint is not None and buffer[0].checkpoint == checkpoint
    except IndexError:
        return False


def _taken(buffer: deque[Event]) -> Iterator[Event]:
    for _ in range(len(buffer)):
        try:
            yield buffer.popleft()
        except IndexError:  # the writer dropped it
            return


class Recorder:
    """The writers of one attempt of a job, and what becomes of their events.

    Args:
        log: keeps the events, of all attempts of the job in this process; None: a log of its own.
        sampled_each: microseconds between two samples of a task.
        open_file: opens a recording of what is given, and takes a function that it calls with the reason if the
            recording ends early; None: there is none.
    """

    def __init__(
        self,
        log: EventLog | None = None,
        *,
        sampled_each: int = SAMPLED_EACH,
        open_file: OpenFile | None = None,
    ) -> None:
        self.log = log or EventLog()
        #: Never changes. Tasks compare the time with it at each step.
        self.sampled_each = sampled_each
        #: The number of checkpoints triggered so far. Each task records a sample at its first step after a trigger.
        self.triggers = 0
        self._open_file = open_file
        self._file: EventTarget | None = None
        self._weights: dict[EventWriter, Weight] = {}
        self._job = EventWriter(JOB)
        self._recorded: RecordedJob | None = None
        self._origin: Origin | None = None
        self._next_drain = 0

    @property
    def job(self) -> EventWriter:
        """The writer of the job."""
        return self._job

    def writer(self, task: str, weight: Weight | None = None) -> EventWriter:
        """Return a new writer for events of ``task``."""
        writer = EventWriter(task)
        self._weights[writer] = weight or Weight()
        return writer

    def open(self, recorded: RecordedJob, ended: Callable[[str], None] = _ignore) -> None:
        """Open the file, if there is to be one; ``ended`` is called with the reason if it ends early.

        Raises: EventsError if it cannot be written, or is of another job.
        """
        self._recorded = recorded
        if self._open_file is not None:
            self._file = self._open_file(recorded, ended)

    def begin(self, started_at: int) -> None:
        """Begin an attempt that started at ``started_at`` by the clock, after ``open``."""
        if self._recorded is None:  # a job that a test built by hand
            return
        number = 1 + max(self.log.attempt, 0 if self._file is None else self._file.attempt - 1)
        self._origin = Origin(self._recorded.plan, started_at, number)
        self.log.begin(self._recorded, self._origin)
        self._share_room()

    def _share_room(self) -> None:
        facts = sum([weight.facts for weight in self._weights.values()])
        samples = sum([weight.samples * weight.sample_bytes for weight in self._weights.values()])
        for writer, weight in self._weights.items():
            most_facts = min(_MOST, max(_LEAST_FACTS, _ROOM * weight.facts // facts // event_bytes(0)))
            most_samples = min(_MOST, max(_LEAST_SAMPLES, _ROOM * weight.samples // max(1, samples)))
            writer.set_room(most_facts, most_samples)

    def tick(self, now: int) -> None:
        """Drain if it is time."""
        if now >= self._next_drain:
            self._next_drain = now + DRAINED_EACH
            self.drain()

    def drain(self) -> None:
        """Move all events recorded so far to the log, and to the file. Any thread may call it."""
        if self._origin is None:
            return
        with self.log.lock:
            facts: list[Event] = []
            samples: list[Event] = []
            # the job comes last: then the trigger of a checkpoint is there if an event of it is
            for writer in (*self._weights, self._job):
                some_facts, some_samples = writer.take()
                facts += some_facts
                samples += some_samples
            lost_facts = sum([writer.lost_facts for writer in self._weights]) + self._job.lost_facts
            lost_samples = sum([writer.lost_samples - writer.found_samples for writer in self._weights])
            self.log.add(facts, samples, lost_facts, lost_samples)
            if self._file is not None and (facts or samples):
                self._file.write(self._origin.batch([*facts, *samples]))

    def close(self) -> None:
        """Drain for the last time, and end the file. Later drains do nothing: the log may be at the next attempt."""
        self.drain()
        self._origin = None
        if self._file is not None:
            self._file.close()
