"""The events of a run as a table, with the plan of its job, and the ways to look at them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from dataflow.errors import ConfigurationError
from dataflow.events.event_log import EventLog
from dataflow.events.plan_shape import PlanShape
from dataflow.events.recorded import Cursor, RecordedJob, recorded_from

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.views.timeline import Timeline

__all__ = ["Events", "events_of", "events_since"]

_Contents = tuple["pa.Table", int, Cursor | None]


class Events:
    """The events of a run. ``result.events``, ``job.events()`` and ``flow.read_events(path)`` return them.

    Args:
        table: an event per row; the columns are those of ``dataflow.events.kinds``, and the metadata has all else.
        missed: see the property.
        cursor: the position after the events, for ``job.events(since=)``.

    >>> import pyarrow as pa, dataflow as flow, operators as op
    >>> with flow.Pipeline("copy") as p:
    ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
    >>> events = p.run(checkpoint=flow.Checkpointing(flow.MemoryStore())).events
    >>> [kind for kind in events.table["kind"].to_pylist() if kind in ("triggered", "snapshot", "durable", "committed")]
    ['triggered', 'snapshot', 'durable', 'committed']
    """

    def __init__(self, table: pa.Table, missed: int = 0, cursor: Cursor | None = None) -> None:
        self._read: Callable[[], _Contents] = lambda: (table, missed, cursor)

    @cached_property
    def _contents(self) -> _Contents:
        return self._read()

    @property
    def table(self) -> pa.Table:
        """An event per row, by attempt and time. Times are microseconds since the start of the attempt."""
        return self._contents[0]

    @property
    def missed(self) -> int:
        """How many events were recorded and are not here.

        Buffers are bounded: samples are dropped first, then the events of the oldest checkpoints.
        """
        return self._contents[1]

    @property
    def cursor(self) -> Cursor | None:
        """The position after these events, for ``job.events(since=)``; None: they come from a file."""
        return self._contents[2]

    @cached_property
    def recorded(self) -> RecordedJob:
        """What the events are of: pipeline, job, mode, guarantee and plan."""
        return recorded_from(self.table.schema.metadata)

    @property
    def plan(self) -> PlanShape:
        """The plan of the job: operators, vertices, links."""
        return self.recorded.plan

    @cached_property
    def unified(self) -> pa.Table:
        """The table, its dictionaries the same in all chunks."""
        return self.table.unify_dictionaries()

    @cached_property
    def attempts(self) -> tuple[int, ...]:
        """The numbers of the attempts, ascending: one per start of the job in the recording."""
        return tuple(sorted(self.table["attempt"].drop_null().unique().to_pylist()))

    @cached_property
    def checkpoints(self) -> pa.Table:
        """A row for each checkpoint: its duration and parts, its bytes and rows, the channel blocked longest.

        The columns are described in ``dataflow.views.checkpoint_table``. Times are in microseconds; what events do not
        tell is null.

        >>> import pyarrow as pa, dataflow as flow, operators as op
        >>> with flow.Pipeline("copy") as p:
        ...     p.source(op.from_arrow(pa.table({"x": [1, 2]})), name="in").sink(op.collect(), name="out")
        >>> events = p.run(checkpoint=flow.Checkpointing(flow.MemoryStore())).events
        >>> events.checkpoints.select(["checkpoint", "kind", "state", "blocked"]).to_pylist()
        [{'checkpoint': 1, 'kind': 'final', 'state': 'committed', 'blocked': 0}]
        """
        from dataflow.views.checkpoint_table import checkpoint_table

        return checkpoint_table(self)

    def timeline(self, checkpoint: int | str | None = None) -> Timeline:
        """Return a picture of one checkpoint, or of the whole run, with sentences that explain it.

        Args:
            checkpoint: its id; None: the slowest one in which every input still had a barrier; ``"all"``: the whole
                run.
        """
        from dataflow.views.timeline import timeline_of

        return timeline_of(self, checkpoint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Events):
            return NotImplemented
        same = self.missed == other.missed
        return same and bool(self.table.equals(other.table, check_metadata=True))

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return self.table.num_rows

    def __reduce__(self) -> tuple[type[Events], _Contents]:
        """Pickle the events, not the log of the job that they are read from."""
        return Events, self._contents

    def __repr__(self) -> str:
        missed = f", {self.missed:,} missed" if self.missed else ""
        return f"Events({self.recorded.pipeline!r}, {len(self):,} events{missed})"


class _EventsOfLog(Events):
    """The events of a job that is over, read when they are asked for first."""

    def __init__(self, log: EventLog) -> None:
        self._read = log.read


def events_of(log: EventLog) -> Events:
    """Return the events of a job that is over."""
    return _EventsOfLog(log)


def events_since(log: EventLog, since: Events | None) -> Events:
    """Return the events in ``log`` that are not in ``since``, which was read from it earlier; None: all.

    Raises: ConfigurationError if ``since`` are events of another job, or of a file.
    """
    if since is None:
        return Events(*log.read())
    if not isinstance(since, Events):
        raise ConfigurationError(
            f"events(since=): expected events that job.events() returned earlier, or None; got {type(since).__name__}"
        )
    cursor = since.cursor
    if cursor is None or not log.has(cursor):
        raise ConfigurationError(
            f"events(since=): expected events that this job's events() returned earlier, got {since!r}, which are of "
            "another job, or of a file; leave since= out to get all events"
        )
    return Events(*log.read(cursor))
