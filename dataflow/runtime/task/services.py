"""The services of the process that tasks and their job share, and the identity of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dataflow.background import Submit
from dataflow.clock import OperatorClock
from dataflow.contracts.checkpointing import Mode
from dataflow.contracts.execution import Execution
from dataflow.contracts.sink import Guarantee
from dataflow.events.recorder import Recorder
from dataflow.runtime.task.crash_points import Probe, no_probe
from dataflow.runtime.task.library import Library
from dataflow.runtime.task.messages import Mailbox
from dataflow.runtime.task.notices import Notices

if TYPE_CHECKING:
    from dataflow.store.base import CheckpointStore
    from dataflow.store.manifest import EarlierTarget, JobId, Parent

__all__ = ["Identity", "Services"]


@dataclass(frozen=True, slots=True)
class Services:
    """The services that tasks and their job use.

    Attributes:
        store: the checkpoints.
        submit: runs work in the background.
        clock: the time of the job, of which there is one.
        mailbox: receives messages to the job, from any thread.
        library: the functions of the package of operators.
        probe: called at the points where tests crash a process.
        notices: collects what the user is warned of.
        recorder: records what barriers, tasks and the job do.
    """

    store: CheckpointStore
    submit: Submit
    clock: OperatorClock
    mailbox: Mailbox[Any]
    library: Library
    probe: Probe = no_probe
    notices: Notices = field(default_factory=Notices)
    recorder: Recorder = field(default_factory=Recorder)


@dataclass(frozen=True, slots=True)
class Identity:
    """The names of a job, and the guarantee of its checkpoints. ``checkpointed``: the user asked for checkpoints.

    ``job`` is the same in all runs that continue each other; ``parent`` is the checkpoint elsewhere that it began from.
    ``execution``: whether it processes a stream or a batch. ``repeated``: rows may have come twice to the operators,
    because this restore, or an earlier one, reported rows that are delivered again. ``targets`` has the targets of the
    two-phase sinks, by name, and ``earlier_targets`` those that the sinks have left, oldest first.
    """

    pipeline: str
    run_id: str
    mode: Mode
    guarantee: Guarantee
    checkpointed: bool
    job: JobId
    parent: Parent | None = None
    execution: Execution = Execution.STREAMING
    repeated: bool = False
    targets: Mapping[str, str] = field(default_factory=dict)
    earlier_targets: Mapping[str, Sequence[EarlierTarget]] = field(default_factory=dict)

    @property
    def resumes(self) -> bool:
        """Whether it can be resumed before the end of its input: a batch begins from nothing."""
        return self.checkpointed and self.execution is Execution.STREAMING
