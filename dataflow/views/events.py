"""The events of a run as a table, with the plan of its job, and the ways to look at them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dataflow.events.kinds import schema
from dataflow.events.plan_shape import PlanShape
from dataflow.events.recorded import Cursor, Recorded, recorded_from

if TYPE_CHECKING:
    import pyarrow as pa

    from dataflow.views.timeline import Timeline

__all__ = ["Events"]


@dataclass(frozen=True)
class Events:
    """The events of a run. ``result.events``, ``job.events()`` and ``flow.read_events(path)`` return them.

    Attributes:
        table: an event per row, by attempt and time; the columns are those of ``dataflow.events.kinds``. Times are
            microseconds since the start of the attempt. Its metadata has all else.
        missed: how many events were recorded and are not here, because buffers are bounded: samples go first, then
            those of the oldest checkpoints.
    """

    table: pa.Table
    missed: int = 0
    cursor: Cursor | None = field(default=None, repr=False)

    @cached_property
    def recorded(self) -> Recorded:
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
        return tuple(sorted(self.table["attempt"].unique().to_pylist()))

    @cached_property
    def checkpoints(self) -> pa.Table:
        """A row for each checkpoint: its duration and parts, its bytes and rows, the channel blocked longest.

        The columns are described in ``dataflow.views.checkpoint_table``.
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

    def __len__(self) -> int:
        return self.table.num_rows

    @staticmethod
    def none(recorded: Recorded) -> Events:
        """Return no events of a job."""
        return Events(schema().with_metadata(recorded.metadata()).empty_table())
