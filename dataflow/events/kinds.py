"""The kinds of events, and the columns of their table.

========================  ==========  ===============================================================================
kind                      writer      fields besides time, seq, attempt, task and kind
========================  ==========  ===============================================================================
``started``               job         value: the wall clock (microseconds since 1970); checkpoint: what was restored;
                                      detail: the mode of the attempt ("": it has no checkpoints)
``restored``              job         checkpoint; rows: rows in flight that were put back
``triggered``             job         checkpoint; detail: checkpoint, savepoint or final
``durable``               job         checkpoint; duration since the trigger, bytes written, rows in flight
``failed``                job         checkpoint; duration since the trigger; detail: why
``committed``             job         checkpoint: all sinks have committed everything up to it
``commit_failed``         job         checkpoint; operator: the sink; detail: the class of the error
``exported``              job         checkpoint: its copy to a savepoint ended; detail: the class of the error, if any
``state``                 job         detail: running, finished, stopped, cancelled or failed
``sent``                  task        channel, checkpoint; rows and bytes queued in the channel ahead of the barrier
``arrived``               gate        channel, checkpoint; rows and bytes that it overtook; detail: see ``Arrival``
``blocked``               gate        channel, checkpoint
``unblocked``             gate        channel, checkpoint; duration; detail: see ``Unblocked``
``snapshot``              task        checkpoint; duration of the copy
``complete``              task        checkpoint; rows and bytes of its channel state
``repeats``               task        checkpoint, operator; rows that a restore delivers twice there
``declined``              task        checkpoint; detail: the reason
``part``                  writer      checkpoint; duration of the write, bytes
``watermark``             task        value: merged event time (microseconds since 1970; 2**63-1: the end of all input);
                                      channel that holds it back, or detail: the split that does, and operator: what
                                      makes the time
``work``                  task        totals: see ``TOTALS``; rows queued in each input follow; duration: how long the
                                      step lasted that ended at this time, or goes on, if it was long
``ended``                 task
``error``                 task        operator where it was raised; detail: the class of the error
========================  ==========  ===============================================================================

An event that has a duration ended at its time. No value of a row is in an event.

On Spark a micro-batch is a checkpoint, and the driver records all events. There are no channels, so there are neither
barriers nor queues: the kinds from ``sent`` to ``part``, and ``ended``, do not occur. What is not measured is null,
never 0: ``bytes`` of ``durable`` in a stream; of ``totals``, the times ``waiting``, ``blocked`` and ``back_pressured``,
and ``busy`` of a vertex whose subtasks Spark numbers anew in each micro-batch (it counts as one task). ``work`` is
recorded for the tasks that Spark called, at the start and at the end of the micro-batch. An ``error`` that no task
raised is an event of the job. A stream is ``durable`` and ``committed`` when the driver has done its part; Spark then
adds the micro-batch to its log. If it fails in between, the next attempt is restored from the one before, and repeats
it.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["JOB", "Arrival", "Kind", "SAMPLES", "TOTALS", "Unblocked", "VERSION", "schema"]

VERSION: Final = 1
"""The version of the table's columns and of the plan beside them."""


JOB: Final = "job"
"""The name of the job among the tasks, whose names end in a bracket."""


class Kind(IntEnum):
    """The kinds of events. The table has their names in lower case."""

    STARTED = 0
    RESTORED = auto()
    TRIGGERED = auto()
    DURABLE = auto()
    FAILED = auto()
    COMMITTED = auto()
    COMMIT_FAILED = auto()
    STATE = auto()
    SENT = auto()
    ARRIVED = auto()
    BLOCKED = auto()
    UNBLOCKED = auto()
    SNAPSHOT = auto()
    COMPLETE = auto()
    REPEATS = auto()
    DECLINED = auto()
    PART = auto()
    WATERMARK = auto()
    WORK = auto()
    ENDED = auto()
    ERROR = auto()
    EXPORTED = auto()

    @property
    def label(self) -> str:
        """The name in the table."""
        return self.name.lower()


SAMPLES: Final = frozenset({Kind.WATERMARK, Kind.WORK})
"""The kinds that are sampled, and dropped first where room is short."""

TOTALS: Final = ("rows_in", "rows_out", "busy", "waiting", "blocked", "back_pressured")
"""The meaning of the first entries of ``totals``, all since the start of the attempt; times in microseconds.

On Spark, the entries that are not measured are null."""


class Arrival(Enum):
    """How a barrier came to a gate."""

    IN_ORDER = "in order"
    OVERTAKING = "overtaking"
    STARTED_HERE = "started here"
    """No task sent it: all writers of the channels have ended, and the checkpoint was started at the gate."""


class Unblocked(Enum):
    """Why a channel is no longer blocked."""

    COMPLETE = "complete"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    ENDED = "ended"


def schema() -> pa.Schema:
    """Return the columns of the table of events, without metadata.

    ``time`` and ``duration`` are microseconds, ``time`` since the start of its attempt. ``seq`` orders the events of
    one writer. ``attempt`` counts the starts of the job in a recording, from 1.
    """
    import pyarrow as pa

    name = pa.dictionary(pa.int32(), pa.string())
    numbers = ("time", "seq", "attempt", "checkpoint", "duration", "rows", "bytes", "value")
    return pa.schema(
        [
            *[pa.field(column, pa.int64()) for column in numbers],
            *[pa.field(column, name) for column in ("task", "channel", "operator", "kind")],
            pa.field("totals", pa.list_(pa.int64())),
            pa.field("detail", pa.string()),
        ]
    )
