"""Old path of ``dataflow.runtime.task.parts``."""

from dataflow.runtime.task.parts import (
    SAMPLE_ROWS,
    ChannelState,
    Duplicates,
    TaskState,
    joined,
    packed,
    table_of,
    unpacked,
)

__all__ = ["SAMPLE_ROWS", "ChannelState", "Duplicates", "TaskState", "joined", "packed", "table_of", "unpacked"]
