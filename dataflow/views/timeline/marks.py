"""What a picture stresses: the tasks and channels in the chain of causes, and the task that held barriers up."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dataflow.views.causes import Causes, DelayPlace
from dataflow.views.checkpoint_facts import CheckpointFacts

__all__ = ["Emphasis", "marks_of"]

_LEAST = 0.03
"""A delay of less than this part of the chain is not stressed."""
_HELD = (DelayPlace.QUEUE, DelayPlace.TASK, DelayPlace.ENDED_INPUT, DelayPlace.SOURCE)
"""Where a task held a barrier up."""


@dataclass(frozen=True, slots=True)
class Emphasis:
    """``names``: tasks and channels in the chain of causes; ``culprit``: the task that held barriers up longest."""

    names: Collection[str] = ()
    culprit: str | None = None


def marks_of(facts: CheckpointFacts) -> Emphasis:
    """Return what the picture of a checkpoint stresses."""
    causes = Causes(facts)
    whole = sum([delay.duration for delay in causes.chain])
    names: set[str] = set()
    if causes.longest_blocked is not None:
        names |= {causes.longest_blocked.channel, causes.longest_blocked.task}
    for delay in causes.chain:
        if delay.duration and delay.duration >= _LEAST * whole:
            names.add(delay.task)
            if delay.barrier is not None:
                names |= {delay.barrier.channel, delay.barrier.source}
            names |= set(delay.ended)
    longest = max(causes.chain, key=lambda delay: delay.duration, default=None)
    if longest is None or not longest.duration or longest.place not in _HELD:
        return Emphasis(names)
    culprit = longest.task
    did = causes.did(longest)
    if did is not None and did.back_pressured > max(did.busy, did.blocked, did.waiting):
        downstream = causes.downstream(culprit, longest.begin, longest.end)
        culprit = downstream[-1][0] if downstream else culprit
    elif did is not None and did.blocked > max(did.busy, did.waiting):  # it waited for barriers: for the slowest one
        travels = [barrier for barrier in facts.barriers if barrier.sent is not None and barrier.arrived is not None]
        slowest = max(travels, key=lambda barrier: (barrier.arrived or 0) - (barrier.sent or 0), default=None)
        culprit = culprit if slowest is None else slowest.target
    return Emphasis(names | {culprit}, culprit)
