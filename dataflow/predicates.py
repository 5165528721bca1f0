"""Old import path of ``dataflow.snapshots.predicates``, kept because the guides named it; it only re-exports."""

from dataflow.snapshots.predicates import Deadlock, Tokens, deadlocked, garbage, terminated

__all__ = ["Deadlock", "Tokens", "deadlocked", "garbage", "terminated"]
