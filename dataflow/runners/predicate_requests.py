"""How users put predicates to the checkpoints of a job: the same words on every runner that can do it."""

from __future__ import annotations

from dataflow.errors import ConfigurationError
from dataflow.runtime.job.predicates import Answers, Predicate

__all__ = ["make_answers"]


def make_answers(predicate: Predicate, where: str, *, checkpointed: bool) -> Answers:
    """What will hold the answers of ``predicate``.

    Raises: ConfigurationError for what cannot be called, and for a job that takes no checkpoints.
    """
    if not callable(predicate):
        raise ConfigurationError(
            f"job.{where}: expected a function from CheckpointState to bool, got {predicate!r} "
            f"({type(predicate).__name__})"
        )
    name = getattr(predicate, "__qualname__", type(predicate).__name__)
    if not checkpointed:
        raise ConfigurationError(
            f"job.{where}: predicate {name!r} needs checkpoints, but this job takes none; start it with "
            "checkpoint=Checkpointing(...)"
        )
    return Answers(predicate, name)
