"""Old import path of ``dataflow.snapshots.cuts``, kept because the guides named it; it only re-exports."""

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
