"""What the tasks and the job share of the process that runs them, and what identifies the job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.background import Submit
from dataflow.clock import Clock
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.sink import Guarantee
from dataflow.runtime.task.crash_points import Probe, no_probe
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.messages import Mailbox
from dataflow.runtime.task.notices import Notices

if TYPE_CHECKING:
    from dataflow.store.base import CheckpointStore

__all__ = ["Identity", "Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The surroundings of tasks and of their job.

    Attributes:
        store: the checkpoints.
        submit: runs work in the background.
        clock: the time of the job.
        mailbox: takes messages to the job, from any thread.
        library: the functions of the package of operators.
        probe: is called at the points where tests let a process crash.
        notices: events that the user is warned of.
    """

    store: CheckpointStore
    submit: Submit
    clock: Clock
    mailbox: Mailbox[Any]
    library: Library
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
