"""The checkpoint mode of each attempt: a restart may use another one than the attempt before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from dataflow.contracts.checkpointing import Mode, mode_text
from dataflow.contracts.sink import Guarantee
from dataflow.events.kinds import Kind
from dataflow.events.recorded import RecordedJob
from dataflow.views.select_events import select

if TYPE_CHECKING:
    from dataflow.views.events import Events

__all__ = ["AttemptMode", "mode_of"]


class AttemptMode(NamedTuple):
    """A mode, "" without checkpoints, and the guarantee from source to sink in it; None: it is not known."""

    mode: str
    guarantee: str | None

    @property
    def text(self) -> str:
        """The mode with its guarantee."""
        return mode_text(self.mode, self.guarantee) if self.mode else "no checkpoints"

    @property
    def of_engine(self) -> str | None:
        """The guarantee of the engine in this mode; None without checkpoints, or if there is no such mode."""
        guarantee = _own(self.mode) if self.mode else None
        return None if guarantee is None else guarantee.value


def mode_of(events: Events, attempt: int) -> AttemptMode:
    """Return the mode of an attempt: of its event ``started``, or else of the metadata."""
    started = select(events, [Kind.STARTED], ["detail"], attempt=attempt)["detail"].to_pylist()
    mode = started[0] if started else None
    recorded = events.recorded
    if mode is None or mode == recorded.mode:
        return AttemptMode(recorded.mode, recorded.guarantee)
    return AttemptMode(mode, _guarantee(mode, recorded))


def _guarantee(mode: str, recorded: RecordedJob) -> str | None:
    """Return the guarantee from source to sink in ``mode``, from the recorded one, which is of another mode.

    If that one is weaker than its mode, sources or sinks weaken it, and they do so in every mode, or an earlier restore
    repeated rows. Which of them is not known, so the weaker guarantee is returned.
    """
    here, there = _own(mode), _own(recorded.mode)
    known = {each.value: each for each in Guarantee}
    if here is None or there is None or recorded.guarantee not in known:
        return None
    order, found = list(Guarantee).index, known[recorded.guarantee]
    if order(found) < order(there):
        return min(here, found, key=order).value
    return here.value if order(here) <= order(there) else None


def _own(mode: str) -> Guarantee | None:
    """Return the guarantee of the engine in a mode; None: there is no such mode."""
    if not mode:
        return Guarantee.AT_MOST_ONCE
    return next((each.guarantee for each in Mode if each.value == mode), None)
