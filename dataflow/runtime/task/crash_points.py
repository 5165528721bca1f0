"""The places where a crash must neither lose nor repeat a row, named so that a simulation can crash exactly there."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

__all__ = ["Point", "Probe", "no_probe"]


class Point(Enum):
    """Where the job stands when its probe is called."""

    COPY = "the barrier was sent, the state is not copied"
    PREPARED = "a two-phase sink has prepared its transaction, the state of its task is not copied"
    WRITE = "the state is copied, its part is being written"
    WRITTEN = "the part is durable, nobody was told"
    MANIFEST = "every part is durable, the manifest is not"
    DURABLE = "the manifest is durable, nobody was told"
    COMMIT = "a sink is about to commit"
    BETWEEN_COMMITS = "a sink has committed, another one has not"
    COMMITTED = "a sink has committed, nobody was told"
    RECOVERY = "a checkpoint was found; sinks and tasks are being restored"


Probe = Callable[[Point], None]
"""Called at each point, on the thread that is there."""


def no_probe(point: Point) -> None:
    """What real runners use: it does nothing."""
