"""Old import path of ``dataflow.runtime.task.parts``, kept because the guides named it; it only re-exports."""

from dataflow.runtime.task.parts import (
    SAMPLE_ROWS,
    ChannelState,
    Duplicates,
    TaskState,
    joined,
    packed,
    table_of,
    unpacked,
    with_dictionaries,
)

__all__ = [
    "SAMPLE_ROWS",
    "ChannelState",
    "Duplicates",
    "TaskState",
    "joined",
    "packed",
    "table_of",
    "unpacked",
    "with_dictionaries",
]
