"""What the tasks and the job share of the process that runs them, and what identifies the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.checkpointing import Mode
from dataflow.clock import Clock
from dataflow.operator import Guarantee
from dataflow.runtime.messages import Mailbox
from dataflow.runtime.notices import Notices
from dataflow.runtime.points import Probe, no_probe

if TYPE_CHECKING:
    from dataflow.store.base import CheckpointStore

__all__ = ["Identity", "Services", "Submit"]

Submit = Callable[[str, Callable[[], None]], None]
"""``submit(lane, job)`` runs ``job`` later, on another thread; jobs of one lane run one after the other, in order."""


@dataclass(frozen=True, slots=True)
class Services:
    """The surroundings of tasks and of their job.

    Attributes:
        store: the checkpoints.
        submit: runs work in the background.
        clock: the time of the job.
        mailbox: takes messages to the job, from any thread.
        probe: is called at the points where tests let a process crash.
        notices: events that the user is warned of.
    """

    store: CheckpointStore
    submit: Submit
    clock: Clock
    mailbox: Mailbox[Any]
    probe: Probe = no_probe
    notices: Notices = field(default_factory=Notices)


@dataclass(frozen=True, slots=True)
class Identity:
    """What a job is called, and what its checkpoints promise. ``checkpointed``: the user asked for checkpoints."""

    pipeline: str
    run_id: str
    mode: Mode
    guarantee: Guarantee
    checkpointed: bool
