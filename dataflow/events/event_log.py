"""The events of a job that were drained from the buffers, within a bound.

Where room is short, the oldest samples go first, down to half of the room; then the events of the oldest checkpoints;
then more samples. Never those of the checkpoint triggered last, nor the last watermark of each task, nor what happened
to the job as a whole.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dataflow.events.event_rows import Event, Origin, event_bytes
from dataflow.events.kinds import Kind, schema
from dataflow.events.recorded import Cursor, RecordedJob

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["EventLog"]

_LIMIT: Final = 16 << 20
_CONVERTED_AT: Final = 4_096
"""Events kept as they were recorded; more are converted to Arrow, which takes a quarter of the memory."""
_KEPT: Final = frozenset({Kind.STARTED, Kind.RESTORED, Kind.STATE, Kind.ERROR})
"""What happened to the job as a whole: a few events, which are never dropped."""


@dataclass(slots=True)
class _Row:
    """Events of one sort in the order of their drains; numbers count all that were ever added."""

    batches: deque[pa.RecordBatch] = field(default_factory=deque)
    raw: list[tuple[Origin, list[Event]]] = field(default_factory=list)
    raw_events: int = 0
    raw_size: int = 0
    size: int = 0
    dropped: int = 0
    total: int = 0

    def add(self, origin: Origin, events: list[Event]) -> None:
        self.total += len(events)
        self.raw_events += len(events)
        self.raw_size += sum([event_bytes(len(event.totals or ())) for event in events])
        if self.raw and self.raw[-1][0] is origin:
            self.raw[-1][1].extend(events)
        else:
            self.raw.append((origin, events))

    def convert(self) -> None:
        for origin, events in self.raw:
            if events:
                batch = origin.batch(events)
                self.batches.append(batch)
                self.size += _bytes(batch)
        self.raw, self.raw_events, self.raw_size = [], 0, 0

    @property
    def bytes(self) -> int:
        return self.size + self.raw_size

    def drop_first(self) -> None:
        batch = self.batches.popleft()
        self.size -= _bytes(batch)
        self.dropped += batch.num_rows

    def after(self, number: int) -> list[pa.RecordBatch]:
        """Return the events from ``number`` on, of those that are left. What is not converted yet stays as it is."""
        skipped, batches = max(0, number - self.dropped), []
        for batch in self.batches:
            if skipped < batch.num_rows:
                batches.append(batch.slice(skipped))
            skipped = max(0, skipped - batch.num_rows)
        for origin, events in self.raw:
            if skipped < len(events):
                batches.append(origin.batch(events[skipped:]))
            skipped = max(0, skipped - len(events))
        return batches


def _bytes(batch: pa.RecordBatch) -> int:
    """Return the memory of a batch without its dictionaries, which all batches of an attempt share."""
    return sum([getattr(column, "indices", column).nbytes for column in batch.columns])


class EventLog:
    """See the module's text. Its methods are called with ``lock`` held, except those that say otherwise.

    Args:
        limit: bytes.
        converted_at: how many events are kept as they were recorded.
    """

    def __init__(self, limit: int = _LIMIT, converted_at: int = _CONVERTED_AT) -> None:
        self.lock = threading.RLock()  # guards all below; writers never take it
        self._identity = uuid.uuid4().hex
        self._limit = limit
        self._converted_at = converted_at
        self.attempt = 0
        """The number of the last attempt; 0: none has begun."""
        self._recorded: RecordedJob | None = None
        self._origin: Origin | None = None
        self._kept = _Row()
        self._facts = _Row()
        self._samples = _Row()
        self._last_times: dict[tuple[str, str | None], tuple[int, Origin, Event]] = {}  # with its number among samples
        self._last_checkpoint = 0  # facts before the drain with the last trigger
        self._lost_before = (0, 0)  # facts and samples lost in the buffers of earlier attempts
        self._lost = (0, 0)

    def begin(self, recorded: RecordedJob, origin: Origin) -> None:
        """Begin an attempt."""
        with self.lock:
            self._recorded, self._origin, self.attempt = recorded, origin, origin.attempt
            self._lost_before = self._lost

    def add(self, facts: Sequence[Event], samples: list[Event], lost_facts: int, lost_samples: int) -> None:
        """Add events; ``lost_facts`` and ``lost_samples`` count events of this attempt that buffers lost."""
        assert self._origin is not None, "events were drained before the attempt began"
        before = self._facts.total
        self._lost = self._lost_before[0] + lost_facts, self._lost_before[1] + lost_samples
        self._kept.add(self._origin, [event for event in facts if event.kind in _KEPT])
        self._facts.add(self._origin, [event for event in facts if event.kind not in _KEPT])
        for number, event in enumerate(samples, self._samples.total):
            if event.kind is Kind.WATERMARK:
                self._last_times[event.task, event.operator] = number, self._origin, event
        self._samples.add(self._origin, samples)
        if any([event.kind is Kind.TRIGGERED for event in facts]):
            self._last_checkpoint = before
        for row in (self._facts, self._samples):
            if row.raw_events > self._converted_at or row.raw_size > self._limit // 4:
                row.convert()
        self._make_room()

    def _make_room(self) -> None:
        samples, facts, limit = self._samples, self._facts, self._limit
        while samples.batches and self.bytes > limit and samples.bytes > limit // 2:
            samples.drop_first()
        while facts.batches and self.bytes > limit:
            if facts.dropped + facts.batches[0].num_rows > self._last_checkpoint:
                break
            facts.drop_first()
        while samples.batches and self.bytes > limit:
            samples.drop_first()

    @property
    def bytes(self) -> int:
        """The memory of the events, about."""
        return self._facts.bytes + self._samples.bytes + self._kept.bytes

    @property
    def has_converted(self) -> bool:
        """Whether events were converted, or dropped: then the next two methods do not return all."""
        return bool(self._facts.batches or self._samples.batches or self._facts.dropped or self._samples.dropped)

    def raw_facts(self) -> list[Event]:
        """Return the events of the current attempt, without samples, of those that are not converted."""
        rows = [*self._kept.raw, *self._facts.raw]
        return [event for origin, events in rows if origin is self._origin for event in events]

    def raw_samples(self) -> list[Event]:
        """Return the samples of the current attempt, of those that are not converted."""
        return [event for origin, events in self._samples.raw if origin is self._origin for event in events]

    def has(self, cursor: Cursor) -> bool:
        """Return whether ``cursor`` is a position in these events: an earlier ``read`` of this log returned it."""
        return self._identity == cursor.log

    def read(self, since: Cursor | None = None) -> tuple[pa.Table, int, Cursor]:
        """Return a table of the events, how many are missing, and the position after them. Takes the lock.

        Args:
            since: return only events after this position of the same job; None: all.
        """
        import pyarrow as pa

        with self.lock:
            assert self._recorded is not None, "no attempt has begun"
            at = since or Cursor(self._identity)
            lost = sum(self._lost)
            batches = [*self._kept.after(at.kept), *self._facts.after(at.facts), *self._samples.after(at.samples)]
            dropped = range(at.samples, self._samples.dropped)
            times = [(origin, event) for number, origin, event in self._last_times.values() if number in dropped]
            batches += [origin.batch([event]) for origin, event in times]
            missed = max(0, self._facts.dropped - at.facts) + len(dropped) - len(times)
            missed += lost - at.lost
            cursor = Cursor(self._identity, self._facts.total, self._samples.total, self._kept.total, lost)
            metadata = self._recorded.metadata()
        table = pa.Table.from_batches(batches, schema()) if batches else schema().empty_table()
        order = [(column, "ascending") for column in ("attempt", "time", "seq")]
        table = table.unify_dictionaries().sort_by(order)
        return table.replace_schema_metadata(metadata), missed, cursor
