"""Validate the predicates that users pass to on_checkpoint() and stop_when(), for all runners."""

from __future__ import annotations

from dataflow.contracts.execution import Execution
from dataflow.errors import ConfigurationError
from dataflow.runtime.job.predicates import Answers, Predicate

__all__ = ["make_answers"]


def make_answers(predicate: Predicate, where: str, *, checkpointed: bool, execution: Execution) -> Answers:
    """Return an empty ``Answers`` for ``predicate``.

    Raises: ConfigurationError if it cannot be called, if the job takes no checkpoints, or if it is a batch.
    """
    if not callable(predicate):
        raise ConfigurationError(
            f"job.{where}: expected a function from CheckpointState to bool, got {predicate!r} "
            f"({type(predicate).__name__})"
        )
    name = getattr(predicate, "__qualname__", type(predicate).__name__)
    if execution is Execution.BATCH:
        raise ConfigurationError(
            f"job.{where}: predicate {name!r} looks at state, and the one checkpoint of a batch has none; run it with "
            "execution='streaming'"
        )
    if not checkpointed:
        raise ConfigurationError(
            f"job.{where}: predicate {name!r} needs checkpoints, but this job takes none; start it with "
            "checkpoint=Checkpointing(...)"
        )
    return Answers(predicate, name)
