"""Old path of ``dataflow.snapshots.cuts``."""

from dataflow.snapshots.cuts import (
    Consistency,
    Reordering,
    Swap,
    channel_states,
    consistent_cuts,
    equivalent,
    is_consistent,
)

__all__ = ["Consistency", "Reordering", "Swap", "channel_states", "consistent_cuts", "equivalent", "is_consistent"]
