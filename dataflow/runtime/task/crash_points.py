"""Points where a crash must neither lose nor repeat a row, named so that a simulation can crash exactly there."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

__all__ = ["Point", "Probe", "no_probe"]


class Point(Enum):
    """The state of a checkpoint when the probe is called."""

    COPY = "the barrier was sent, the state is not copied"
    PREPARED = "a two-phase sink has prepared its transaction, the state of its task is not copied"
    WRITE = "the state is copied, its part is being written"
    WRITTEN = "the part is durable, the job does not know it yet"
    MANIFEST = "every part is durable, the manifest is not"
    DURABLE = "the manifest is durable, the job does not know it yet"
    COMMIT = "a sink is about to commit"
    BETWEEN_COMMITS = "a sink has committed, another one has not"
    EXPORT = "a committed checkpoint is being copied to a savepoint"
    COMMITTED = "a sink has committed, the job does not know it yet"
    RECOVERY = "a checkpoint was found; sinks and tasks are being restored"


Probe = Callable[[Point], None]
"""Called at each point, on the thread that reaches it."""


def no_probe(point: Point) -> None:
    """Do nothing: the probe of real runners."""
