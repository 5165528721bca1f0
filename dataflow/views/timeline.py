"""The picture of one checkpoint, or of a whole run, with the sentences that explain it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["Timeline", "timeline_of"]


class Timeline:
    """A picture of checkpoints."""


def timeline_of(events: Events, checkpoint: int | str | None = None) -> Timeline:
    """Return the timeline of one checkpoint, or of all."""
    raise NotImplementedError
