"""Old path of ``dataflow.snapshots.predicates``."""

from dataflow.snapshots.predicates import Deadlock, Tokens, deadlocked, garbage, terminated

__all__ = ["Deadlock", "Tokens", "deadlocked", "garbage", "terminated"]
